/* The class `CachedEntry`, and operations on all changed entries of a cache.
 *
 * The garbage collector does not track entries: it would visit millions of them, although they are
 * rarely part of cycles. A user's value that refers to its cache stays in memory until the cache is
 * closed. */

#include "entries.h"

#include <stddef.h>
#include <structmember.h>

#define COLUMNS 6

static PyObject *entry_type;

Entry *as_entry(PyObject *object) {
    if ((PyObject *)Py_TYPE(object) != entry_type) {
        PyErr_Format(PyExc_TypeError, "expected a CachedEntry, not %R", Py_TYPE(object));
        return NULL;
    }
    return (Entry *)object;
}

PyObject *key_of_entry(Entry *entry) {
    PyObject *key_bytes = held(entry->key_bytes);
    if (key_bytes == NULL) {
        PyErr_SetString(PyExc_AttributeError, "the entry has no key, because its key_bytes were deleted");
    }
    return key_bytes;
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

/* Creates an entry without a value for a key in a list; NULL with an exception. */
static PyObject *new_of_key(PyObject *keys, Py_ssize_t index, long long extra_bytes, long long seq) {
    PyObject *key = list_item(keys, index);
    long long size = key == NULL ? -1 : PyBytes_Size(key);
    Entry *entry = size < 0 || add_number(&size, extra_bytes) < 0 ? NULL : made_entry(key, Py_None, size, seq);
    Py_XDECREF(key);
    return (PyObject *)entry;
}

PyObject *new_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *keys;
    long long extra_bytes, seq;
    if (!PyArg_ParseTuple(arguments, "O!LL", &PyList_Type, &keys, &extra_bytes, &seq)) {
        return NULL;
    }
    long long last = seq;
    if (add_number(&last, PyList_Size(keys)) < 0) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(keys);
    PyObject *entries = PyList_New(count);
    for (Py_ssize_t index = 0; entries != NULL && index < count; index++, seq++) {
        PyObject *entry = new_of_key(keys, index, extra_bytes, seq);
        if (entry == NULL || PyList_SetItem(entries, index, entry) < 0) {
            Py_CLEAR(entries);
        }
    }
    return entries;
}

static void free_one(PyObject *object) {
    Entry *self = (Entry *)object;
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

/* A value may be, or contain, another entry. */
static void free_entry(PyObject *self) { free_flat(self, free_one); }

static PyObject *change(Entry *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 6) {
        return PyErr_Format(PyExc_TypeError, "change() takes 6 arguments, not %zd", count);
    }
    long long timestamp, seq, offset;
    if (as_number(arguments[1], &timestamp) < 0 || as_number(arguments[2], &seq) < 0 ||
        as_number(arguments[4], &offset) < 0) {
        return NULL;
    }
    return PyBool_FromLong(
        change_entry(self, arguments[0], timestamp, seq, arguments[3], offset, arguments[5]));
}

static PyMethodDef entry_methods[] = {
    {"change", (PyCFunction)(void (*)(void))change, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* Numbers have their own accessors, because those of the interpreter set a number to -1 if the new
 * value is invalid, and a `used_seq` of -1 marks a removed entry. */
static long long *number_at(PyObject *self, void *offset) { return (long long *)((char *)self + (size_t)offset); }

static PyObject *number(PyObject *self, void *offset) { return PyLong_FromLongLong(*number_at(self, offset)); }

static int set_number(PyObject *self, PyObject *object, void *offset) {
    long long found;
    if (object == NULL) {
        PyErr_SetString(PyExc_TypeError, "numbers of an entry cannot be deleted");
        return -1;
    }
    if (as_number(object, &found) < 0) {
        return -1;
    }
    *number_at(self, offset) = found;
    return 0;
}

#define OBJECT(name) {#name, T_OBJECT_EX, offsetof(Entry, name), 0, NULL}
#define NUMBER(name) {#name, number, set_number, NULL, (void *)offsetof(Entry, name)}

static PyMemberDef entry_objects[] = {
    OBJECT(key_bytes), OBJECT(value), OBJECT(place), OBJECT(headers), OBJECT(stored), OBJECT(raw),
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef entry_numbers[] = {
    NUMBER(timestamp), NUMBER(dirty_seq), NUMBER(used_seq), NUMBER(queued_seq), NUMBER(offset), NUMBER(size),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot entry_slots[] = {
    {Py_tp_new, new_entry},
    {Py_tp_dealloc, free_entry},
    {Py_tp_members, entry_objects},
    {Py_tp_getset, entry_numbers},
    {Py_tp_methods, entry_methods},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "millstream.native._native.CachedEntry",
    .basicsize = sizeof(Entry),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = entry_slots,
};

int add_entries(PyObject *module) {
    entry_type = PyType_FromSpec(&entry_spec);
    return entry_type == NULL ? -1 : PyModule_AddObjectRef(module, "CachedEntry", entry_type);
}

/* ---- changed entries */

/* Copies the contents of an entry to one row of columns: 0, or -1 with an exception. Runs no
 * Python. */
static int put_cells(Entry *entry, PyObject **columns, Py_ssize_t index) {
    PyObject *cells[COLUMNS] = {
        held(entry->key_bytes), held(entry->value),           PyLong_FromLongLong(entry->timestamp),
        held(entry->place),     PyLong_FromLongLong(entry->offset), held(entry->headers)};
    int failed = cells[2] == NULL || cells[4] == NULL;
    for (int number = 0; number < COLUMNS; number++) {
        PyObject *cell = cells[number] == NULL ? Py_NewRef(Py_None) : cells[number];
        failed |= PyList_SetItem(columns[number], index, cell) < 0;
    }
    return failed ? -1 : 0;
}

PyObject *columns_of(PyObject *module, PyObject *entries) {
    (void)module;
    if (!PyList_Check(entries)) {
        return PyErr_Format(PyExc_TypeError, "expected a list of entries, not %R", entries);
    }
    Py_ssize_t count = PyList_Size(entries);
    PyObject *columns[COLUMNS] = {NULL}, *result = NULL;
    int failed = 0;
    for (int number = 0; !failed && number < COLUMNS; number++) {
        columns[number] = PyList_New(count);
        failed = columns[number] == NULL;
    }
    for (Py_ssize_t index = 0; !failed && index < count; index++) {
        PyObject *object = list_item(entries, index);
        Entry *entry = object == NULL ? NULL : as_entry(object);
        failed = entry == NULL || put_cells(entry, columns, index) < 0;
        Py_XDECREF(object);
    }
    if (!failed) {
        result = PyTuple_Pack(COLUMNS, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]);
    }
    for (int number = 0; number < COLUMNS; number++) {
        Py_XDECREF(columns[number]);
    }
    return result;
}

/* Computes the size of an entry with other stored bytes: 0, or -1 with an exception. */
static int size_with(Entry *entry, PyObject *stored, Py_ssize_t overhead_bytes, long long *size) {
    PyObject *key_bytes = key_of_entry(entry);
    *size = key_bytes == NULL ? -1 : PyBytes_Size(key_bytes);
    Py_XDECREF(key_bytes);
    Py_ssize_t value_bytes = *size < 0 ? -1 : PyBytes_Size(stored);
    return value_bytes < 0 || add_number(size, value_bytes) < 0 ? -1 : add_number(size, overhead_bytes);
}

/* Marks an entry as flushed, with its new stored value, and adds its growth in bytes to `grown`: 0,
 * or -1 with an exception. */
static int flushed(Entry *entry, PyObject *stored, Py_ssize_t overhead_bytes, PyObject *nothing, long long *grown) {
    long long size, growth;
    if (size_with(entry, stored, overhead_bytes, &size) < 0) {
        return -1;
    }
    if (__builtin_sub_overflow(size, entry->size, &growth)) {
        PyErr_SetString(PyExc_OverflowError, "the size of an entry exceeds 64 bits");
        return -1;
    }
    if (add_number(grown, growth) < 0) {
        return -1;
    }
    if (entry->dirty_seq > entry->used_seq) {
        entry->used_seq = entry->dirty_seq;
    }
    entry->dirty_seq = 0;
    entry->size = size;
    PyObject *old_headers = replace(&entry->headers, Py_NewRef(nothing));
    PyObject *old_stored = replace(&entry->stored, Py_NewRef(stored));
    Py_XDECREF(old_headers);
    Py_XDECREF(old_stored);
    return 0;
}

PyObject *mark_flushed(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *entries, *stored;
    Py_ssize_t overhead_bytes;
    long long grown = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!n", &PyList_Type, &entries, &PyList_Type, &stored, &overhead_bytes)) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(entries);
    if (PyList_Size(stored) != count) {
        return PyErr_Format(PyExc_ValueError, "there are %zd entries, but %zd values", count, PyList_Size(stored));
    }
    PyObject *nothing = PyTuple_New(0);
    int failed = nothing == NULL;
    for (Py_ssize_t index = 0; !failed && index < count; index++) {
        PyObject *object = list_item(entries, index);
        PyObject *value = object == NULL ? NULL : list_item(stored, index);
        Entry *entry = value == NULL ? NULL : as_entry(object);
        failed = entry == NULL || flushed(entry, value, overhead_bytes, nothing, &grown) < 0;
        Py_XDECREF(object);
        Py_XDECREF(value);
    }
    Py_XDECREF(nothing);
    return failed ? NULL : PyLong_FromLongLong(grown);
}
