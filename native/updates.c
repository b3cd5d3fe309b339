/* Shared code of the aggregation loops: the columns of records, and a cache while its entries
 * are changed. */

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

PyObject *cell(Column *column, Py_ssize_t index) {
    if (column->list != NULL) {
        return list_item(column->list, index);
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
    return held(column->current);
}

/* ---- the cache */

int open_cache(Cache *state, PyObject *cache) {
    state->cache = cache;
    state->entries = PyObject_GetAttrString(cache, "entries");
    state->table = state->entries == NULL ? NULL : as_table(state->entries);
    state->dirty = state->table == NULL ? NULL : PyObject_GetAttrString(cache, "dirty");
    if (state->dirty == NULL) {
        return 0;
    }
    if (!PyList_Check(state->dirty)) {
        PyErr_SetString(PyExc_TypeError, "the dirty entries of a cache must be a list");
        return 0;
    }
    state->is_open = read_seq(state) == 0;
    return state->is_open;
}

int write_seq(Cache *state) {
    PyObject *seq = PyLong_FromLongLong(state->seq);
    int failed = seq == NULL ? -1 : PyObject_SetAttrString(state->cache, "seq", seq);
    Py_XDECREF(seq);
    return failed;
}

int read_seq(Cache *state) {
    PyObject *seq = PyObject_GetAttrString(state->cache, "seq");
    int failed = as_number(seq, &state->seq);
    Py_XDECREF(seq);
    return failed;
}

int read_seq_after(Cache *state, int failed) {
    Exception exception = take_exception();
    if (read_seq(state) < 0) {
        exception = first_exception(exception);
        failed = 1;
    }
    restore_exception(exception);
    return failed ? -1 : 0;
}

int close_cache(Cache *state) {
    int failed = state->is_open ? write_seq(state) : 0;
    Py_CLEAR(state->entries);
    Py_CLEAR(state->dirty);
    return failed;
}

/* ---- records */

int open_updates(Updates *updates, PyObject *tuple) {
    /* These are items of a tuple that is an argument. */
    PyObject *stored_keys, *indices, *keys, *values, *timestamps, *places, *offsets, *headers, *at;
    if (!PyArg_ParseTuple(tuple, "O!OOOOOOOO", &PyList_Type, &stored_keys, &indices, &keys, &values, &timestamps,
                          &places, &offsets, &headers, &at) ||
        PyObject_GetBuffer(at, &updates->at, PyBUF_WRITABLE) < 0) {
        return 0;
    }
    updates->stored_keys = held(stored_keys);
    updates->indices = held(indices);
    updates->count = PyList_Size(stored_keys);
    if (updates->at.len < (Py_ssize_t)sizeof(long long)) {
        PyErr_SetString(PyExc_ValueError, "the buffer for the index must have at least 8 bytes");
        return 0;
    }
    if (updates->indices != Py_None &&
        !(PyList_Check(updates->indices) && PyList_Size(updates->indices) == updates->count)) {
        PyErr_SetString(PyExc_ValueError, "indices must be a list of the same length as the stored keys");
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
    Py_CLEAR(updates->stored_keys);
    Py_CLEAR(updates->indices);
    if (updates->at.obj != NULL) {
        PyBuffer_Release(&updates->at);
    }
}

/* Reads a number from a column: 0, or -1 with an exception. */
static int number(Column *column, Py_ssize_t index, long long *found) {
    PyObject *object = cell(column, index);
    int failed = as_number(object, found);
    Py_XDECREF(object);
    return failed;
}

int context_of(Updates *updates, Py_ssize_t index, Context *context) {
    if (number(&updates->timestamps, index, &context->timestamp) < 0 ||
        number(&updates->offsets, index, &context->offset) < 0) {
        return -1;
    }
    context->place = cell(&updates->places, index);
    if (context->place == NULL) {
        return -1;
    }
    context->headers = updates->no_headers == NULL ? cell(&updates->headers, index) : held(updates->no_headers);
    if (context->headers == NULL) {
        Py_CLEAR(context->place);
        return -1;
    }
    return 0;
}

/* ---- changing an entry */

int change_cached(Cache *cache, Entry *entry, PyObject *value, long long timestamp, Context *context) {
    if (add_number(&cache->seq, 1) < 0 ||
        (entry->dirty_seq == 0 && PyList_Append(cache->dirty, (PyObject *)entry) < 0)) {
        return -1;
    }
    change_entry(entry, value, timestamp, cache->seq, context->place, context->offset, context->headers);
    return 0;
}

/* ---- failures */

int report_failure(Cache *cache, PyObject *failed, Py_ssize_t index) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *result = NULL;
    Exception exception = take_exception();
    PyErr_NormalizeException(&exception.type, &exception.error, &exception.traceback);
    if (exception.traceback != NULL) {
        PyException_SetTraceback(exception.error, exception.traceback);
    }
    if (write_seq(cache) == 0) {
        /* As in an `except` block: the callback may log the exception, or use `sys.exception()`. */
        PyObject *before = PyErr_GetHandledException();
        PyErr_SetHandledException(exception.error);
        result = PyObject_CallFunction(failed, "nO", index, exception.error);
        PyErr_SetHandledException(before);
        Py_XDECREF(before);
    }
    drop_exception(exception);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}
