/* The class `CachedEntry`, and what a cache does with all changed entries at once.
 *
 * Entries are not tracked by the garbage collector, which would look at millions of them: what they
 * refer to seldom knows of them. A user's value that does, by way of its cache, stays until the cache
 * is closed. */

#include "entries.h"

#include <stddef.h>
#include <structmember.h>

#define COLUMNS 6

static PyObject *entry_type;

Entry *as_entry(PyObject *object) {
    if ((PyObject *)Py_TYPE(object) != entry_type) {
        PyErr_Format(PyExc_TypeError, "a CachedEntry is needed, not %R", object);
        return NULL;
    }
    return (Entry *)object;
}

/* ---- the class */

Entry *made_entry(PyObject *key_bytes, PyObject *stored, long long size, long long used_seq) {
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)entry_type, Py_tp_alloc);
    Entry *self = (Entry *)allocate((PyTypeObject *)entry_type, 0);
    if (self != NULL) {
        self->key_bytes = Py_NewRef(key_bytes);
        self->stored = Py_NewRef(stored);
        self->raw = Py_NewRef(stored);
        self->value = Py_NewRef(Py_None);
        self->place = Py_NewRef(Py_None);
        self->headers = PyTuple_New(0);
        self->timestamp = self->offset = -1;
        self->size = size;
        self->used_seq = used_seq;
    }
    return self;
}

static PyObject *new_entry(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"key_bytes", "stored", "size", "used_seq", NULL};
    PyObject *key_bytes, *stored;
    long long size, used_seq;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "SOLL", names, &key_bytes, &stored, &size, &used_seq)) {
        return NULL;
    }
    return (PyObject *)made_entry(key_bytes, stored, size, used_seq);
}

PyObject *new_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *keys;
    long long extra_bytes, seq;
    if (!PyArg_ParseTuple(arguments, "O!LL", &PyList_Type, &keys, &extra_bytes, &seq)) {
        return NULL;
    }
    PyObject *entries = PyList_New(PyList_Size(keys));
    for (Py_ssize_t index = 0; entries != NULL && index < PyList_Size(keys); index++) {
        PyObject *key = PyList_GetItem(keys, index);
        Py_ssize_t key_bytes = PyBytes_Size(key);
        Entry *entry = key_bytes < 0 ? NULL : made_entry(key, Py_None, key_bytes + extra_bytes, seq + index);
        if (entry == NULL) {
            Py_CLEAR(entries);
        } else {
            PyList_SetItem(entries, index, (PyObject *)entry);
        }
    }
    return entries;
}

static void free_entry(Entry *self) {
    Py_CLEAR(self->key_bytes);
    Py_CLEAR(self->stored);
    Py_CLEAR(self->raw);
    Py_CLEAR(self->value);
    Py_CLEAR(self->place);
    Py_CLEAR(self->headers);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *change(Entry *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 6) {
        return PyErr_Format(PyExc_TypeError, "a change has 6 arguments, not %zd", count);
    }
    long long timestamp = PyLong_AsLongLong(arguments[1]), seq = PyLong_AsLongLong(arguments[2]);
    long long offset = PyLong_AsLongLong(arguments[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(
        change_entry(self, arguments[0], timestamp, seq, arguments[3], offset, arguments[5]));
}

static PyMethodDef entry_methods[] = {
    {"change", (PyCFunction)(void (*)(void))change, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

#define OBJECT(name) {#name, T_OBJECT_EX, offsetof(Entry, name), 0, NULL}
#define NUMBER(name) {#name, T_LONGLONG, offsetof(Entry, name), 0, NULL}

static PyMemberDef entry_attributes[] = {
    OBJECT(key_bytes), OBJECT(value),     OBJECT(place),    OBJECT(headers),    OBJECT(stored), OBJECT(raw),
    NUMBER(timestamp), NUMBER(dirty_seq), NUMBER(used_seq), NUMBER(queued_seq), NUMBER(offset), NUMBER(size),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot entry_slots[] = {
    {Py_tp_new, new_entry},
    {Py_tp_dealloc, free_entry},
    {Py_tp_members, entry_attributes},
    {Py_tp_methods, entry_methods},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "millstream_speedups._native.CachedEntry",
    .basicsize = sizeof(Entry),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = entry_slots,
};

int add_entries(PyObject *module) {
    entry_type = PyType_FromSpec(&entry_spec);
    return entry_type == NULL ? -1 : PyModule_AddObjectRef(module, "CachedEntry", entry_type);
}

/* ---- changed entries */

static int put_cells(Entry *entry, PyObject *columns, Py_ssize_t index) {
    PyObject *cells[COLUMNS] = {
        Py_XNewRef(entry->key_bytes), Py_XNewRef(entry->value),           PyLong_FromLongLong(entry->timestamp),
        Py_XNewRef(entry->place),     PyLong_FromLongLong(entry->offset), Py_XNewRef(entry->headers)};
    for (int number = 0; number < COLUMNS; number++) {
        PyObject *cell = cells[number] == NULL ? Py_NewRef(Py_None) : cells[number];
        PyList_SetItem(PyTuple_GetItem(columns, number), index, cell);
    }
    return !PyErr_Occurred();
}

PyObject *columns_of(PyObject *module, PyObject *entries) {
    (void)module;
    if (!PyList_Check(entries)) {
        return PyErr_Format(PyExc_TypeError, "a list of entries is needed, not %R", entries);
    }
    Py_ssize_t count = PyList_Size(entries);
    PyObject *columns = PyTuple_New(COLUMNS);
    for (int number = 0; columns != NULL && number < COLUMNS; number++) {
        PyObject *column = PyList_New(count);
        if (column == NULL || PyTuple_SetItem(columns, number, column) < 0) {
            Py_CLEAR(columns);
        }
    }
    /* Nothing of what follows runs Python, so the list stays what it is. */
    for (Py_ssize_t index = 0; columns != NULL && index < count; index++) {
        Entry *entry = as_entry(PyList_GetItem(entries, index));
        if (entry == NULL || !put_cells(entry, columns, index)) {
            Py_CLEAR(columns);
        }
    }
    return columns;
}

/* A change was flushed: the entry is what is stored now. Adds by how many bytes it has grown. */
static int settle(Entry *entry, PyObject *stored, Py_ssize_t overhead_bytes, PyObject *nothing, long long *grown) {
    Py_ssize_t key_bytes = PyBytes_Size(entry->key_bytes), value_bytes = PyBytes_Size(stored);
    if (key_bytes < 0 || value_bytes < 0) {
        return -1;
    }
    if (entry->dirty_seq > entry->used_seq) {
        entry->used_seq = entry->dirty_seq;
    }
    entry->dirty_seq = 0;
    set(&entry->headers, nothing);
    set(&entry->stored, stored);
    long long size = key_bytes + value_bytes + overhead_bytes;
    *grown += size - entry->size;
    entry->size = size;
    return 0;
}

PyObject *settle_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *entries, *stored;
    Py_ssize_t overhead_bytes;
    long long grown = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!n", &PyList_Type, &entries, &PyList_Type, &stored, &overhead_bytes)) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(entries);
    if (PyList_Size(stored) != count) {
        return PyErr_Format(PyExc_ValueError, "there are %zd entries and %zd values", count, PyList_Size(stored));
    }
    PyObject *nothing = PyTuple_New(0);
    int failed = nothing == NULL;
    for (Py_ssize_t index = 0; !failed && index < count; index++) {
        /* Whoever drops an old value may run Python, which may change the lists. */
        PyObject *held = Py_XNewRef(PyList_GetItem(entries, index));
        PyObject *value = Py_XNewRef(PyList_GetItem(stored, index));
        Entry *entry = held == NULL || value == NULL ? NULL : as_entry(held);
        failed = entry == NULL || settle(entry, value, overhead_bytes, nothing, &grown) < 0;
        Py_XDECREF(held);
        Py_XDECREF(value);
    }
    Py_XDECREF(nothing);
    return failed ? NULL : PyLong_FromLongLong(grown);
}
