/* The class `EvictionOrder`, equivalent to Millstream's Python version, and the sorting of entries
 * by their latest changes. */

#include "entries.h"

#include <limits.h>
#include <stdlib.h>

/* Owned entries. */
typedef struct {
    Entry **entries;
    size_t count, capacity;
} EntryArray;

typedef struct {
    PyObject_HEAD
    /* Sorted by the last use before they were queued, most recent first. */
    EntryArray queue;
    /* Entries that were used later than all queued ones, unsorted. */
    EntryArray unsorted;
} EvictionOrder;

/* An entry with its sort key, because entries are scattered in memory. */
typedef struct {
    long long seq;
    Entry *entry;
} Ranked;

static PyObject *order_type;

/* ---- rows */

/* Takes over the reference on success: 0, or -1 with an exception. */
static int append(EntryArray *array, Entry *entry) {
    if (array->count == array->capacity) {
        size_t capacity = array->capacity == 0 ? 64 : array->capacity * 2;
        Entry **larger = PyMem_Realloc(array->entries, capacity * sizeof(*larger));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        array->entries = larger;
        array->capacity = capacity;
    }
    array->entries[array->count++] = entry;
    return 0;
}

static int append_object(EntryArray *array, PyObject *object) {
    Entry *entry = as_entry(object);
    if (entry == NULL || append(array, entry) < 0) {
        return -1;
    }
    Py_INCREF(object);
    return 0;
}

/* Clears the row before its entries are released, because these may be the last references. */
static void drop(EntryArray *array) {
    EntryArray dropped = *array;
    *array = (EntryArray){0};
    for (size_t index = 0; index < dropped.count; index++) {
        Py_DECREF((PyObject *)dropped.entries[index]);
    }
    PyMem_Free(dropped.entries);
}

/* Removes the entries that have left the cache, in place: 0, or -1 with an exception. */
static int drop_removed(EntryArray *array) {
    EntryArray removed = {0};
    size_t kept = 0;
    int failed = 0;
    for (size_t index = 0; index < array->count; index++) {
        Entry *entry = array->entries[index];
        if (entry->used_seq == REMOVED && !failed) {
            failed = append(&removed, entry) < 0;
        }
        if (entry->used_seq != REMOVED || failed) {
            array->entries[kept++] = entry;
        }
    }
    array->count = kept;
    drop(&removed);
    return failed ? -1 : 0;
}

/* ---- sorting */

static int by_seq(const void *one, const void *other) {
    long long first = ((const Ranked *)one)->seq, second = ((const Ranked *)other)->seq;
    return (first > second) - (first < second);
}

static int latest_first(const void *one, const void *other) { return by_seq(other, one); }

static long long last_use(Entry *entry) {
    return entry->dirty_seq > entry->used_seq ? entry->dirty_seq : entry->used_seq;
}

PyObject *sorted_by_change(PyObject *module, PyObject *entries) {
    (void)module;
    if (!PyList_Check(entries)) {
        return PyErr_Format(PyExc_TypeError, "expected a list of entries, not %R", entries);
    }
    Py_ssize_t count = PyList_Size(entries);
    Ranked *ranked = PyMem_Malloc((size_t)count * sizeof(*ranked) + 1);
    PyObject *sorted = ranked == NULL ? PyErr_NoMemory() : PyList_New(count);
    Py_ssize_t owned = 0;
    int failed = sorted == NULL;
    for (; !failed && owned < count; owned += !failed) {
        PyObject *object = list_item(entries, owned);
        Entry *entry = object == NULL ? NULL : as_entry(object);
        failed = entry == NULL;
        if (failed) {
            Py_XDECREF(object);
        } else {
            ranked[owned] = (Ranked){entry->dirty_seq, entry};
        }
    }
    if (failed) {
        Py_CLEAR(sorted);
    } else {
        qsort(ranked, (size_t)count, sizeof(*ranked), by_seq);
    }
    for (Py_ssize_t index = 0; index < owned; index++) {
        PyObject *entry = (PyObject *)ranked[index].entry;
        if (failed) {
            Py_DECREF(entry);
        } else {
            PyList_SetItem(sorted, index, entry);
        }
    }
    PyMem_Free(ranked);
    return sorted;
}

/* Moves all unsorted entries to the queue: 0, or -1 with an exception. Call this when the queue is
 * empty; if finalizers fill it meanwhile, their entries become unsorted. */
static int queue_again(EvictionOrder *self) {
    if (drop_removed(&self->unsorted) < 0) {
        return -1;
    }
    size_t count = self->unsorted.count;
    Ranked *ranked = PyMem_Malloc(count * sizeof(*ranked) + 1);
    if (ranked == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t index = 0; index < count; index++) {
        Entry *entry = self->unsorted.entries[index];
        entry->queued_seq = last_use(entry);
        ranked[index] = (Ranked){entry->queued_seq, entry};
    }
    qsort(ranked, count, sizeof(*ranked), latest_first);
    for (size_t index = 0; index < count; index++) {
        self->unsorted.entries[index] = ranked[index].entry;
    }
    PyMem_Free(ranked);
    EntryArray empty = self->queue;
    self->queue = self->unsorted;
    self->unsorted = empty;
    return 0;
}

/* ---- the order */

/* Removes the least recently used entry, owned; NULL if there is none, or with an exception. */
static Entry *pop_least_recent(EvictionOrder *self) {
    for (;;) {
        if (self->queue.count == 0 && (queue_again(self) < 0 || self->queue.count == 0)) {
            return NULL;
        }
        Entry *entry = self->queue.entries[--self->queue.count];
        if (entry->used_seq == REMOVED) {
            Py_DECREF((PyObject *)entry);
        } else if (last_use(entry) == entry->queued_seq) {
            return entry;
        } else if (append(&self->unsorted, entry) < 0) {
            Py_DECREF((PyObject *)entry);
            return NULL;
        }
    }
}

static PyObject *add(EvictionOrder *self, PyObject *entry) {
    return append_object(&self->unsorted, entry) < 0 ? NULL : Py_NewRef(Py_None);
}

int queue_entry(PyObject *order, Entry *entry) {
    if ((PyObject *)Py_TYPE(order) != order_type) {
        PyErr_Format(PyExc_TypeError, "expected an EvictionOrder, not %R", Py_TYPE(order));
        return -1;
    }
    return append_object(&((EvictionOrder *)order)->unsorted, (PyObject *)entry);
}

static PyObject *add_many(EvictionOrder *self, PyObject *entries) {
    PyObject *iterator = PyObject_GetIter(entries), *entry;
    int failed = iterator == NULL;
    while (!failed && (entry = PyIter_Next(iterator)) != NULL) {
        failed = append_object(&self->unsorted, entry) < 0;
        Py_DECREF(entry);
    }
    Py_XDECREF(iterator);
    /* The loop also ends if the iterator fails. */
    return none_unless(failed || PyErr_Occurred());
}

static PyObject *pop(EvictionOrder *self, PyObject *unused) {
    (void)unused;
    Entry *entry = pop_least_recent(self);
    if (entry != NULL) {
        return (PyObject *)entry;
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *pop_unchanged(EvictionOrder *self, PyObject *size_bytes) {
    long long left_bytes;
    PyObject *popped = as_number(size_bytes, &left_bytes) < 0 ? NULL : PyList_New(0);
    while (popped != NULL && left_bytes > 0) {
        Entry *entry = pop_least_recent(self);
        if (entry == NULL || entry->dirty_seq != 0) {
            /* There is room, because the entry was just removed. */
            if (entry != NULL) {
                self->queue.entries[self->queue.count++] = entry;
            }
            break;
        }
        if (__builtin_sub_overflow(left_bytes, entry->size, &left_bytes)) {
            left_bytes = entry->size > 0 ? 0 : LLONG_MAX;
        }
        if (PyList_Append(popped, (PyObject *)entry) < 0) {
            Py_CLEAR(popped);
        }
        Py_DECREF((PyObject *)entry);
    }
    if (popped != NULL && PyErr_Occurred()) {
        Py_CLEAR(popped);
    }
    return popped;
}

static PyObject *drop_removed_entries(EvictionOrder *self, PyObject *unused) {
    (void)unused;
    return drop_removed(&self->queue) < 0 || drop_removed(&self->unsorted) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *clear(EvictionOrder *self, PyObject *unused) {
    (void)unused;
    drop(&self->queue);
    drop(&self->unsorted);
    Py_RETURN_NONE;
}

static Py_ssize_t length(EvictionOrder *self) { return (Py_ssize_t)(self->queue.count + self->unsorted.count); }

static void free_order(PyObject *object) {
    EvictionOrder *self = (EvictionOrder *)object;
    PyTypeObject *type = Py_TYPE(object);
    drop(&self->queue);
    drop(&self->unsorted);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static void deallocate(PyObject *self) { free_flat(self, free_order); }

static PyMethodDef methods[] = {
    {"add", (PyCFunction)add, METH_O, NULL},
    {"add_many", (PyCFunction)add_many, METH_O, NULL},
    {"pop", (PyCFunction)pop, METH_NOARGS, NULL},
    {"pop_unchanged", (PyCFunction)pop_unchanged, METH_O, NULL},
    {"drop_removed", (PyCFunction)drop_removed_entries, METH_NOARGS, NULL},
    {"clear", (PyCFunction)clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, deallocate},
    {Py_tp_methods, methods},
    {Py_mp_length, length},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "millstream.native._native.EvictionOrder",
    .basicsize = sizeof(EvictionOrder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int add_eviction_order(PyObject *module) {
    order_type = PyType_FromSpec(&spec);
    return order_type == NULL ? -1 : PyModule_AddObjectRef(module, "EvictionOrder", order_type);
}
