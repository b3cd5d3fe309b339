/* Sends columns of records to librdkafka. */

#include "python.h"

#include <stdlib.h>
#include <string.h>

/* librdkafka would replace the timestamp 0 with the current time. */
#define FIRST_MILLISECOND 1
#define BY_KEY (-1)
/* Not an error of librdkafka: a Python exception is set. */
#define INVALID_RECORD (-100000)

/* The bytes of a key or value, and the owned object that contains them. */
typedef struct {
    PyObject *object;
    const void *bytes;
    size_t length;
    Py_buffer view;
    int is_view;
} Bytes;

/* Gets the bytes of an object and takes over its reference, even on failure: 0, or -1 with an
 * exception. */
static int bytes_of(PyObject *object, Bytes *bytes) {
    bytes->object = object;
    bytes->is_view = 0;
    if (object == NULL) {
        return -1;
    }
    if (object == Py_None) {
        bytes->bytes = NULL;
        bytes->length = 0;
        return 0;
    }
    if (PyBytes_Check(object)) {
        bytes->bytes = PyBytes_AsString(object);
        bytes->length = (size_t)PyBytes_Size(object);
        return 0;
    }
    if (PyUnicode_Check(object)) {
        Py_ssize_t length;
        bytes->bytes = PyUnicode_AsUTF8AndSize(object, &length);
        bytes->length = (size_t)length;
        return bytes->bytes == NULL ? -1 : 0;
    }
    if (!PyMemoryView_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected bytes or None, not %R", Py_TYPE(object));
        return -1;
    }
    if (PyObject_GetBuffer(object, &bytes->view, PyBUF_SIMPLE) < 0) {
        if (PyErr_ExceptionMatches(PyExc_BufferError)) {
            /* Callers interpret a BufferError as a full queue. */
            PyErr_SetString(PyExc_ValueError, "a memoryview must be contiguous");
        }
        return -1;
    }
    bytes->is_view = 1;
    /* The address of an empty buffer may be NULL, which librdkafka would interpret as None. */
    bytes->bytes = bytes->view.buf == NULL ? "" : bytes->view.buf;
    bytes->length = (size_t)bytes->view.len;
    return 0;
}

static void release(Bytes *bytes) {
    if (bytes->is_view) {
        PyBuffer_Release(&bytes->view);
        bytes->is_view = 0;
    }
    Py_CLEAR(bytes->object);
}

static int add_header(rd_kafka_headers_t *headers, PyObject *pair) {
    if (!(PyTuple_Check(pair) || PyList_Check(pair)) || PySequence_Size(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a header must be a pair of a name and a value");
        return -1;
    }
    PyObject *name = PySequence_GetItem(pair, 0), *value = name == NULL ? NULL : PySequence_GetItem(pair, 1);
    Bytes bytes = {.object = NULL};
    Py_ssize_t length = 0;
    const char *text = value == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, &length);
    int result = text == NULL ? -1 : bytes_of(held(value), &bytes);
    if (result == 0) {
        kafka.header_add(headers, text, length, bytes.bytes, (ssize_t)bytes.length);
    }
    release(&bytes);
    Py_XDECREF(name);
    Py_XDECREF(value);
    return result;
}

static int headers_of(PyObject *object, rd_kafka_headers_t **headers) {
    if (object == NULL || object == Py_None) {
        return object == NULL ? -1 : 0;
    }
    PyObject *pairs = PySequence_List(object);
    if (pairs == NULL) {
        return -1;
    }
    int result = 0;
    /* `headers` remains NULL if there are none to write. */
    if (PyList_Size(pairs) > 0) {
        *headers = kafka.headers_new((size_t)PyList_Size(pairs));
        for (Py_ssize_t index = 0; result == 0 && index < PyList_Size(pairs); index++) {
            PyObject *pair = list_item(pairs, index);
            result = pair == NULL ? -1 : add_header(*headers, pair);
            Py_XDECREF(pair);
        }
        if (result < 0) {
            kafka.headers_destroy(*headers);
            *headers = NULL;
        }
    }
    Py_DECREF(pairs);
    return result;
}

static int timestamp_of(PyObject *object, int64_t *timestamp) {
    long long number;
    if (as_number(object, &number) < 0) {
        return -1;
    }
    *timestamp = number == 0 ? FIRST_MILLISECOND : number;
    return 0;
}

static int partition_of(PyObject *object, int32_t *partition) {
    if (object == NULL) {
        return -1;
    }
    if (object == Py_None) {
        *partition = BY_KEY;
        return 0;
    }
    long number = PyLong_AsLong(object);
    if (number == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (number < BY_KEY || number > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%ld is not a valid partition", number);
        return -1;
    }
    *partition = (int32_t)number;
    return 0;
}

/* The records to write, as columns: lists of equal length. Optional columns may be NULL. */
typedef struct {
    rd_kafka_t *rk;
    rd_kafka_topic_t *topic;
    int32_t partition;
    PyObject *partitions;
    PyObject *keys;
    PyObject *values;
    PyObject *timestamps;
    PyObject *headers;
} Columns;

static rd_kafka_resp_err_t send_record(const Columns *columns, int32_t partition, int64_t timestamp,
                                     const Bytes *key, const Bytes *value, rd_kafka_headers_t *headers) {
    if (headers == NULL) {
        return kafka.producev(columns->rk, V_RKT, columns->topic, V_PARTITION, partition, V_MSGFLAGS,
                              MESSAGE_COPY, V_KEY, key->bytes, key->length, V_VALUE, value->bytes,
                              value->length, V_TIMESTAMP, timestamp, V_END);
    }
    return kafka.producev(columns->rk, V_RKT, columns->topic, V_PARTITION, partition, V_MSGFLAGS,
                          MESSAGE_COPY, V_KEY, key->bytes, key->length, V_VALUE, value->bytes, value->length,
                          V_TIMESTAMP, timestamp, V_HEADERS, headers, V_END);
}

static int find_headers(const Columns *columns, Py_ssize_t index, rd_kafka_headers_t **headers) {
    if (columns->headers == NULL) {
        return 0;
    }
    PyObject *object = list_item(columns->headers, index);
    int result = headers_of(object, headers);
    Py_XDECREF(object);
    return result;
}

static int find_partition(const Columns *columns, Py_ssize_t index, int32_t *partition) {
    if (columns->partitions == NULL) {
        return 0;
    }
    PyObject *object = list_item(columns->partitions, index);
    int result = partition_of(object, partition);
    Py_XDECREF(object);
    return result;
}

static int find_timestamp(const Columns *columns, Py_ssize_t index, int64_t *timestamp) {
    PyObject *object = list_item(columns->timestamps, index);
    int result = timestamp_of(object, timestamp);
    Py_XDECREF(object);
    return result;
}

/* Returns librdkafka's error for one record; NOT_UNDERSTOOD with an exception if the record
 * cannot be passed to librdkafka. */
static rd_kafka_resp_err_t produce_one(const Columns *columns, Py_ssize_t index) {
    rd_kafka_headers_t *headers = NULL;
    int32_t partition = columns->partition;
    int64_t timestamp = 0;
    Bytes key = {.object = NULL}, value = {.object = NULL};
    rd_kafka_resp_err_t error = INVALID_RECORD;
    if (find_headers(columns, index, &headers) == 0 && find_partition(columns, index, &partition) == 0 &&
        find_timestamp(columns, index, &timestamp) == 0 && bytes_of(list_item(columns->keys, index), &key) == 0 &&
        bytes_of(list_item(columns->values, index), &value) == 0) {
        error = send_record(columns, partition, timestamp, &key, &value, headers);
    }
    if (error != ERROR_NONE && headers != NULL) {
        /* librdkafka takes over the headers only if it accepts the record. */
        kafka.headers_destroy(headers);
    }
    release(&key);
    release(&value);
    return error;
}

/* Returns the handle of a topic; NULL with an exception. Given its name, librdkafka would look up
 * the topic for each record. */
static rd_kafka_topic_t *topic_of(Client *client, const char *name) {
    for (Topic *topic = client->topics; topic != NULL; topic = topic->next) {
        if (strcmp(topic->name, name) == 0) {
            return topic->handle;
        }
    }
    size_t length = strlen(name) + 1;
    Topic *topic = malloc(sizeof(*topic) + length);
    if (topic == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    topic->handle = kafka.topic_new(client->rk, name, NULL);
    if (topic->handle == NULL) {
        free(topic);
        PyErr_Format(PyExc_ValueError, "the topic name '%s' is invalid: %s", name,
                     kafka.err2str(kafka.last_error()));
        return NULL;
    }
    memcpy(topic->name, name, length);
    topic->next = client->topics;
    client->topics = topic;
    return topic->handle;
}

/* Returns a list of the right length; NULL with an exception. */
static PyObject *list_of(PyObject *sequence, Py_ssize_t length) {
    PyObject *list = PyList_Check(sequence) ? Py_NewRef(sequence) : PySequence_List(sequence);
    if (list != NULL && PyList_Size(list) != length) {
        PyErr_Format(PyExc_ValueError, "there are %zd records, but another column has %zd", length,
                     PyList_Size(list));
        Py_CLEAR(list);
    }
    return list;
}

static int find_partitions(Columns *columns, PyObject *partitions, Py_ssize_t length) {
    if (partitions == Py_None || PyLong_Check(partitions)) {
        return partition_of(partitions, &columns->partition);
    }
    columns->partitions = list_of(partitions, length);
    return columns->partitions == NULL ? -1 : 0;
}

static PyObject *produce_all(Client *client, const char *topic, Columns *columns, Py_ssize_t start,
                             Py_ssize_t length) {
    if (kafka.type(client->rk) != TYPE_PRODUCER) {
        PyErr_SetString(PyExc_RuntimeError, "only producers can send records");
        return NULL;
    }
    columns->rk = client->rk;
    columns->topic = topic_of(client, topic);
    if (columns->topic == NULL) {
        return NULL;
    }
    rd_kafka_resp_err_t error = ERROR_NONE;
    Py_ssize_t index = start;
    int before = ignore_acknowledgements(1);
    while (index < length && (error = produce_one(columns, index)) == ERROR_NONE) {
        index++;
    }
    ignore_acknowledgements(before);
    if (error == INVALID_RECORD) {
        int is_about_record = PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
                              PyErr_ExceptionMatches(PyExc_OverflowError);
        if (index == start || !is_about_record) {
            return NULL;
        }
        /* The caller repeats the call with this record as the first. */
        PyErr_Clear();
        error = ERROR_NONE;
    }
    return Py_BuildValue("(ni)", index - start, error);
}

PyObject *produce_columns(ClientObject *self, PyObject *arguments) {
    const char *topic;
    PyObject *partitions, *keys, *values, *timestamps, *headers, *result = NULL;
    Py_ssize_t start;
    if (!PyArg_ParseTuple(arguments, "sOOOOOn", &topic, &partitions, &keys, &values, &timestamps, &headers,
                          &start)) {
        return NULL;
    }
    Py_ssize_t length = PySequence_Size(values);
    if (length < 0) {
        return NULL;
    }
    if (start < 0 || start > length) {
        return PyErr_Format(PyExc_IndexError, "there are %zd records, so start index %zd is out of range", length,
                            start);
    }
    Columns columns = {.partition = BY_KEY};
    if ((columns.values = list_of(values, length)) != NULL && (columns.keys = list_of(keys, length)) != NULL &&
        (columns.timestamps = list_of(timestamps, length)) != NULL &&
        (headers == Py_None || (columns.headers = list_of(headers, length)) != NULL) &&
        find_partitions(&columns, partitions, length) == 0 && enter(self)) {
        Client *client = self->client;
        result = produce_all(client, topic, &columns, start, length);
        end_call(client);
    }
    Py_XDECREF(columns.partitions);
    Py_XDECREF(columns.keys);
    Py_XDECREF(columns.values);
    Py_XDECREF(columns.timestamps);
    Py_XDECREF(columns.headers);
    return result;
}
