/* What the parts of the Python module share. Only Python's stable interface is used, so that one
 * build serves 3.11 and every later version. */

#ifndef MILLSTREAM_PYTHON_H
#define MILLSTREAM_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "client.h"

typedef struct {
    PyObject_HEAD
    /* NULL after `close`. */
    Client *client;
    /* confluent-kafka's object, which keeps librdkafka's client. */
    PyObject *owner;
} ClientObject;

/* Begin a call of Python's that uses the client; 0 with an exception if that has ended. */
int enter(ClientObject *self);

PyObject *open_queue(ClientObject *self, PyObject *unused);
PyObject *forward(ClientObject *self, PyObject *arguments);
PyObject *read_columns(ClientObject *self, PyObject *arguments);
PyObject *produce_columns(ClientObject *self, PyObject *arguments);

PyObject *murmur3_128(PyObject *module, PyObject *data);
PyObject *with_times(PyObject *module, PyObject *arguments);

/* Put a class into the module; -1 with an exception. */
int add_entries(PyObject *module);
int add_entry_table(PyObject *module);
int add_eviction_order(PyObject *module);
int add_key_index(PyObject *module);
PyObject *remove_entries(PyObject *module, PyObject *arguments);
PyObject *new_entries(PyObject *module, PyObject *arguments);
PyObject *in_order(PyObject *module, PyObject *entries);
PyObject *columns_of(PyObject *module, PyObject *entries);
PyObject *settle_entries(PyObject *module, PyObject *arguments);
PyObject *count_entries(PyObject *module, PyObject *arguments);
PyObject *fold_entries(PyObject *module, PyObject *arguments);
PyObject *fold_sessions(PyObject *module, PyObject *arguments);

#endif
