/* Small functions on bytes that are slow in Python. */

#include "python.h"

#include <string.h>

#define SEED 104729u
#define C1 0x87c37b91114253d5u
#define C2 0x4cf5ad432745937fu
#define TIME_BYTES 8

static uint64_t rotated(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static uint64_t little_endian(const unsigned char *bytes, size_t count) {
    uint64_t word = 0;
    for (size_t index = 0; index < count; index++) {
        word |= (uint64_t)bytes[index] << (8 * index);
    }
    return word;
}

static void put_big_endian(uint64_t word, char *to) {
    for (int index = 0; index < 8; index++) {
        to[index] = (char)(word >> (56 - 8 * index));
    }
}

static uint64_t finished(uint64_t hash) {
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 33;
}

static uint64_t first_mixed(uint64_t word) { return rotated(word * C1, 31) * C2; }

static uint64_t second_mixed(uint64_t word) { return rotated(word * C2, 33) * C1; }

static void hash_of(const unsigned char *data, size_t size, char result[16]) {
    uint64_t first = SEED, second = SEED;
    size_t whole = size - size % 16;
    for (size_t at = 0; at < whole; at += 16) {
        first ^= first_mixed(little_endian(data + at, 8));
        first = (rotated(first, 27) + second) * 5 + 0x52dce729u;
        second ^= second_mixed(little_endian(data + at + 8, 8));
        second = (rotated(second, 31) + first) * 5 + 0x38495ab5u;
    }
    size_t rest = size - whole;
    if (rest > 8) {
        second ^= second_mixed(little_endian(data + whole + 8, rest - 8));
    }
    if (rest > 0) {
        first ^= first_mixed(little_endian(data + whole, rest < 8 ? rest : 8));
    }
    first ^= size;
    second ^= size;
    first += second;
    second += first;
    first = finished(first);
    second = finished(second);
    first += second;
    second += first;
    put_big_endian(first, result);
    put_big_endian(second, result + 8);
}

PyObject *murmur3_128(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    char result[16];
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    hash_of(view.buf, (size_t)view.len, result);
    PyBuffer_Release(&view);
    return PyBytes_FromStringAndSize(result, sizeof(result));
}

/* Concatenates a timestamp and a value; returns None for None, and NULL with an exception. */
static PyObject *timed(PyObject *value, PyObject *timestamp) {
    if (value == Py_None) {
        return Py_NewRef(value);
    }
    long long time;
    if (as_number(timestamp, &time) < 0) {
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *joined = PyBytes_FromStringAndSize(NULL, TIME_BYTES + view.len);
    if (joined != NULL) {
        char *to = PyBytes_AsString(joined);
        put_big_endian((uint64_t)time, to);
        memcpy(to + TIME_BYTES, view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return joined;
}

PyObject *with_times(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *values_argument, *timestamps_argument;
    if (!PyArg_ParseTuple(arguments, "OO", &values_argument, &timestamps_argument)) {
        return NULL;
    }
    /* Copy the arguments, so that no other code can modify them meanwhile. */
    PyObject *values = PySequence_Tuple(values_argument), *all = NULL;
    PyObject *timestamps = values == NULL ? NULL : PySequence_Tuple(timestamps_argument);
    if (timestamps != NULL) {
        Py_ssize_t count = PyTuple_Size(values);
        if (PyTuple_Size(timestamps) != count) {
            PyErr_Format(PyExc_ValueError, "there are %zd values and %zd timestamps", count,
                         PyTuple_Size(timestamps));
        } else {
            all = PyList_New(count);
        }
        for (Py_ssize_t index = 0; all != NULL && index < count; index++) {
            PyObject *value = tuple_item(values, index), *timestamp = tuple_item(timestamps, index);
            PyObject *one = timed(value, timestamp);
            Py_XDECREF(value);
            Py_XDECREF(timestamp);
            if (one == NULL || PyList_SetItem(all, index, one) < 0) {
                Py_CLEAR(all);
            }
        }
    }
    Py_XDECREF(values);
    Py_XDECREF(timestamps);
    return all;
}
