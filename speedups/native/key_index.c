/* The class `KeyIndex`, as Millstream has it in Python: the stored keys of each key, ascending.
 *
 * A stored key is the key, a time of 8 bytes that is not negative, and as many more as its kind of
 * window has; so those of one key are in the order of their times. */

#include <limits.h>
#include <string.h>

#include "key_index.h"

/* How many stored keys may come before it is asked again, at least. */
#define PATIENCE 10000

struct KeyIndex {
    PyObject_HEAD
    /* Gives all stored keys. Whoever owns this may be reached through it. */
    PyObject *stored_keys;
    /* By key a list. */
    PyObject *by_key;
    Py_ssize_t suffix_bytes;
    int is_asleep;
    /* How many have come since somebody has asked, and how many may. */
    Py_ssize_t unasked, patience;
};

static PyObject *index_type;

KeyIndex *as_key_index(PyObject *object) {
    if ((PyObject *)Py_TYPE(object) != index_type) {
        PyErr_Format(PyExc_TypeError, "a KeyIndex is needed, not %R", Py_TYPE(object));
        return NULL;
    }
    return (KeyIndex *)object;
}

/* ---- stored keys */

/* The key of a stored key, owned; NULL with an exception. */
static PyObject *key_of(KeyIndex *self, PyObject *stored) {
    if (!PyBytes_Check(stored) || PyBytes_Size(stored) < self->suffix_bytes) {
        return PyErr_Format(PyExc_TypeError, "a stored key is needed, not %R", stored);
    }
    return PyBytes_FromStringAndSize(PyBytes_AsString(stored), PyBytes_Size(stored) - self->suffix_bytes);
}

long long time_before(PyObject *stored, Py_ssize_t bytes) {
    const char *data = PyBytes_AsString(stored);
    const unsigned char *at = (const unsigned char *)data + PyBytes_Size(stored) - bytes;
    uint64_t time = 0;
    for (int index = 0; index < TIME_BYTES; index++) {
        time = time << 8 | at[index];
    }
    return (long long)time;
}

long long time_of(KeyIndex *self, PyObject *stored) {
    return time_before(stored, self->suffix_bytes);
}

static int comes_before(PyObject *stored, PyObject *other) {
    Py_ssize_t size = PyBytes_Size(stored), other_size = PyBytes_Size(other);
    int compared =
        memcmp(PyBytes_AsString(stored), PyBytes_AsString(other), (size_t)(size < other_size ? size : other_size));
    return compared < 0 || (compared == 0 && size < other_size);
}

/* Where a stored key is in a list, or where it belongs. */
static Py_ssize_t place_in(PyObject *known, PyObject *stored) {
    Py_ssize_t low = 0, high = PyList_Size(known);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (comes_before(PyList_GetItem(known, middle), stored)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

Py_ssize_t place_at(KeyIndex *self, PyObject *known, long long time) {
    Py_ssize_t low = 0, high = PyList_Size(known);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (time_of(self, PyList_GetItem(known, middle)) < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- what comes and goes */

static int add(KeyIndex *self, PyObject *stored) {
    PyObject *key = key_of(self, stored);
    if (key == NULL) {
        return -1;
    }
    int failed;
    PyObject *known = PyDict_GetItemWithError(self->by_key, key);
    if (known == NULL) {
        known = PyErr_Occurred() ? NULL : PyList_New(1);
        if (known != NULL) {
            PyList_SetItem(known, 0, Py_NewRef(stored));
        }
        failed = known == NULL || PyDict_SetItem(self->by_key, key, known) < 0 ? -1 : 0;
        Py_XDECREF(known);
    } else {
        Py_ssize_t count = PyList_Size(known);
        failed = comes_before(PyList_GetItem(known, count - 1), stored)
                     ? PyList_Append(known, stored)
                     : PyList_Insert(known, place_in(known, stored), stored);
    }
    Py_DECREF(key);
    return failed;
}

static void forget(KeyIndex *self) {
    self->is_asleep = 1;
    PyDict_Clear(self->by_key);
}

/* Take all stored keys in: 0, or -1 with an exception. */
static int wake(KeyIndex *self) {
    if (self->stored_keys == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the index is gone");
        return -1;
    }
    PyObject *all = PyObject_CallObject(self->stored_keys, NULL);
    PyObject *list = all == NULL ? NULL : PySequence_List(all);
    Py_XDECREF(all);
    int failed = list == NULL;
    Py_ssize_t count = failed ? 0 : PyList_Size(list);
    for (Py_ssize_t index = 0; !failed && index < count; index++) {
        failed = add(self, PyList_GetItem(list, index)) < 0;
    }
    Py_XDECREF(list);
    if (failed) {
        PyDict_Clear(self->by_key);
        return -1;
    }
    self->is_asleep = 0;
    self->patience = count > PATIENCE ? count : PATIENCE;
    return 0;
}

int note_key(KeyIndex *self, PyObject *stored) {
    if (self->is_asleep) {
        return 0;
    }
    if (++self->unasked > self->patience) {
        forget(self);
        return 0;
    }
    return add(self, stored);
}

static PyObject *note(KeyIndex *self, PyObject *stored) {
    return note_key(self, stored) < 0 ? NULL : Py_NewRef(Py_None);
}

int unnote_key(KeyIndex *self, PyObject *stored) {
    if (self->is_asleep) {
        return 0;
    }
    PyObject *key = key_of(self, stored);
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(self->by_key, key);
    int failed = -1;
    if (known != NULL) {
        Py_ssize_t count = PyList_Size(known), place = place_in(known, stored);
        if (place == count || PyObject_RichCompareBool(PyList_GetItem(known, place), stored, Py_EQ) != 1) {
            known = NULL;
        } else if (count == 1) {
            failed = PyDict_DelItem(self->by_key, key);
        } else {
            failed = PyList_SetSlice(known, place, place + 1, NULL);
        }
    }
    if (known == NULL && !PyErr_Occurred()) {
        PyErr_SetObject(PyExc_KeyError, stored);
    }
    Py_XDECREF(key);
    return failed < 0 ? -1 : 0;
}

static PyObject *unnote(KeyIndex *self, PyObject *stored) {
    return unnote_key(self, stored) < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *stored_keys_of(KeyIndex *self, PyObject *key) {
    if (self->is_asleep && wake(self) < 0) {
        return NULL;
    }
    self->unasked = 0;
    return PyDict_GetItemWithError(self->by_key, key);
}

/* A time, which may be any whole number: 0, or -1 with an exception. Beyond the greatest and the least
 * of 64 bits there are no windows, so these do for it. */
static int clamped(PyObject *number, long long *time) {
    int beyond;
    *time = PyLong_AsLongLongAndOverflow(number, &beyond);
    if (beyond != 0) {
        *time = beyond > 0 ? LLONG_MAX : LLONG_MIN;
    }
    return *time == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *of_key(KeyIndex *self, PyObject *arguments) {
    PyObject *key, *from, *to;
    long long first, last;
    if (!PyArg_ParseTuple(arguments, "SOO", &key, &from, &to) || clamped(from, &first) < 0 ||
        clamped(to, &last) < 0) {
        return NULL;
    }
    PyObject *known = stored_keys_of(self, key);
    if (known == NULL || first > last) {
        return PyErr_Occurred() ? NULL : PyList_New(0);
    }
    Py_ssize_t low = place_at(self, known, first), high = PyList_Size(known);
    if (high > 0 && time_of(self, PyList_GetItem(known, high - 1)) > last) {
        /* No time is after the last there is. */
        high = place_at(self, known, last + 1);
    }
    return PyList_GetSlice(known, low, high);
}

/* ---- the class */

static PyObject *new_index(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"layout", "stored_keys", NULL};
    PyObject *layout, *stored_keys;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO", names, &layout, &stored_keys)) {
        return NULL;
    }
    PyObject *suffix = PyObject_GetAttrString(layout, "suffix_bytes");
    Py_ssize_t suffix_bytes = suffix == NULL ? -1 : PyLong_AsSsize_t(suffix);
    Py_XDECREF(suffix);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (suffix_bytes < 8) {
        PyErr_SetString(PyExc_ValueError, "behind a key there is a time of 8 bytes");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    KeyIndex *self = (KeyIndex *)allocate(type, 0);
    if (self != NULL) {
        self->stored_keys = Py_NewRef(stored_keys);
        self->by_key = PyDict_New();
        self->suffix_bytes = suffix_bytes;
        self->is_asleep = 1;
        self->patience = PATIENCE;
        if (self->by_key == NULL) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static PyObject *is_asleep(KeyIndex *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->is_asleep);
}

/* The argument's name is what Py_VISIT demands. Stored keys refer to nothing. */
static int traverse(KeyIndex *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->stored_keys);
    return 0;
}

static int clear(KeyIndex *self) {
    Py_CLEAR(self->stored_keys);
    return 0;
}

static void deallocate(KeyIndex *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_CLEAR(self->by_key);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"note", (PyCFunction)note, METH_O, NULL},
    {"unnote", (PyCFunction)unnote, METH_O, NULL},
    {"of_key", (PyCFunction)of_key, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"is_asleep", (getter)is_asleep, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new_index},     {Py_tp_dealloc, deallocate}, {Py_tp_traverse, traverse}, {Py_tp_clear, clear},
    {Py_tp_methods, methods}, {Py_tp_getset, attributes},  {0, NULL},
};

static PyType_Spec spec = {
    .name = "millstream_speedups._native.KeyIndex",
    .basicsize = sizeof(KeyIndex),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

int add_key_index(PyObject *module) {
    index_type = PyType_FromSpec(&spec);
    return index_type == NULL ? -1 : PyModule_AddObjectRef(module, "KeyIndex", index_type);
}
