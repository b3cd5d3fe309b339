/* Declarations that the parts of the Python module share. Only Python's stable interface is used,
 * so that one build works with 3.11 and all later versions.
 *
 * THE RULE ABOUT REFERENCES: no borrowed reference lives across a call that can run Python.
 *
 * Many calls can run Python where this is not obvious: dropping a reference (finalizers), hashing
 * and comparing (subclasses of bytes), converting to a number (`__index__`), reading an attribute,
 * iterating, formatting `%R` in an error, calling a function, and each allocation of an object that
 * the garbage collector tracks, such as a tuple or a list, because a collection runs finalizers.
 * This code can change each list, dict, table and entry that it can reach. Therefore:
 *
 * - Items of containers are read by `list_item`, `tuple_item` and `dict_item`, and attributes of an
 *   entry by `held`. All of them return a new reference. The interpreter's functions that return
 *   borrowed references are not called anywhere else (tests/style/test_native.py).
 * - The arguments of a function are exempt, because its caller owns them until it returns, and so
 *   are objects to which a C structure of the same call owns a reference.
 * - Sizes and pointers into an object (the slots of a table, the bytes of a buffer) are borrowed as
 *   well: they are read again after such a call, or the object is locked.
 * - An attribute is set to its new object first, and the old object is dropped last.
 * - Nothing that can run Python is called while an exception is set: each step checks the previous
 *   one, and a cleanup that calls Python saves the exception first and restores it afterwards.
 *   References may be dropped, because finalizers save and restore the exception themselves.
 * - A function that fails returns NULL or -1 with an exception, never None. */

#ifndef MILLSTREAM_PYTHON_H
#define MILLSTREAM_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "client.h"

/* ---- references */

/* Creates a new reference from a borrowed one; NULL for NULL. */
static inline PyObject *held(PyObject *object) { return Py_XNewRef(object); }

/* Returns an item of a list as a new reference; NULL with an IndexError if the list has become
 * shorter. */
static inline PyObject *list_item(PyObject *list, Py_ssize_t index) { return held(PyList_GetItem(list, index)); }

/* Returns an item of a tuple as a new reference; NULL with an IndexError if there is none. */
static inline PyObject *tuple_item(PyObject *tuple, Py_ssize_t index) { return held(PyTuple_GetItem(tuple, index)); }

/* Returns the value of a key as a new reference; NULL if there is none, or with an exception. */
static inline PyObject *dict_item(PyObject *dict, PyObject *key) {
    return held(PyDict_GetItemWithError(dict, key));
}

/* ---- exceptions */

/* A saved exception; without a type if there was none. */
typedef struct {
    PyObject *type, *error, *traceback;
} Exception;

static inline Exception take_exception(void) {
    Exception taken;
    PyErr_Fetch(&taken.type, &taken.error, &taken.traceback);
    return taken;
}

/* Restores a saved exception, which replaces one that was set since then. Without a saved
 * exception, the current one stays. */
static inline void restore_exception(Exception taken) {
    if (taken.type != NULL) {
        PyErr_Restore(taken.type, taken.error, taken.traceback);
    }
}

static inline void drop_exception(Exception taken) {
    Py_XDECREF(taken.type);
    Py_XDECREF(taken.error);
    Py_XDECREF(taken.traceback);
}

/* Returns the saved exception, or else the one that was set since then, which is cleared. */
static inline Exception first_exception(Exception taken) {
    Exception later = take_exception();
    if (taken.type == NULL) {
        return later;
    }
    drop_exception(later);
    return taken;
}

/* ---- numbers */

/* Converts an object to a 64-bit integer: 0, or -1 with an exception. */
static inline int as_number(PyObject *object, long long *number) {
    *number = object == NULL ? -1 : PyLong_AsLongLong(object);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Adds to a 64-bit integer: 0, or -1 with an OverflowError. */
static inline int add_number(long long *number, long long more) {
    long long sum;
    if (__builtin_add_overflow(*number, more, &sum)) {
        PyErr_SetString(PyExc_OverflowError, "a number of a cache exceeds 64 bits");
        return -1;
    }
    *number = sum;
    return 0;
}

/* ---- deallocation */

/* Frees an unreferenced object. Deeply nested calls queue their objects for the outermost call, so
 * a chain of any length uses a bounded stack. Objects of garbage-collected types must be untracked
 * before. */
void free_flat(PyObject *object, void (*free_one)(PyObject *object));

/* ---- clients */

typedef struct {
    PyObject_HEAD
    /* NULL after `close`. */
    Client *client;
    /* confluent-kafka's object, which owns librdkafka's client. */
    PyObject *owner;
} ClientObject;

/* Starts a call from Python that uses the client; 0 with an exception if the client has ended. */
int enter(ClientObject *self);

PyObject *open_queue(ClientObject *self, PyObject *unused);
PyObject *forward(ClientObject *self, PyObject *arguments);
PyObject *read_columns(ClientObject *self, PyObject *arguments);
PyObject *produce_columns(ClientObject *self, PyObject *arguments);

PyObject *murmur3_128(PyObject *module, PyObject *data);
PyObject *with_times(PyObject *module, PyObject *arguments);

/* Add a class to the module: 0, or -1 with an exception. */
int add_entries(PyObject *module);
int add_entry_table(PyObject *module);
int add_eviction_order(PyObject *module);
int add_key_index(PyObject *module);
PyObject *remove_entries(PyObject *module, PyObject *arguments);
PyObject *new_entries(PyObject *module, PyObject *arguments);
PyObject *sorted_by_change(PyObject *module, PyObject *entries);
PyObject *columns_of(PyObject *module, PyObject *entries);
PyObject *mark_flushed(PyObject *module, PyObject *arguments);
PyObject *count_entries(PyObject *module, PyObject *arguments);
PyObject *fold_entries(PyObject *module, PyObject *arguments);
PyObject *fold_sessions(PyObject *module, PyObject *arguments);

/* Returns the result of a function: None, or NULL after a failure. */
static inline PyObject *none_unless(int failed) { return failed ? NULL : Py_NewRef(Py_None); }

#endif
