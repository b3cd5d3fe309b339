/* The class `KeyIndex`, equivalent to Millstream's Python version: the stored keys of each key,
 * ascending.
 *
 * A stored key consists of the key, a non-negative time of 8 bytes, and further bytes that depend
 * on the kind of window, so the stored keys of one key are sorted by time. */

#include "key_index.h"

#include <limits.h>
#include <string.h>

/* The minimum number of additions without a lookup after which the index drops its contents. */
#define MIN_UNQUERIED 10000

struct KeyIndex {
    PyObject_HEAD
    /* Returns all stored keys. May hold a reference to the owner of this object. */
    PyObject *stored_keys;
    /* A list by key. */
    PyObject *by_key;
    Py_ssize_t suffix_bytes;
    /* Whether the contents must be loaded before the next lookup. */
    int needs_fill;
    /* Whether stored keys are being loaded, and whether some were added or removed meanwhile. */
    int is_filling, has_changed;
    /* The number of additions since the last lookup, and its limit. */
    Py_ssize_t unqueried, max_unqueried;
};

static PyObject *index_type;

KeyIndex *as_key_index(PyObject *object) {
    if ((PyObject *)Py_TYPE(object) != index_type) {
        PyErr_Format(PyExc_TypeError, "expected a KeyIndex, not %R", Py_TYPE(object));
        return NULL;
    }
    return (KeyIndex *)object;
}

/* ---- stored keys */

/* Returns the key of a stored key, owned; NULL with an exception. */
static PyObject *key_of(KeyIndex *self, PyObject *stored) {
    if (!PyBytes_Check(stored) || PyBytes_Size(stored) < self->suffix_bytes) {
        return PyErr_Format(PyExc_TypeError, "expected a stored key, not %R", stored);
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

/* Returns the time of a stored key in a list. */
static long long time_at(KeyIndex *self, PyObject *list, Py_ssize_t index) {
    PyObject *stored = list_item(list, index);
    long long time = time_of(self, stored);
    Py_DECREF(stored);
    return time;
}

/* Compares bytes, even if a subclass overrides comparisons. */
static int comes_before(PyObject *stored, PyObject *other) {
    Py_ssize_t size = PyBytes_Size(stored), other_size = PyBytes_Size(other);
    int compared =
        memcmp(PyBytes_AsString(stored), PyBytes_AsString(other), (size_t)(size < other_size ? size : other_size));
    return compared < 0 || (compared == 0 && size < other_size);
}

/* Returns the index of a stored key in a list, or its insertion point. Runs no Python. */
static Py_ssize_t insertion_index(PyObject *list, PyObject *stored) {
    Py_ssize_t low = 0, high = PyList_Size(list);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        PyObject *other = list_item(list, middle);
        if (comes_before(other, stored)) {
            low = middle + 1;
        } else {
            high = middle;
        }
        Py_DECREF(other);
    }
    return low;
}

Py_ssize_t index_at_time(KeyIndex *self, PyObject *list, long long time) {
    Py_ssize_t low = 0, high = PyList_Size(list);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (time_at(self, list, middle) < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- adding and removing keys */

/* Inserts a stored key into a nonempty list of the index: 0, or -1 with an exception. */
static int insert(PyObject *list, PyObject *stored) {
    PyObject *last = list_item(list, PyList_Size(list) - 1);
    if (last == NULL) {
        return -1;
    }
    int is_last = comes_before(last, stored);
    Py_DECREF(last);
    return is_last ? PyList_Append(list, stored) : PyList_Insert(list, insertion_index(list, stored), stored);
}

/* Adds a stored key to those of its key: 0, or -1 with an exception. */
static int add(KeyIndex *self, PyObject *by_key, PyObject *stored) {
    PyObject *key = key_of(self, stored);
    if (key == NULL) {
        return -1;
    }
    int failed = -1;
    PyObject *list = dict_item(by_key, key);
    if (list != NULL) {
        failed = insert(list, stored);
    } else if (!PyErr_Occurred()) {
        list = PyList_New(0);
        failed = list == NULL || PyList_Append(list, stored) < 0 || PyDict_SetItem(by_key, key, list) < 0 ? -1 : 0;
    }
    Py_XDECREF(list);
    Py_DECREF(key);
    return failed;
}

/* Replaces `by_key`, and takes over the reference: 0, or -1 with an exception. */
static int replace_contents(KeyIndex *self, PyObject *by_key) {
    if (by_key == NULL) {
        return -1;
    }
    PyObject *old = self->by_key;
    self->by_key = by_key;
    Py_XDECREF(old);
    return 0;
}

static int unload(KeyIndex *self) {
    self->needs_fill = 1;
    return replace_contents(self, PyDict_New());
}

/* Returns all stored keys by key; NULL with an exception. */
static PyObject *all_by_key(KeyIndex *self, Py_ssize_t *count) {
    PyObject *stored_keys = held(self->stored_keys);
    if (stored_keys == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the index has been garbage-collected");
        return NULL;
    }
    PyObject *all = PyObject_CallObject(stored_keys, NULL);
    PyObject *list = all == NULL ? NULL : PySequence_List(all);
    PyObject *by_key = list == NULL ? NULL : PyDict_New();
    *count = by_key == NULL ? 0 : PyList_Size(list);
    for (Py_ssize_t index = 0; by_key != NULL && index < *count; index++) {
        PyObject *stored = list_item(list, index);
        if (stored == NULL || add(self, by_key, stored) < 0) {
            Py_CLEAR(by_key);
        }
        Py_XDECREF(stored);
    }
    Py_XDECREF(list);
    Py_XDECREF(all);
    Py_DECREF(stored_keys);
    return by_key;
}

/* Loads all stored keys: 0, or -1 with an exception. */
static int fill(KeyIndex *self) {
    if (self->is_filling) {
        PyErr_SetString(PyExc_RuntimeError, "The index was read while it was being filled.");
        return -1;
    }
    PyObject *by_key;
    Py_ssize_t count;
    self->is_filling = 1;
    do {
        self->has_changed = 0;
        by_key = all_by_key(self, &count);
    } while (by_key != NULL && self->has_changed && (Py_DECREF(by_key), 1));
    self->is_filling = 0;
    if (by_key == NULL) {
        return -1;
    }
    self->needs_fill = 0;
    self->max_unqueried = count > MIN_UNQUERIED ? count : MIN_UNQUERIED;
    return replace_contents(self, by_key);
}

int add_stored_key(KeyIndex *self, PyObject *stored) {
    if (self->needs_fill) {
        self->has_changed = 1;
        return 0;
    }
    if (++self->unqueried > self->max_unqueried) {
        return unload(self);
    }
    PyObject *by_key = held(self->by_key);
    int failed = add(self, by_key, stored);
    Py_DECREF(by_key);
    return failed;
}

static PyObject *add_method(KeyIndex *self, PyObject *stored) { return none_unless(add_stored_key(self, stored) < 0); }

/* Removes a stored key from those of its key: 1, 0 if it is not there, or -1 with an exception. */
static int remove_stored(PyObject *by_key, PyObject *key, PyObject *list, PyObject *stored) {
    Py_ssize_t count = PyList_Size(list), index = insertion_index(list, stored);
    PyObject *found = index == count ? NULL : list_item(list, index);
    int is_there = found != NULL && !comes_before(stored, found);
    int failed = 0;
    if (is_there) {
        failed = count == 1 ? PyDict_DelItem(by_key, key) : PyList_SetSlice(list, index, index + 1, NULL);
    }
    Py_XDECREF(found);
    return failed < 0 ? -1 : is_there;
}

int remove_stored_key(KeyIndex *self, PyObject *stored) {
    if (self->needs_fill) {
        self->has_changed = 1;
        return 0;
    }
    PyObject *by_key = held(self->by_key);
    PyObject *key = key_of(self, stored);
    PyObject *list = key == NULL ? NULL : dict_item(by_key, key);
    int taken = list != NULL ? remove_stored(by_key, key, list, stored) : PyErr_Occurred() ? -1 : 0;
    if (taken == 0) {
        PyErr_SetObject(PyExc_KeyError, stored);
    }
    Py_XDECREF(list);
    Py_XDECREF(key);
    Py_DECREF(by_key);
    return taken > 0 ? 0 : -1;
}

static PyObject *remove_method(KeyIndex *self, PyObject *stored) {
    return none_unless(remove_stored_key(self, stored) < 0);
}

int find_stored_keys(KeyIndex *self, PyObject *key, PyObject **list) {
    *list = NULL;
    if (self->needs_fill && fill(self) < 0) {
        return -1;
    }
    self->unqueried = 0;
    PyObject *by_key = held(self->by_key);
    *list = dict_item(by_key, key);
    int failed = *list == NULL && PyErr_Occurred();
    Py_DECREF(by_key);
    return failed ? -1 : *list != NULL;
}

/* Converts any integer to a time. Sets `beyond` to 1 or -1 if the integer is above or below the
 * range of 64 bits, which clamps the time: 0, or -1 with an exception. */
static int clamped(PyObject *number, long long *time, int *beyond) {
    *time = PyLong_AsLongLongAndOverflow(number, beyond);
    if (*beyond != 0) {
        *time = *beyond > 0 ? LLONG_MAX : LLONG_MIN;
    }
    return *time == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *of_key(KeyIndex *self, PyObject *arguments) {
    PyObject *key, *from, *to;
    long long first, last;
    int first_beyond, last_beyond;
    if (!PyArg_ParseTuple(arguments, "SOO", &key, &from, &to) || clamped(from, &first, &first_beyond) < 0 ||
        clamped(to, &last, &last_beyond) < 0) {
        return NULL;
    }
    int is_empty = first > last || last < 0 || first_beyond > 0;
    PyObject *found = PyList_New(0), *list = NULL;
    int failed = found == NULL || find_stored_keys(self, key, &list) < 0;
    /* No Python runs from here on, so the list does not change. */
    Py_ssize_t count = failed || list == NULL || is_empty ? 0 : PyList_Size(list);
    for (Py_ssize_t index = count == 0 ? 0 : index_at_time(self, list, first); !failed && index < count; index++) {
        if (time_at(self, list, index) > last) {
            break;
        }
        PyObject *stored = list_item(list, index);
        failed = PyList_Append(found, stored) < 0;
        Py_DECREF(stored);
    }
    Py_XDECREF(list);
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
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
        PyErr_SetString(PyExc_ValueError, "suffix_bytes must be at least 8");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    KeyIndex *self = (KeyIndex *)allocate(type, 0);
    if (self != NULL) {
        self->stored_keys = Py_NewRef(stored_keys);
        self->by_key = PyDict_New();
        self->suffix_bytes = suffix_bytes;
        self->needs_fill = 1;
        self->max_unqueried = MIN_UNQUERIED;
        if (self->by_key == NULL) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static PyObject *needs_fill(KeyIndex *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->needs_fill);
}

/* Py_VISIT requires the name `arg`. Stored keys refer to no other objects. */
static int traverse(KeyIndex *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->stored_keys);
    return 0;
}

static int clear(KeyIndex *self) {
    Py_CLEAR(self->stored_keys);
    return 0;
}

static void free_index(PyObject *object) {
    KeyIndex *self = (KeyIndex *)object;
    PyTypeObject *type = Py_TYPE(object);
    clear(self);
    Py_CLEAR(self->by_key);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static void deallocate(PyObject *self) {
    PyObject_GC_UnTrack(self);
    free_flat(self, free_index);
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)add_method, METH_O, NULL},
    {"remove", (PyCFunction)remove_method, METH_O, NULL},
    {"of_key", (PyCFunction)of_key, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"needs_fill", (getter)needs_fill, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new_index},     {Py_tp_dealloc, deallocate}, {Py_tp_traverse, traverse}, {Py_tp_clear, clear},
    {Py_tp_methods, methods}, {Py_tp_getset, attributes},  {0, NULL},
};

static PyType_Spec spec = {
    .name = "millstream.native._native.KeyIndex",
    .basicsize = sizeof(KeyIndex),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

int add_key_index(PyObject *module) {
    index_type = PyType_FromSpec(&spec);
    return index_type == NULL ? -1 : PyModule_AddObjectRef(module, "KeyIndex", index_type);
}
