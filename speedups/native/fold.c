/* The loops of aggregations by key or window: values folded into cached entries, by the rules of
 * Millstream's `RecordCache`. */

#include "updates.h"

#define AT_ONCE 256

/* Entries of changes that come next; owned. */
typedef struct {
    Entry *found[AT_ONCE];
    Py_ssize_t first, count;
} Block;

/* The user's functions. */
typedef struct {
    PyObject *initializer, *aggregator;
    /* Makes another object of a value; None where values cannot be changed. */
    PyObject *own;
    PyObject *failed;
} Functions;

/* ---- entries */

/* Have the cache load entries that it does not have; -1 with an exception. */
static int load(Cache *state, PyObject *missing) {
    PyObject *keys = PyDict_Keys(missing), *loaded = NULL;
    if (keys != NULL && tell_seq(state) == 0) {
        loaded = PyObject_CallMethod(state->cache, "load_many", "O", keys);
    }
    Py_XDECREF(keys);
    Py_XDECREF(loaded);
    return loaded == NULL ? -1 : ask_seq(state);
}

/* Which record a change belongs to; -1 with an exception. */
static Py_ssize_t record_of(Updates *updates, Py_ssize_t position) {
    if (updates->indices == Py_None) {
        return position;
    }
    PyObject *object = PyList_GetItem(updates->indices, position);
    Py_ssize_t index = object == NULL ? -1 : PyLong_AsSsize_t(object);
    if (index < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "the index of a record is negative");
    }
    return index;
}

static void forget_block(Block *block) {
    for (Py_ssize_t index = 0; index < block->count; index++) {
        Py_CLEAR(block->found[index]);
    }
    block->count = 0;
}

/* Have all that the next look-ups touch on its way at once, as far as it is known by then: slots,
 * then entries, then their keys and values. -1 with an exception. */
static int fetch_ahead(EntryTable *table, PyObject **stored_keys, Py_hash_t *hashes, Py_ssize_t count) {
    for (Py_ssize_t index = 0; index < count; index++) {
        hashes[index] = PyObject_Hash(stored_keys[index]);
        if (hashes[index] == -1) {
            return -1;
        }
        if (table->slots != NULL) {
            __builtin_prefetch(&table->slots[(size_t)hashes[index] & table->mask]);
        }
    }
    Entry *likely[AT_ONCE];
    for (Py_ssize_t index = 0; table->slots != NULL && index < count; index++) {
        size_t at = (size_t)hashes[index] & table->mask;
        while (table->slots[at].entry != NULL && table->slots[at].hash != hashes[index]) {
            at = (at + 1) & table->mask;
        }
        likely[index] = table->slots[at].entry;
        if (likely[index] != NULL) {
            __builtin_prefetch(likely[index], 1);
            __builtin_prefetch(&likely[index]->key_bytes);
        }
    }
    for (Py_ssize_t index = 0; table->slots != NULL && index < count; index++) {
        if (likely[index] != NULL) {
            __builtin_prefetch(likely[index]->value, 1);
            __builtin_prefetch(likely[index]->key_bytes);
        }
    }
    return 0;
}

/* Look the entries of the next changes up, and note whose the cache does not have. */
static int look_up(Block *block, EntryTable *table, PyObject **stored_keys, Py_hash_t *hashes, Py_ssize_t count,
                   PyObject *missing) {
    for (block->count = 0; block->count < count; block->count++) {
        PyObject *key = stored_keys[block->count];
        Entry *entry = table->slots == NULL ? NULL : slot_of(table, key, hashes[block->count])->entry;
        block->found[block->count] = (Entry *)Py_XNewRef((PyObject *)entry);
        if (entry == NULL && PyDict_SetItem(missing, key, Py_None) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Take the entries of the next changes; the cache loads those that it does not have.
 *
 * They lie anywhere in memory, and waiting for one after the other takes most of the time: so they
 * are looked up together. */
static int take_block(Block *block, Cache *cache, Updates *updates, Py_ssize_t first) {
    PyObject *stored_keys[AT_ONCE];
    Py_hash_t hashes[AT_ONCE];
    Py_ssize_t rest = PyList_Size(updates->stored_keys) - first;
    Py_ssize_t count = rest < AT_ONCE ? rest : AT_ONCE;
    block->first = first;
    for (Py_ssize_t index = 0; index < count; index++) {
        stored_keys[index] = PyList_GetItem(updates->stored_keys, first + index);
        if (stored_keys[index] == NULL || !PyBytes_Check(stored_keys[index])) {
            PyErr_SetString(PyExc_TypeError, "stored keys are bytes");
            return -1;
        }
    }
    PyObject *missing = PyDict_New();
    int failed = missing == NULL || fetch_ahead(cache->table, stored_keys, hashes, count) < 0 ||
                 look_up(block, cache->table, stored_keys, hashes, count, missing) < 0 ||
                 (PyDict_Size(missing) > 0 && load(cache, missing) < 0);
    for (Py_ssize_t index = 0; !failed && index < count; index++) {
        if (block->found[index] == NULL) {
            Entry *entry = cache->table->slots == NULL
                               ? NULL
                               : slot_of(cache->table, stored_keys[index], hashes[index])->entry;
            block->found[index] = (Entry *)Py_XNewRef((PyObject *)entry);
            if (entry == NULL) {
                PyErr_SetObject(PyExc_KeyError, stored_keys[index]);
                failed = 1;
            }
        }
    }
    Py_XDECREF(missing);
    return failed ? -1 : 0;
}

/* The entry that a change is for, borrowed from the block. */
static Entry *changed_entry(Cache *cache, Updates *updates, Block *block, Py_ssize_t position) {
    if (position >= block->first + block->count) {
        forget_block(block);
        if (take_block(block, cache, updates, position) < 0) {
            return NULL;
        }
    }
    return block->found[position - block->first];
}

/* ---- changing an entry */

/* Give an entry the value that a record has led to: 0, or -1 with an exception. */
static int change(Cache *cache, Entry *entry, PyObject *value, Updates *updates, Py_ssize_t index) {
    Context context;
    if (context_of(updates, index, &context) < 0) {
        return -1;
    }
    /* A deleted aggregate starts over: its time does not count any more. */
    int moves = is_none(entry->value) || is_none(value) || context.timestamp > entry->timestamp;
    long long timestamp = moves ? context.timestamp : entry->timestamp;
    int failed = change_cached(cache, entry, value, timestamp, &context);
    Py_DECREF(context.place);
    Py_DECREF(context.headers);
    return failed;
}

/* ---- counting */

static int count_one(Cache *cache, Updates *updates, Block *block, Py_ssize_t position, PyObject *one) {
    Py_ssize_t index = record_of(updates, position);
    Entry *entry = index < 0 ? NULL : changed_entry(cache, updates, block, position);
    if (entry == NULL) {
        return -1;
    }
    PyObject *count = is_none(entry->value) ? Py_NewRef(one) : PyNumber_Add(entry->value, one);
    int failed = count == NULL ? -1 : change(cache, entry, count, updates, index);
    Py_XDECREF(count);
    return failed;
}

PyObject *count_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *given_cache, *given_updates;
    if (!PyArg_ParseTuple(arguments, "OO!", &given_cache, &PyTuple_Type, &given_updates)) {
        return NULL;
    }
    Cache cache = {0};
    Updates updates = {0};
    Block block = {0};
    PyObject *one = PyLong_FromLong(1);
    int failed = one == NULL || !open_updates(&updates, given_updates) || !open_cache(&cache, given_cache);
    for (Py_ssize_t position = 0; !failed && position < PyList_Size(updates.stored_keys); position++) {
        failed = count_one(&cache, &updates, &block, position, one) < 0;
    }
    forget_block(&block);
    close_cache(&cache);
    close_updates(&updates);
    Py_XDECREF(one);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- folding */

/* What the user's functions make of the value so far and a record; a new reference. */
static PyObject *folded(Functions *functions, PyObject *so_far, PyObject *key, PyObject *record) {
    PyObject *before =
        is_none(so_far) ? PyObject_CallObject(functions->initializer, NULL) : Py_NewRef(so_far);
    if (before == NULL) {
        return NULL;
    }
    PyObject *value = PyObject_CallFunctionObjArgs(functions->aggregator, key, record, before, NULL);
    Py_DECREF(before);
    /* A record's own value may be on its way elsewhere. */
    if (value != NULL && value == record && functions->own != Py_None) {
        give(&value, PyObject_CallFunctionObjArgs(functions->own, record, NULL));
    }
    return value;
}

/* 1 if the record is to be left out from here on, -1 with an exception. */
static int fold_one(Cache *cache, Updates *updates, Block *block, Functions *functions, Py_ssize_t position,
                    Py_ssize_t index) {
    Entry *entry = changed_entry(cache, updates, block, position);
    PyObject *key = entry == NULL ? NULL : cell(&updates->keys, index);
    PyObject *record = key == NULL ? NULL : cell(&updates->values, index);
    int failed = -1;
    if (record != NULL) {
        PyObject *so_far = Py_XNewRef(entry->value);
        *(long long *)updates->at.buf = index;
        PyObject *value = folded(functions, so_far, key, record);
        if (value == NULL) {
            failed = tell_failure(cache, functions->failed, index) < 0 ? -1 : 1;
        } else {
            failed = change(cache, entry, value, updates, index);
        }
        Py_XDECREF(so_far);
        Py_XDECREF(value);
    }
    Py_XDECREF(key);
    Py_XDECREF(record);
    return failed;
}

PyObject *fold_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *given_cache, *given_updates;
    Functions functions;
    if (!PyArg_ParseTuple(arguments, "OO!OOOO", &given_cache, &PyTuple_Type, &given_updates, &functions.initializer,
                          &functions.aggregator, &functions.own, &functions.failed)) {
        return NULL;
    }
    Cache cache = {0};
    Updates updates = {0};
    Block block = {0};
    int failed = !open_updates(&updates, given_updates) || !open_cache(&cache, given_cache);
    Py_ssize_t left_out = -1;
    for (Py_ssize_t position = 0; !failed && position < PyList_Size(updates.stored_keys); position++) {
        Py_ssize_t index = record_of(&updates, position);
        int done = index < 0           ? -1
                   : index == left_out ? 0
                                       : fold_one(&cache, &updates, &block, &functions, position, index);
        left_out = done > 0 ? index : left_out;
        failed = done < 0;
    }
    forget_block(&block);
    close_cache(&cache);
    close_updates(&updates);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
