/* The module `_native`: its functions and the class `Client`. The stub `_native.pyi` documents
 * them. */

#include "python.h"

#include <stdlib.h>
#include <string.h>

static PyObject *client_type;

int enter(ClientObject *self) {
    if (self->client == NULL || !begin_call(self->client)) {
        PyErr_SetString(PyExc_RuntimeError, "the client is closed");
        return 0;
    }
    return 1;
}

/* Releases all resources. The owner comes last, because librdkafka's client may end with it. */
static void release_all(ClientObject *self) {
    Client *client = self->client;
    self->client = NULL;
    if (client != NULL) {
        /* This waits for threads of librdkafka, which may wait for the GIL. */
        Py_BEGIN_ALLOW_THREADS;
        int is_alive = begin_call(client);
        free_handles(client);
        if (is_alive) {
            end_call(client);
        }
        release_client(client);
        Py_END_ALLOW_THREADS;
    }
    Py_CLEAR(self->owner);
}

static PyObject *close_client(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (self->client != NULL) {
        pthread_mutex_lock(&self->client->lock);
        int calls = self->client->calls;
        pthread_mutex_unlock(&self->client->lock);
        if (calls > 0) {
            PyErr_SetString(PyExc_RuntimeError, "the client is in use by another thread");
            return NULL;
        }
    }
    release_all(self);
    Py_RETURN_NONE;
}

static PyObject *failed(ClientObject *self, void *unused) {
    (void)unused;
    if (self->client == NULL) {
        return PyLong_FromLong(0);
    }
    pthread_mutex_lock(&self->client->lock);
    size_t count = self->client->failed;
    pthread_mutex_unlock(&self->client->lock);
    return PyLong_FromSize_t(count);
}

static PyObject *take_failures(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (!enter(self)) {
        return NULL;
    }
    Client *client = self->client;
    Failure failures[MAX_FAILURES];
    pthread_mutex_lock(&client->lock);
    size_t count = client->failed;
    size_t kept = count < MAX_FAILURES ? count : MAX_FAILURES;
    memcpy(failures, client->failures, sizeof(failures));
    memset(client->failures, 0, sizeof(client->failures));
    client->failed = 0;
    pthread_mutex_unlock(&client->lock);
    end_call(client);
    PyObject *details = PyList_New(0);
    for (size_t index = 0; index < kept; index++) {
        Failure *failure = &failures[index];
        PyObject *item =
            details == NULL ? NULL : Py_BuildValue("(izi)", failure->error, failure->topic, (int)failure->partition);
        if (details != NULL && (item == NULL || PyList_Append(details, item) < 0)) {
            Py_CLEAR(details);
        }
        Py_XDECREF(item);
        free(failure->topic);
    }
    return details == NULL ? NULL : Py_BuildValue("(Nn)", details, (Py_ssize_t)(count - kept));
}

static void free_offsets(PartitionOffset *offsets) {
    for (PartitionOffset *slot = offsets, *next; slot != NULL; slot = next) {
        next = slot->next;
        free(slot);
    }
}

/* Copies the acknowledged offsets to a list: 0, or -1 if out of memory. The offsets are copied
 * because creating objects may run Python, which may reset them, and because threads of librdkafka
 * wait for the lock. */
static int copy_offsets(Client *client, PartitionOffset **copies) {
    int failed = 0;
    pthread_mutex_lock(&client->lock);
    for (size_t bucket = 0; bucket < client->buckets; bucket++) {
        for (PartitionOffset *slot = client->offsets[bucket]; !failed && slot != NULL; slot = slot->next) {
            size_t size = sizeof(*slot) + strlen(slot->topic) + 1;
            PartitionOffset *copy = malloc(size);
            failed = copy == NULL;
            if (!failed) {
                memcpy(copy, slot, size);
                copy->next = *copies;
                *copies = copy;
            }
        }
    }
    pthread_mutex_unlock(&client->lock);
    return failed ? -1 : 0;
}

static PyObject *acked_offsets(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (!enter(self)) {
        return NULL;
    }
    Client *client = self->client;
    PartitionOffset *copies = NULL;
    PyObject *offsets = copy_offsets(client, &copies) < 0 ? PyErr_NoMemory() : PyList_New(0);
    for (PartitionOffset *slot = copies; offsets != NULL && slot != NULL; slot = slot->next) {
        PyObject *item = Py_BuildValue("(siL)", slot->topic, (int)slot->partition, (long long)slot->offset);
        if (item == NULL || PyList_Append(offsets, item) < 0) {
            Py_CLEAR(offsets);
        }
        Py_XDECREF(item);
    }
    free_offsets(copies);
    end_call(client);
    return offsets;
}

static PyObject *reset_deliveries_method(ClientObject *self, PyObject *unused) {
    (void)unused;
    if (!enter(self)) {
        return NULL;
    }
    reset_deliveries(self->client);
    end_call(self->client);
    Py_RETURN_NONE;
}

/* Py_VISIT requires the name `arg`. */
static int traverse(ClientObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->owner);
    return 0;
}

static int clear(ClientObject *self) {
    release_all(self);
    return 0;
}

static void deallocate(ClientObject *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    release_all(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef client_methods[] = {
    {"close", (PyCFunction)close_client, METH_NOARGS, NULL},
    {"open_queue", (PyCFunction)open_queue, METH_NOARGS, NULL},
    {"forward", (PyCFunction)forward, METH_VARARGS, NULL},
    {"read_columns", (PyCFunction)read_columns, METH_VARARGS, NULL},
    {"produce_columns", (PyCFunction)produce_columns, METH_VARARGS, NULL},
    {"take_failures", (PyCFunction)take_failures, METH_NOARGS, NULL},
    {"acked_offsets", (PyCFunction)acked_offsets, METH_NOARGS, NULL},
    {"reset_deliveries", (PyCFunction)reset_deliveries_method, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef client_attributes[] = {
    {"failed", (getter)failed, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot client_slots[] = {
    {Py_tp_dealloc, deallocate},       {Py_tp_traverse, traverse},       {Py_tp_clear, clear},
    {Py_tp_methods, client_methods}, {Py_tp_getset, client_attributes}, {0, NULL},
};

static PyType_Spec client_spec = {
    .name = "millstream.native._native.Client",
    .basicsize = sizeof(ClientObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = client_slots,
};

static PyObject *load(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *library;
    char reason[1024];
    if (!PyArg_ParseTuple(arguments, "s", &library)) {
        return NULL;
    }
    if (find_librdkafka(library, reason, sizeof(reason))) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason), "replace");
}

static PyObject *attach(PyObject *module, PyObject *owner) {
    (void)module;
    Client *client = take_newest_client();
    if (client == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has not created a client with the plugin");
        return NULL;
    }
    ClientObject *self = PyObject_GC_New(ClientObject, (PyTypeObject *)client_type);
    if (self == NULL) {
        release_client(client);
        return NULL;
    }
    self->client = client;
    self->owner = Py_NewRef(owner);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, NULL},
    {"attach", attach, METH_O, NULL},
    {"murmur3_128", murmur3_128, METH_O, NULL},
    {"with_times", with_times, METH_VARARGS, NULL},
    {"new_entries", new_entries, METH_VARARGS, NULL},
    {"remove_entries", remove_entries, METH_VARARGS, NULL},
    {"sorted_by_change", sorted_by_change, METH_O, NULL},
    {"columns_of", columns_of, METH_O, NULL},
    {"mark_flushed", mark_flushed, METH_VARARGS, NULL},
    {"count_entries", count_entries, METH_VARARGS, NULL},
    {"fold_entries", fold_entries, METH_VARARGS, NULL},
    {"fold_sessions", fold_sessions, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    client_type = PyType_FromSpec(&client_spec);
    if (client_type == NULL || PyModule_AddObjectRef(module, "Client", client_type) < 0 ||
        PyModule_AddStringConstant(module, "VERSION", MILLSTREAM_VERSION) < 0 || add_entries(module) < 0 ||
        add_entry_table(module) < 0 || add_eviction_order(module) < 0 || add_key_index(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
