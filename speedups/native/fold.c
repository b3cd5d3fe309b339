/* The loops of aggregations: values folded into cached entries, by the rules of Millstream's
 * `RecordCache`. */

#include "entry_table.h"

#define AT_ONCE 256

/* What a loop reads of each record. Lists are read at any index, others from front to end. */
typedef struct {
    PyObject *list, *iterator, *current;
    Py_ssize_t at;
} Column;

/* A cache while its entries are changed. */
typedef struct {
    PyObject *cache, *entries, *dirty;
    EntryTable *table;
    long long seq;
    int is_open;
} Cache;

/* Which entries to change, and the columns of the records that change them. */
typedef struct {
    PyObject *stored_keys, *indices;
    Column keys, values, timestamps, places, offsets, headers;
    PyObject *no_headers;
    /* One number for others to see, of the record that Python is called for. */
    Py_buffer at;
} Updates;

/* Entries of changes that come next; owned. */
typedef struct {
    Entry *found[AT_ONCE];
    Py_ssize_t first, count;
} Block;

/* The user's functions. */
typedef struct {
    PyObject *initializer, *aggregator;
    /* Makes another object of a value; None where values cannot be changed. */
    PyObject *own;
    PyObject *failed;
} Functions;

/* What a record has beside key and value; objects are owned. */
typedef struct {
    long long timestamp, offset;
    PyObject *place, *headers;
} Context;

/* ---- columns */

static int open_column(Column *column, PyObject *source) {
    *column = (Column){.at = -1};
    if (PyList_Check(source)) {
        column->list = Py_NewRef(source);
        return 1;
    }
    column->iterator = PyObject_GetIter(source);
    return column->iterator != NULL;
}

static void close_column(Column *column) {
    Py_CLEAR(column->list);
    Py_CLEAR(column->iterator);
    Py_CLEAR(column->current);
}

/* What a column has at an index that is not before the last one; a new reference. */
static PyObject *cell(Column *column, Py_ssize_t index) {
    if (column->list != NULL) {
        return Py_XNewRef(PyList_GetItem(column->list, index));
    }
    while (column->at < index) {
        Py_CLEAR(column->current);
        column->current = PyIter_Next(column->iterator);
        if (column->current == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "a column ends before index %zd", index);
            }
            return NULL;
        }
        column->at++;
    }
    return Py_XNewRef(column->current);
}

/* ---- the cache */

static int open_cache(Cache *state, PyObject *cache) {
    state->cache = cache;
    state->entries = PyObject_GetAttrString(cache, "entries");
    state->dirty = state->entries == NULL ? NULL : PyObject_GetAttrString(cache, "dirty");
    PyObject *seq = state->dirty == NULL ? NULL : PyObject_GetAttrString(cache, "seq");
    state->seq = seq == NULL ? -1 : PyLong_AsLongLong(seq);
    Py_XDECREF(seq);
    state->table = PyErr_Occurred() ? NULL : as_table(state->entries);
    if (!PyErr_Occurred() && !PyList_Check(state->dirty)) {
        PyErr_SetString(PyExc_TypeError, "a cache's changed entries are a list");
    }
    state->is_open = !PyErr_Occurred();
    return state->is_open;
}

static int tell_seq(Cache *state) {
    PyObject *seq = PyLong_FromLongLong(state->seq);
    int told = seq == NULL ? -1 : PyObject_SetAttrString(state->cache, "seq", seq);
    Py_XDECREF(seq);
    return told;
}

static int ask_seq(Cache *state) {
    PyObject *seq = PyObject_GetAttrString(state->cache, "seq");
    state->seq = seq == NULL ? -1 : PyLong_AsLongLong(seq);
    Py_XDECREF(seq);
    return PyErr_Occurred() ? -1 : 0;
}

/* Also after an exception, which stays: what was done so far counts. */
static void close_cache(Cache *state) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (state->is_open) {
        tell_seq(state);
    }
    if (type != NULL) {
        PyErr_Restore(type, error, traceback);
    }
    Py_CLEAR(state->entries);
    Py_CLEAR(state->dirty);
}

/* Have the cache load entries that it does not have; -1 with an exception. */
static int load(Cache *state, PyObject *missing) {
    PyObject *keys = PyDict_Keys(missing), *loaded = NULL;
    if (keys != NULL && tell_seq(state) == 0) {
        loaded = PyObject_CallMethod(state->cache, "load_many", "O", keys);
    }
    Py_XDECREF(keys);
    Py_XDECREF(loaded);
    return loaded == NULL ? -1 : ask_seq(state);
}

/* ---- records */

static int open_updates(Updates *updates, PyObject *given) {
    PyObject *keys, *values, *timestamps, *places, *offsets, *headers, *at;
    if (!PyArg_ParseTuple(given, "O!OOOOOOOO", &PyList_Type, &updates->stored_keys, &updates->indices, &keys,
                          &values, &timestamps, &places, &offsets, &headers, &at) ||
        PyObject_GetBuffer(at, &updates->at, PyBUF_WRITABLE) < 0) {
        return 0;
    }
    if (updates->at.len < (Py_ssize_t)sizeof(long long)) {
        PyErr_SetString(PyExc_ValueError, "there must be room for a number of 8 bytes");
        return 0;
    }
    if (updates->indices != Py_None &&
        !(PyList_Check(updates->indices) && PyList_Size(updates->indices) == PyList_Size(updates->stored_keys))) {
        PyErr_SetString(PyExc_ValueError, "indices are a list that is as long as that of stored keys");
        return 0;
    }
    updates->no_headers = headers == Py_None ? PyTuple_New(0) : NULL;
    return open_column(&updates->keys, keys) && open_column(&updates->values, values) &&
           open_column(&updates->timestamps, timestamps) && open_column(&updates->places, places) &&
           open_column(&updates->offsets, offsets) &&
           (headers == Py_None ? updates->no_headers != NULL : open_column(&updates->headers, headers));
}

static void close_updates(Updates *updates) {
    close_column(&updates->keys);
    close_column(&updates->values);
    close_column(&updates->timestamps);
    close_column(&updates->places);
    close_column(&updates->offsets);
    close_column(&updates->headers);
    Py_CLEAR(updates->no_headers);
    if (updates->at.obj != NULL) {
        PyBuffer_Release(&updates->at);
    }
}

/* Which record a change belongs to; -1 with an exception. */
static Py_ssize_t record_of(Updates *updates, Py_ssize_t position) {
    if (updates->indices == Py_None) {
        return position;
    }
    PyObject *index = PyList_GetItem(updates->indices, position);
    return index == NULL ? -1 : PyLong_AsSsize_t(index);
}

static void forget_block(Block *block) {
    for (Py_ssize_t index = 0; index < block->count; index++) {
        Py_CLEAR(block->found[index]);
    }
    block->count = 0;
}

/* Have all that the next look-ups touch on its way at once, as far as it is known by then: slots,
 * then entries, then their keys and values. -1 with an exception. */
static int fetch_ahead(EntryTable *table, PyObject **stored_keys, Py_hash_t *hashes, Py_ssize_t count) {
    for (Py_ssize_t index = 0; index < count; index++) {
        hashes[index] = PyObject_Hash(stored_keys[index]);
        if (hashes[index] == -1) {
            return -1;
        }
        if (table->slots != NULL) {
            __builtin_prefetch(&table->slots[(size_t)hashes[index] & table->mask]);
        }
    }
    Entry *likely[AT_ONCE];
    for (Py_ssize_t index = 0; table->slots != NULL && index < count; index++) {
        size_t at = (size_t)hashes[index] & table->mask;
        while (table->slots[at].entry != NULL && table->slots[at].hash != hashes[index]) {
            at = (at + 1) & table->mask;
        }
        likely[index] = table->slots[at].entry;
        if (likely[index] != NULL) {
            __builtin_prefetch(likely[index], 1);
            __builtin_prefetch(&likely[index]->key_bytes);
        }
    }
    for (Py_ssize_t index = 0; table->slots != NULL && index < count; index++) {
        if (likely[index] != NULL) {
            __builtin_prefetch(likely[index]->value, 1);
            __builtin_prefetch(likely[index]->key_bytes);
        }
    }
    return 0;
}

/* Look the entries of the next changes up, and note whose the cache does not have. */
static int look_up(Block *block, EntryTable *table, PyObject **stored_keys, Py_hash_t *hashes, Py_ssize_t count,
                   PyObject *missing) {
    for (block->count = 0; block->count < count; block->count++) {
        PyObject *key = stored_keys[block->count];
        Entry *entry = table->slots == NULL ? NULL : slot_of(table, key, hashes[block->count])->entry;
        block->found[block->count] = (Entry *)Py_XNewRef((PyObject *)entry);
        if (entry == NULL && PyDict_SetItem(missing, key, Py_None) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Take the entries of the next changes; the cache loads those that it does not have.
 *
 * They lie anywhere in memory, and waiting for one after the other takes most of the time: so they
 * are looked up together. */
static int take_block(Block *block, Cache *cache, Updates *updates, Py_ssize_t first) {
    PyObject *stored_keys[AT_ONCE];
    Py_hash_t hashes[AT_ONCE];
    Py_ssize_t rest = PyList_Size(updates->stored_keys) - first;
    Py_ssize_t count = rest < AT_ONCE ? rest : AT_ONCE;
    block->first = first;
    for (Py_ssize_t index = 0; index < count; index++) {
        stored_keys[index] = PyList_GetItem(updates->stored_keys, first + index);
        if (stored_keys[index] == NULL || !PyBytes_Check(stored_keys[index])) {
            PyErr_SetString(PyExc_TypeError, "stored keys are bytes");
            return -1;
        }
    }
    PyObject *missing = PyDict_New();
    int failed = missing == NULL || fetch_ahead(cache->table, stored_keys, hashes, count) < 0 ||
                 look_up(block, cache->table, stored_keys, hashes, count, missing) < 0 ||
                 (PyDict_Size(missing) > 0 && load(cache, missing) < 0);
    for (Py_ssize_t index = 0; !failed && index < count; index++) {
        if (block->found[index] == NULL) {
            Entry *entry = cache->table->slots == NULL
                               ? NULL
                               : slot_of(cache->table, stored_keys[index], hashes[index])->entry;
            block->found[index] = (Entry *)Py_XNewRef((PyObject *)entry);
            if (entry == NULL) {
                PyErr_SetObject(PyExc_KeyError, stored_keys[index]);
                failed = 1;
            }
        }
    }
    Py_XDECREF(missing);
    return failed ? -1 : 0;
}

/* The entry that a change is for, borrowed from the block. */
static Entry *changed_entry(Cache *cache, Updates *updates, Block *block, Py_ssize_t position) {
    if (position >= block->first + block->count) {
        forget_block(block);
        if (take_block(block, cache, updates, position) < 0) {
            return NULL;
        }
    }
    return block->found[position - block->first];
}

/* A cell of numbers; -1 with an exception. */
static long long number(Column *column, Py_ssize_t index) {
    PyObject *object = cell(column, index);
    long long found = object == NULL ? -1 : PyLong_AsLongLong(object);
    Py_XDECREF(object);
    return found;
}

/* 0, or -1 with an exception and nothing owned. */
static int context_of(Updates *updates, Py_ssize_t index, Context *context) {
    context->timestamp = number(&updates->timestamps, index);
    context->offset = number(&updates->offsets, index);
    if ((context->timestamp == -1 || context->offset == -1) && PyErr_Occurred()) {
        return -1;
    }
    context->place = cell(&updates->places, index);
    context->headers = updates->no_headers == NULL ? cell(&updates->headers, index) : Py_NewRef(updates->no_headers);
    if (context->place == NULL || context->headers == NULL) {
        Py_XDECREF(context->place);
        Py_XDECREF(context->headers);
        return -1;
    }
    return 0;
}

/* ---- changing an entry */

static int is_none(PyObject *object) { return object == NULL || object == Py_None; }

/* Give an entry the value that a record has led to: 0, or -1 with an exception. */
static int change(Cache *cache, Entry *entry, PyObject *value, Updates *updates, Py_ssize_t index) {
    Context context;
    if (context_of(updates, index, &context) < 0) {
        return -1;
    }
    /* A deleted aggregate starts over: its time does not count any more. */
    int moves = is_none(entry->value) || is_none(value) || context.timestamp > entry->timestamp;
    long long timestamp = moves ? context.timestamp : entry->timestamp;
    int was_clean =
        change_entry(entry, value, timestamp, ++cache->seq, context.place, context.offset, context.headers);
    Py_DECREF(context.place);
    Py_DECREF(context.headers);
    return was_clean ? PyList_Append(cache->dirty, (PyObject *)entry) : 0;
}

/* ---- counting */

static int count_one(Cache *cache, Updates *updates, Block *block, Py_ssize_t position, PyObject *one) {
    Py_ssize_t index = record_of(updates, position);
    Entry *entry = index < 0 ? NULL : changed_entry(cache, updates, block, position);
    if (entry == NULL) {
        return -1;
    }
    PyObject *count = is_none(entry->value) ? Py_NewRef(one) : PyNumber_Add(entry->value, one);
    int failed = count == NULL ? -1 : change(cache, entry, count, updates, index);
    Py_XDECREF(count);
    return failed;
}

PyObject *count_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *given_cache, *given_updates;
    if (!PyArg_ParseTuple(arguments, "OO!", &given_cache, &PyTuple_Type, &given_updates)) {
        return NULL;
    }
    Cache cache = {0};
    Updates updates = {0};
    Block block = {0};
    PyObject *one = PyLong_FromLong(1);
    int failed = one == NULL || !open_updates(&updates, given_updates) || !open_cache(&cache, given_cache);
    for (Py_ssize_t position = 0; !failed && position < PyList_Size(updates.stored_keys); position++) {
        failed = count_one(&cache, &updates, &block, position, one) < 0;
    }
    forget_block(&block);
    close_cache(&cache);
    close_updates(&updates);
    Py_XDECREF(one);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- folding */

/* What the user's functions make of the value so far and a record; a new reference. */
static PyObject *folded(Functions *functions, PyObject *so_far, PyObject *key, PyObject *record) {
    PyObject *before =
        is_none(so_far) ? PyObject_CallObject(functions->initializer, NULL) : Py_NewRef(so_far);
    if (before == NULL) {
        return NULL;
    }
    PyObject *value = PyObject_CallFunctionObjArgs(functions->aggregator, key, record, before, NULL);
    Py_DECREF(before);
    /* A record's own value may be on its way elsewhere. */
    if (value != NULL && value == record && functions->own != Py_None) {
        give(&value, PyObject_CallFunctionObjArgs(functions->own, record, NULL));
    }
    return value;
}

/* Let the caller decide what an exception of the user's means: 0 if the record is left out. */
static int tell_failure(Cache *cache, Functions *functions, Py_ssize_t index) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *type, *error, *traceback, *told = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    if (tell_seq(cache) == 0) {
        told = PyObject_CallFunction(functions->failed, "nO", index, error);
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    Py_XDECREF(told);
    return told == NULL ? -1 : 0;
}

/* 1 if the record is to be left out from here on, -1 with an exception. */
static int fold_one(Cache *cache, Updates *updates, Block *block, Functions *functions, Py_ssize_t position,
                    Py_ssize_t index) {
    Entry *entry = changed_entry(cache, updates, block, position);
    PyObject *key = entry == NULL ? NULL : cell(&updates->keys, index);
    PyObject *record = key == NULL ? NULL : cell(&updates->values, index);
    int failed = -1;
    if (record != NULL) {
        PyObject *so_far = Py_XNewRef(entry->value);
        *(long long *)updates->at.buf = index;
        PyObject *value = folded(functions, so_far, key, record);
        if (value == NULL) {
            failed = tell_failure(cache, functions, index) < 0 ? -1 : 1;
        } else {
            failed = change(cache, entry, value, updates, index);
        }
        Py_XDECREF(so_far);
        Py_XDECREF(value);
    }
    Py_XDECREF(key);
    Py_XDECREF(record);
    return failed;
}

PyObject *fold_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *given_cache, *given_updates;
    Functions functions;
    if (!PyArg_ParseTuple(arguments, "OO!OOOO", &given_cache, &PyTuple_Type, &given_updates, &functions.initializer,
                          &functions.aggregator, &functions.own, &functions.failed)) {
        return NULL;
    }
    Cache cache = {0};
    Updates updates = {0};
    Block block = {0};
    int failed = !open_updates(&updates, given_updates) || !open_cache(&cache, given_cache);
    Py_ssize_t left_out = -1;
    for (Py_ssize_t position = 0; !failed && position < PyList_Size(updates.stored_keys); position++) {
        Py_ssize_t index = record_of(&updates, position);
        int done = index < 0           ? -1
                   : index == left_out ? 0
                                       : fold_one(&cache, &updates, &block, &functions, position, index);
        left_out = done > 0 ? index : left_out;
        failed = done < 0;
    }
    forget_block(&block);
    close_cache(&cache);
    close_updates(&updates);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
