/* Reads records from librdkafka, as columns. */

#include "python.h"

#include <stdlib.h>
#include <string.h>

/* The maximum number of messages per call; the caller repeats the call for more. */
#define MAX_MESSAGES 65536
/* Keys, values, timestamps, offsets and headers. */
#define COLUMNS 5
/* The partition number of client events; other partition numbers are never less than -1. */
#define CLIENT_PARTITION (-2)

PyObject *open_queue(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (!enter(self)) {
        return NULL;
    }
    Client *client = self->client;
    int is_consumer = kafka.type(client->rk) == TYPE_CONSUMER;
    if (is_consumer && client->queue == NULL) {
        client->queue = kafka.queue_new(client->rk);
    }
    end_call(client);
    if (!is_consumer) {
        PyErr_SetString(PyExc_RuntimeError, "only consumers can read records");
    }
    return none_unless(!is_consumer);
}

PyObject *forward(ClientObject *self, PyObject *arguments) {
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(arguments, "si", &topic, &partition)) {
        return NULL;
    }
    if (partition < 0) {
        return PyErr_Format(PyExc_ValueError, "partition %d is negative", partition);
    }
    if (!enter(self)) {
        return NULL;
    }
    Client *client = self->client;
    rd_kafka_queue_t *from =
        client->queue == NULL ? NULL : kafka.queue_get_partition(client->rk, topic, partition);
    if (from != NULL) {
        kafka.queue_forward(from, client->queue);
        kafka.queue_destroy(from);
    }
    end_call(client);
    if (from == NULL) {
        PyErr_Format(PyExc_RuntimeError, "partition %s-%d has no queue", topic, partition);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *bytes_or_none(const void *bytes, size_t length) {
    if (bytes == NULL) {
        return Py_NewRef(Py_None);
    }
    return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
}

static PyObject *headers_of(const rd_kafka_message_t *message) {
    rd_kafka_headers_t *headers;
    if (kafka.message_headers(message, &headers) != ERROR_NONE) {
        return PyTuple_New(0);
    }
    const char *name;
    const void *value;
    size_t size, count = 0;
    while (kafka.header_get_all(headers, count, &name, &value, &size) == ERROR_NONE) {
        count++;
    }
    PyObject *pairs = PyTuple_New((Py_ssize_t)count);
    for (size_t index = 0; pairs != NULL && index < count; index++) {
        kafka.header_get_all(headers, index, &name, &value, &size);
        /* As in Java, invalid UTF-8 is replaced. */
        PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
        PyObject *bytes = text == NULL ? NULL : bytes_or_none(value, size);
        PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, text, bytes);
        Py_XDECREF(text);
        Py_XDECREF(bytes);
        if (pair == NULL || PyTuple_SetItem(pairs, (Py_ssize_t)index, pair) < 0) {
            Py_CLEAR(pairs);
        }
    }
    return pairs;
}

/* Returns a list with an object for each message; `made` returns NULL with an exception. */
static PyObject *column(rd_kafka_message_t **messages, Py_ssize_t count,
                        PyObject *(*make)(const rd_kafka_message_t *)) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t index = 0; list != NULL && index < count; index++) {
        PyObject *item = make(messages[index]);
        if (item == NULL || PyList_SetItem(list, index, item) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *key_of(const rd_kafka_message_t *message) {
    return bytes_or_none(message->key, message->key_len);
}

static PyObject *value_of(const rd_kafka_message_t *message) {
    return bytes_or_none(message->payload, message->len);
}

static PyObject *timestamp_of(const rd_kafka_message_t *message) {
    int kind;
    return PyLong_FromLongLong(kafka.message_timestamp(message, &kind));
}

static PyObject *offset_of(const rd_kafka_message_t *message) {
    return PyLong_FromLongLong(message->offset);
}

static int have_headers(rd_kafka_message_t **messages, Py_ssize_t count) {
    rd_kafka_headers_t *headers;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (kafka.message_headers(messages[index], &headers) == ERROR_NONE) {
            return 1;
        }
    }
    return 0;
}

/* Converts messages of one partition to a tuple in the order of the stub's `Run`. */
static PyObject *run_of(rd_kafka_message_t **messages, Py_ssize_t count) {
    const rd_kafka_message_t *first = messages[0], *last = messages[count - 1];
    /* Offsets ascend, so there are no gaps if their range is as long as the number of records. */
    int has_gaps = last->offset - first->offset + 1 != count;
    PyObject *(*const make[COLUMNS])(const rd_kafka_message_t *) = {
        key_of, value_of, timestamp_of, has_gaps ? offset_of : NULL,
        have_headers(messages, count) ? headers_of : NULL};
    PyObject *columns[COLUMNS] = {NULL}, *run = NULL;
    int failed = 0;
    for (int number = 0; !failed && number < COLUMNS; number++) {
        columns[number] = make[number] == NULL ? Py_NewRef(Py_None) : column(messages, count, make[number]);
        failed = columns[number] == NULL;
    }
    if (!failed) {
        run = Py_BuildValue("(siOOOLOOi)", kafka.topic_name(first->rkt), (int)first->partition, columns[0], columns[1],
                            columns[2], (long long)first->offset, columns[3], columns[4],
                            (int)kafka.message_leader_epoch(last));
    }
    for (int number = 0; number < COLUMNS; number++) {
        Py_XDECREF(columns[number]);
    }
    return run;
}

static PyObject *event_of(const rd_kafka_message_t *message) {
    const char *topic = message->rkt == NULL ? NULL : kafka.topic_name(message->rkt);
    const char *text = kafka.message_errstr(message);
    return Py_BuildValue("(iNziL)", message->err,
                         PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"), topic,
                         (int)message->partition, (long long)message->offset);
}

static int append(PyObject *list, PyObject *item) {
    int result = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return result;
}

/* Consecutive messages of one partition become one run. */
static int group_messages(rd_kafka_message_t **messages, Py_ssize_t count, PyObject *runs, PyObject *events) {
    Py_ssize_t begin = 0;
    while (begin < count) {
        const rd_kafka_message_t *first = messages[begin];
        Py_ssize_t end = begin + 1;
        int failed;
        if (first->err != ERROR_NONE) {
            failed = append(events, event_of(first));
        } else {
            while (end < count && messages[end]->rkt == first->rkt &&
                   messages[end]->partition == first->partition && messages[end]->err == ERROR_NONE) {
                end++;
            }
            failed = append(runs, run_of(messages + begin, end - begin));
        }
        if (failed) {
            return -1;
        }
        begin = end;
    }
    return 0;
}

static Py_ssize_t read_messages(Client *client, rd_kafka_message_t **messages, size_t max_messages, int timeout_ms) {
    collect_events(client);
    /* With a timeout, a larger maximum would wait for that many messages. */
    ssize_t count = kafka.consume_batch_queue(client->queue, timeout_ms, messages, 1);
    if (count == 1 && max_messages > 1) {
        ssize_t more = kafka.consume_batch_queue(client->queue, 0, messages + 1, max_messages - 1);
        count += more > 0 ? more : 0;
    }
    collect_events(NULL);
    return count;
}

/* Appends the client's own events during the read, with the partition CLIENT_PARTITION and no topic. */
static int take_events(Client *client, PyObject *events) {
    ClientEvent collected[MAX_EVENTS];
    pthread_mutex_lock(&client->lock);
    size_t count = client->event_count;
    memcpy(collected, client->events, count * sizeof(*collected));
    client->event_count = 0;
    pthread_mutex_unlock(&client->lock);
    int failed = 0;
    for (size_t index = 0; index < count; index++) {
        const char *reason = collected[index].reason == NULL ? "" : collected[index].reason;
        if (!failed) {
            failed = append(events, Py_BuildValue("(iNziL)", collected[index].error,
                                                  PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason),
                                                                       "replace"),
                                                  NULL, CLIENT_PARTITION, -1LL));
        }
        free(collected[index].reason);
    }
    return failed;
}

PyObject *read_columns(ClientObject *self, PyObject *arguments) {
    Py_ssize_t max_messages;
    int timeout_ms;
    if (!PyArg_ParseTuple(arguments, "ni", &max_messages, &timeout_ms)) {
        return NULL;
    }
    max_messages = max_messages < 1 ? 1 : max_messages > MAX_MESSAGES ? MAX_MESSAGES : max_messages;
    rd_kafka_message_t **messages = PyMem_Malloc((size_t)max_messages * sizeof(*messages));
    if (messages == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *runs = PyList_New(0), *events = runs == NULL ? NULL : PyList_New(0), *found = NULL;
    if (events != NULL && enter(self)) {
        Client *client = self->client;
        Py_ssize_t count = -1;
        if (client->queue != NULL) {
            Py_BEGIN_ALLOW_THREADS;
            count = read_messages(client, messages, (size_t)max_messages, timeout_ms);
            Py_END_ALLOW_THREADS;
        }
        if (count < 0) {
            PyErr_Format(PyExc_RuntimeError, "reading failed: %s", kafka.err2str(kafka.last_error()));
        } else if (group_messages(messages, count, runs, events) == 0 && take_events(client, events) == 0) {
            found = PyTuple_Pack(2, runs, events);
        }
        Py_BEGIN_ALLOW_THREADS;
        for (Py_ssize_t index = 0; index < count; index++) {
            kafka.message_destroy(messages[index]);
        }
        end_call(client);
        Py_END_ALLOW_THREADS;
    }
    PyMem_Free(messages);
    Py_XDECREF(runs);
    Py_XDECREF(events);
    return found;
}
