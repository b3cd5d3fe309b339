/* What the loops of aggregations share: the columns of records, and a cache while its entries are
 * changed. */

#include "updates.h"

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
PyObject *cell(Column *column, Py_ssize_t index) {
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

int open_cache(Cache *state, PyObject *cache) {
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

int tell_seq(Cache *state) {
    PyObject *seq = PyLong_FromLongLong(state->seq);
    int told = seq == NULL ? -1 : PyObject_SetAttrString(state->cache, "seq", seq);
    Py_XDECREF(seq);
    return told;
}

int ask_seq(Cache *state) {
    PyObject *seq = PyObject_GetAttrString(state->cache, "seq");
    state->seq = seq == NULL ? -1 : PyLong_AsLongLong(seq);
    Py_XDECREF(seq);
    return PyErr_Occurred() ? -1 : 0;
}

/* Also after an exception, which stays: what was done so far counts. */
void close_cache(Cache *state) {
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

/* ---- records */

int open_updates(Updates *updates, PyObject *given) {
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

void close_updates(Updates *updates) {
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

/* A cell of numbers; -1 with an exception. */
static long long number(Column *column, Py_ssize_t index) {
    PyObject *object = cell(column, index);
    long long found = object == NULL ? -1 : PyLong_AsLongLong(object);
    Py_XDECREF(object);
    return found;
}

/* 0, or -1 with an exception and nothing owned. */
int context_of(Updates *updates, Py_ssize_t index, Context *context) {
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

int change_cached(Cache *cache, Entry *entry, PyObject *value, long long timestamp, Context *context) {
    int was_clean =
        change_entry(entry, value, timestamp, ++cache->seq, context->place, context->offset, context->headers);
    return was_clean ? PyList_Append(cache->dirty, (PyObject *)entry) : 0;
}

/* ---- failures */

/* Let the caller decide what an exception of the user's means: 0 if the record is left out. */
int tell_failure(Cache *cache, PyObject *failed, Py_ssize_t index) {
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
        /* As within an `except`: whoever is told may log it, or look at `sys.exception()`. */
        PyObject *before = PyErr_GetHandledException();
        PyErr_SetHandledException(error);
        told = PyObject_CallFunction(failed, "nO", index, error);
        PyErr_SetHandledException(before);
        Py_XDECREF(before);
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    Py_XDECREF(told);
    return told == NULL ? -1 : 0;
}
