/* The loop of aggregations by session. Most records start a session or extend one, which is done
 * here. Python handles all other cases, record by record. */

#include "key_index.h"
#include "updates.h"

#include <limits.h>

/* All objects are arguments. */
typedef struct {
    Cache cache;
    Updates updates;
    KeyIndex *index;
    /* The cache's eviction order, and a dict of its entries that are not in the table. */
    PyObject *order, *resting;
    PyObject *initializer, *aggregator, *merger, *failed, *otherwise;
    long long gap_ms, closed_after_ms, stream_time, written_until, extra_bytes;
    /* The number and size of new entries that were not reported to the cache yet. */
    long long added, added_bytes;
    long long late;
} Sessions;

/* One record, and the session that it extends, if any; owned. */
typedef struct {
    Py_ssize_t index;
    PyObject *key_bytes, *key, *value;
    Context context;
    Entry *entry;
    long long start, end;
} Step;

/* The sessions of a key around the timestamp of a record. */
typedef enum { FAILED = -1, NOTHING, ONE, ANYTHING } Found;

/* ---- stored keys: a key, the end of the session, its start */

static void put_time(char *at, long long time) {
    for (int index = TIME_BYTES - 1; index >= 0; index--) {
        at[index] = (char)(time & 0xff);
        time >>= 8;
    }
}

static PyObject *session_key(PyObject *key_bytes, long long start, long long end) {
    Py_ssize_t size = PyBytes_Size(key_bytes);
    PyObject *stored = PyBytes_FromStringAndSize(NULL, size + 2 * TIME_BYTES);
    if (stored != NULL) {
        char *at = PyBytes_AsString(stored);
        memcpy(at, PyBytes_AsString(key_bytes), (size_t)size);
        put_time(at + size, end);
        put_time(at + size + TIME_BYTES, start);
    }
    return stored;
}

static long long start_of(PyObject *stored) {
    return time_before(stored, TIME_BYTES);
}

/* ---- the cache */

/* Subtracts a duration from a time; times beyond 64 bits are clamped. */
static long long minus(long long time, long long span) {
    long long result;
    if (__builtin_sub_overflow(time, span, &result)) {
        return span > 0 ? LLONG_MIN : LLONG_MAX;
    }
    return result;
}

/* Reports the changes to the cache: 0, or -1 with an exception. */
static int report_changes(Sessions *self) {
    PyObject *result = NULL;
    long long added = self->added, added_bytes = self->added_bytes;
    self->added = self->added_bytes = 0;
    if (write_seq(&self->cache) == 0) {
        result = PyObject_CallMethod(self->cache.cache, "on_added", "LL", added, added_bytes);
    }
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Passes a record to Python: 0, or -1 with an exception. */
static int pass_to_python(Sessions *self, Step *step) {
    Context *context = &step->context;
    PyObject *late = NULL;
    if (report_changes(self) == 0) {
        late = PyObject_CallFunction(self->otherwise, "nLOLOL", step->index, context->timestamp, context->place,
                                     context->offset, context->headers, self->stream_time);
    }
    int is_late = late == NULL ? -1 : PyObject_IsTrue(late);
    Py_XDECREF(late);
    self->late += is_late > 0;
    return read_seq_after(&self->cache, is_late < 0);
}

/* ---- lookups */

/* Returns the first session of a key that ends at or after a time, and counts the sessions from it
 * on. NULL if there is none, or with an exception. */
static PyObject *first_session(Sessions *self, PyObject *key_bytes, long long first, Py_ssize_t *count) {
    PyObject *list, *stored = NULL;
    *count = 0;
    if (find_stored_keys(self->index, key_bytes, &list) > 0) {
        Py_ssize_t place = index_at_time(self->index, list, first);
        *count = PyList_Size(list) - place;
        stored = *count == 0 ? NULL : list_item(list, place);
    }
    Py_XDECREF(list);
    return stored;
}

static Found find(Sessions *self, Step *step) {
    long long time = step->context.timestamp, first = minus(time, self->gap_ms);
    if (PyDict_Size(self->resting) > 0 || first <= self->written_until) {
        return ANYTHING;
    }
    Py_ssize_t count;
    PyObject *stored = first_session(self, step->key_bytes, first, &count);
    if (stored == NULL) {
        return PyErr_Occurred() ? FAILED : NOTHING;
    }
    step->start = start_of(stored);
    step->end = time_of(self->index, stored);
    int found = find_entry(self->cache.table, stored, &step->entry);
    Py_DECREF(stored);
    if (found <= 0) {
        return found < 0 ? FAILED : ANYTHING;
    }
    if (count > 1 || minus(step->start, self->gap_ms) > time || is_none(step->entry->value) ||
        !is_none(step->entry->raw)) {
        return ANYTHING;
    }
    return ONE;
}

/* Returns whether the entry can be reused for a session with other bounds, because the session is
 * not stored below. */
static int can_move(Step *step) {
    Entry *entry = step->entry;
    return entry->dirty_seq != 0 && is_none(entry->stored);
}

/* ---- changes */

static int change(Sessions *self, Step *step, Entry *entry, PyObject *value) {
    return change_cached(&self->cache, entry, value, step->context.timestamp, &step->context);
}

/* Starts a session that is neither cached nor stored: 0, or -1 with an exception. */
static int put_new(Sessions *self, Step *step, PyObject *value) {
    long long time = step->context.timestamp;
    PyObject *stored = session_key(step->key_bytes, time, time);
    if (stored == NULL) {
        return -1;
    }
    long long size = PyBytes_Size(stored);
    Entry *entry = NULL;
    if (add_number(&size, self->extra_bytes) == 0 && add_number(&self->cache.seq, 1) == 0) {
        entry = made_entry(stored, Py_None, size, self->cache.seq);
    }
    int failed = entry == NULL || put_entry(self->cache.table, stored, (PyObject *)entry) < 0 ||
                 queue_entry(self->order, entry) < 0 || add_stored_key(self->index, stored) < 0 ||
                 change(self, step, entry, value) < 0 || add_number(&self->added_bytes, size) < 0;
    self->added += !failed;
    Py_DECREF(stored);
    Py_XDECREF((PyObject *)entry);
    return failed ? -1 : 0;
}

/* Moves an entry to the stored key of another session: 0, or -1 with an exception. */
static int move(Sessions *self, Entry *entry, PyObject *stored) {
    PyObject *old = key_of_entry(entry), *taken = NULL;
    int failed = old == NULL || take_entry(self->cache.table, old, &taken) < 0;
    if (!failed && taken != (PyObject *)entry) {
        PyErr_SetString(PyExc_RuntimeError, "the cache was changed while its entries were being changed");
        failed = 1;
    }
    if (!failed) {
        set(&entry->key_bytes, stored);
        failed = put_entry(self->cache.table, stored, taken) < 0 || remove_stored_key(self->index, old) < 0 ||
                 add_stored_key(self->index, stored) < 0;
    }
    Py_XDECREF(taken);
    Py_XDECREF(old);
    return failed ? -1 : 0;
}

/* ---- records */

static int is_closed(Sessions *self, long long end) { return end < minus(self->stream_time, self->closed_after_ms); }

static int begin(Sessions *self, Step *step) {
    PyObject *initial = PyObject_CallObject(self->initializer, NULL);
    if (initial != NULL && is_closed(self, step->context.timestamp)) {
        Py_DECREF(initial);
        self->late++;
        return 0;
    }
    PyObject *value = initial == NULL
                          ? NULL
                          : PyObject_CallFunctionObjArgs(self->aggregator, step->key, step->value, initial, NULL);
    int failed = value == NULL ? report_failure(&self->cache, self->failed, step->index) : put_new(self, step, value);
    Py_XDECREF(initial);
    Py_XDECREF(value);
    return failed;
}

/* Merges the aggregate of the session into an initial one; returns NULL with an exception. */
static PyObject *merged(Sessions *self, Step *step) {
    PyObject *current = held(step->entry->value);
    PyObject *initial = PyObject_CallObject(self->initializer, NULL), *value = NULL;
    if (initial != NULL) {
        value = PyObject_CallFunctionObjArgs(self->merger, step->key, initial, current, NULL);
    }
    Py_XDECREF(initial);
    Py_XDECREF(current);
    return value;
}

/* Adds a record to the session that was found, which gets the bounds of the step: 0, or -1 with an
 * exception. */
static int extend(Sessions *self, Step *step, PyObject *stored) {
    int is_single = step->start == step->end;
    PyObject *current = merged(self, step);
    if (current == NULL) {
        return report_failure(&self->cache, self->failed, step->index);
    }
    if (is_closed(self, step->end)) {
        Py_DECREF(current);
        self->late++;
        return 0;
    }
    PyObject *value = PyObject_CallFunctionObjArgs(self->aggregator, step->key, step->value, current, NULL);
    Py_DECREF(current);
    if (value != NULL) {
        int failed = (stored != NULL && move(self, step->entry, stored) < 0) ||
                     change(self, step, step->entry, value) < 0;
        Py_DECREF(value);
        return failed ? -1 : 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    Exception exception = take_exception();
    /* The merged session is deleted by now, unless it is the session of the record itself. */
    if (!is_single && change(self, step, step->entry, Py_None) < 0) {
        drop_exception(exception);
        return -1;
    }
    restore_exception(exception);
    return report_failure(&self->cache, self->failed, step->index);
}

static int extend_found(Sessions *self, Step *step) {
    long long time = step->context.timestamp;
    long long start = time < step->start ? time : step->start, end = time > step->end ? time : step->end;
    int moves = start != step->start || end != step->end;
    if (moves && !can_move(step)) {
        return pass_to_python(self, step);
    }
    step->start = start;
    step->end = end;
    PyObject *stored = moves ? session_key(step->key_bytes, start, end) : NULL;
    int failed = (moves && stored == NULL) || extend(self, step, stored) < 0;
    Py_XDECREF(stored);
    return failed ? -1 : 0;
}

static int add(Sessions *self, Step *step) {
    if (step->context.timestamp > self->stream_time) {
        self->stream_time = step->context.timestamp;
    }
    publish_index(&self->updates, step->index);
    switch (find(self, step)) {
    case NOTHING:
        return begin(self, step);
    case ONE:
        return extend_found(self, step);
    case ANYTHING:
        return pass_to_python(self, step);
    default:
        return -1;
    }
}

static int take_record(Sessions *self, Py_ssize_t index) {
    Step step = {.index = index, .key_bytes = list_item(self->updates.stored_keys, index)};
    int failed = -1;
    if (step.key_bytes != NULL && !PyBytes_Check(step.key_bytes)) {
        PyErr_SetString(PyExc_TypeError, "keys must be bytes");
    } else if (step.key_bytes != NULL) {
        step.key = cell(&self->updates.keys, index);
        step.value = step.key == NULL ? NULL : cell(&self->updates.values, index);
        if (step.value != NULL && context_of(&self->updates, index, &step.context) == 0) {
            failed = add(self, &step);
        }
    }
    Py_XDECREF((PyObject *)step.entry);
    Py_XDECREF(step.context.place);
    Py_XDECREF(step.context.headers);
    Py_XDECREF(step.key_bytes);
    Py_XDECREF(step.key);
    Py_XDECREF(step.value);
    return failed;
}

static int open_sessions(Sessions *self, PyObject *arguments) {
    PyObject *cache, *index, *updates;
    if (!PyArg_ParseTuple(arguments, "OOOO!O!(LLLLL)OOOOO", &cache, &index, &self->order, &PyDict_Type,
                          &self->resting, &PyTuple_Type, &updates, &self->gap_ms, &self->closed_after_ms,
                          &self->stream_time, &self->written_until, &self->extra_bytes, &self->initializer,
                          &self->aggregator, &self->merger, &self->failed, &self->otherwise)) {
        return 0;
    }
    self->index = as_key_index(index);
    return self->index != NULL && open_updates(&self->updates, updates) && open_cache(&self->cache, cache);
}

PyObject *fold_sessions(PyObject *module, PyObject *arguments) {
    (void)module;
    Sessions self = {0};
    int failed = !open_sessions(&self, arguments);
    for (Py_ssize_t index = 0; !failed && index < self.updates.count; index++) {
        failed = take_record(&self, index) < 0;
    }
    /* Report the work so far, with or without an exception. */
    Exception exception = take_exception();
    if (self.cache.is_open && report_changes(&self) < 0) {
        exception = first_exception(exception);
        failed = 1;
    }
    if (close_cache(&self.cache) < 0) {
        exception = first_exception(exception);
        failed = 1;
    }
    close_updates(&self.updates);
    restore_exception(exception);
    return failed ? NULL : Py_BuildValue("(LL)", self.stream_time, self.late);
}
