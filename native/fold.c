/* The loops of aggregations by key or window, which fold values into cached entries, by the rules
 * of Millstream's `RecordCache`. */

#include "updates.h"

#define BLOCK_SIZE 256

/* The stored keys of the next changes, their hashes, and their entries; owned. */
typedef struct {
    PyObject *keys[BLOCK_SIZE];
    Py_hash_t hashes[BLOCK_SIZE];
    Entry *found[BLOCK_SIZE];
    Py_ssize_t first, count;
} Block;

/* The user's functions, which are arguments. */
typedef struct {
    PyObject *initializer, *aggregator;
    /* Copies a value; None if values are immutable. */
    PyObject *own;
    PyObject *failed;
} Functions;

/* ---- entries */

/* Makes the cache load missing entries: 0, or -1 with an exception. */
static int load(Cache *state, PyObject *missing) {
    PyObject *keys = PyDict_Keys(missing), *loaded = NULL;
    if (keys != NULL && write_seq(state) == 0) {
        loaded = PyObject_CallMethod(state->cache, "load_many", "O", keys);
    }
    Py_XDECREF(keys);
    Py_XDECREF(loaded);
    return read_seq_after(state, loaded == NULL);
}

/* Returns the index of a change's record; -1 with an exception. */
static Py_ssize_t record_of(Updates *updates, Py_ssize_t position) {
    if (updates->indices == Py_None) {
        return position;
    }
    PyObject *object = list_item(updates->indices, position);
    Py_ssize_t index = object == NULL ? -1 : PyLong_AsSsize_t(object);
    Py_XDECREF(object);
    if (index < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "the index of a record must not be negative");
    }
    return index;
}

static void clear_block(Block *block) {
    for (Py_ssize_t index = 0; index < block->count; index++) {
        Py_CLEAR(block->found[index]);
        Py_CLEAR(block->keys[index]);
    }
    block->count = 0;
}

/* Takes the stored keys of the next changes: 0, or -1 with an exception. */
static int take_keys(Block *block, Updates *updates, Py_ssize_t first) {
    Py_ssize_t rest = updates->count - first;
    Py_ssize_t count = rest < BLOCK_SIZE ? rest : BLOCK_SIZE;
    block->first = first;
    for (block->count = 0; block->count < count; block->count++) {
        PyObject *key = list_item(updates->stored_keys, first + block->count);
        if (key == NULL || !PyBytes_Check(key)) {
            if (key != NULL) {
                PyErr_SetString(PyExc_TypeError, "stored keys must be bytes");
            }
            Py_XDECREF(key);
            return -1;
        }
        block->keys[block->count] = key;
    }
    return 0;
}

/* Prefetches the memory of the next lookups, as far as it is known: slots, then entries, then their
 * keys and values. Returns 0, or -1 with an exception. */
static int fetch_ahead(EntryTable *table, Block *block) {
    Py_hash_t *hashes = block->hashes;
    Py_ssize_t count = block->count;
    for (Py_ssize_t index = 0; index < count; index++) {
        hashes[index] = PyObject_Hash(block->keys[index]);
        if (hashes[index] == -1) {
            return -1;
        }
        if (table->slots != NULL) {
            __builtin_prefetch(&table->slots[(size_t)hashes[index] & table->mask]);
        }
    }
    /* No Python runs from here on, so the table does not change. */
    Entry *expected[BLOCK_SIZE];
    for (Py_ssize_t index = 0; table->slots != NULL && index < count; index++) {
        size_t at = (size_t)hashes[index] & table->mask;
        while (table->slots[at].entry != NULL && table->slots[at].hash != hashes[index]) {
            at = (at + 1) & table->mask;
        }
        expected[index] = table->slots[at].entry;
        if (expected[index] != NULL) {
            __builtin_prefetch(expected[index], 1);
            prefetch_rest(expected[index]);
        }
    }
    for (Py_ssize_t index = 0; table->slots != NULL && index < count; index++) {
        if (expected[index] != NULL) {
            prefetch_objects(expected[index]);
        }
    }
    return 0;
}

/* Looks up the entry of one of the next changes; returns whether it exists. */
static int find_in_block(Block *block, EntryTable *table, Py_ssize_t index) {
    if (table->slots != NULL) {
        Slot *slot = slot_of(table, block->keys[index], block->hashes[index]);
        block->found[index] = (Entry *)held((PyObject *)slot->entry);
    }
    return block->found[index] != NULL;
}

/* Looks up the entries of the next changes, and collects the missing keys: 0, or -1 with an
 * exception. */
static int look_up(Block *block, EntryTable *table, PyObject *missing) {
    for (Py_ssize_t index = 0; index < block->count; index++) {
        if (!find_in_block(block, table, index) && PyDict_SetItem(missing, block->keys[index], Py_None) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Gets the entries of the next changes, and makes the cache load the missing ones: 0, or -1 with an
 * exception.
 *
 * The entries are scattered in memory, and waiting for them one by one takes most of the time, so
 * they are looked up together. */
static int take_block(Block *block, Cache *cache, Updates *updates, Py_ssize_t first) {
    PyObject *missing = PyDict_New();
    int failed = missing == NULL || take_keys(block, updates, first) < 0 || fetch_ahead(cache->table, block) < 0 ||
                 look_up(block, cache->table, missing) < 0 || (PyDict_Size(missing) > 0 && load(cache, missing) < 0);
    for (Py_ssize_t index = 0; !failed && index < block->count; index++) {
        if (block->found[index] == NULL && !find_in_block(block, cache->table, index)) {
            PyErr_SetObject(PyExc_KeyError, block->keys[index]);
            failed = 1;
        }
    }
    Py_XDECREF(missing);
    return failed ? -1 : 0;
}

/* Returns the entry of a change, which the block owns until the next call. */
static Entry *changed_entry(Cache *cache, Updates *updates, Block *block, Py_ssize_t position) {
    if (position >= block->first + block->count) {
        clear_block(block);
        if (take_block(block, cache, updates, position) < 0) {
            return NULL;
        }
    }
    return block->found[position - block->first];
}

/* ---- changing an entry */

/* Sets the value of an entry that results from a record and the value before: 0, or -1 with an
 * exception. */
static int change(Cache *cache, Entry *entry, PyObject *before, PyObject *value, Updates *updates, Py_ssize_t index) {
    Context context;
    if (context_of(updates, index, &context) < 0) {
        return -1;
    }
    /* A deleted aggregate starts over, so its timestamp is no longer used. The entry may have another
     * value by now, because user code has run. */
    int moves = is_none(before) || is_none(value) || context.timestamp > entry->timestamp;
    long long timestamp = moves ? context.timestamp : entry->timestamp;
    int failed = change_cached(cache, entry, value, timestamp, &context);
    Py_DECREF(context.place);
    Py_DECREF(context.headers);
    return failed;
}

/* ---- counting */

/* Releases all resources after success or failure; returns whether there was an exception. */
static int close_all(Cache *cache, Updates *updates, Block *block, int failed) {
    Exception exception = take_exception();
    if (close_cache(cache) < 0) {
        exception = first_exception(exception);
        failed = 1;
    }
    clear_block(block);
    close_updates(updates);
    restore_exception(exception);
    return failed;
}

static int count_one(Cache *cache, Updates *updates, Block *block, Py_ssize_t position, PyObject *one) {
    Py_ssize_t index = record_of(updates, position);
    Entry *entry = index < 0 ? NULL : changed_entry(cache, updates, block, position);
    if (entry == NULL) {
        return -1;
    }
    PyObject *before = held(entry->value);
    PyObject *count = is_none(before) ? Py_NewRef(one) : PyNumber_Add(before, one);
    int failed = count == NULL ? -1 : change(cache, entry, before, count, updates, index);
    Py_XDECREF(before);
    Py_XDECREF(count);
    return failed;
}

PyObject *count_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *cache_argument, *updates_argument;
    if (!PyArg_ParseTuple(arguments, "OO!", &cache_argument, &PyTuple_Type, &updates_argument)) {
        return NULL;
    }
    Cache cache = {0};
    Updates updates = {0};
    Block block = {0};
    PyObject *one = PyLong_FromLong(1);
    int failed = one == NULL || !open_updates(&updates, updates_argument) || !open_cache(&cache, cache_argument);
    for (Py_ssize_t position = 0; !failed && position < updates.count; position++) {
        failed = count_one(&cache, &updates, &block, position, one) < 0;
    }
    failed = close_all(&cache, &updates, &block, failed);
    Py_XDECREF(one);
    return none_unless(failed);
}

/* ---- folding */

/* Calls the user's functions with the current value and a record; returns a new reference, or NULL
 * with an exception. */
static PyObject *folded(Functions *functions, PyObject *current, PyObject *key, PyObject *record) {
    PyObject *before =
        is_none(current) ? PyObject_CallObject(functions->initializer, NULL) : Py_NewRef(current);
    if (before == NULL) {
        return NULL;
    }
    PyObject *value = PyObject_CallFunctionObjArgs(functions->aggregator, key, record, before, NULL);
    Py_DECREF(before);
    /* Other code may hold the record's own value. */
    if (value != NULL && value == record && functions->own != Py_None) {
        Py_DECREF(value);
        value = PyObject_CallFunctionObjArgs(functions->own, record, NULL);
    }
    return value;
}

/* Folds one record: 0, 1 if the record is skipped, or -1 with an exception. */
static int fold_one(Cache *cache, Updates *updates, Functions *functions, Entry *entry, Py_ssize_t index) {
    PyObject *key = cell(&updates->keys, index);
    PyObject *record = key == NULL ? NULL : cell(&updates->values, index);
    int failed = -1;
    if (record != NULL) {
        PyObject *current = held(entry->value);
        publish_index(updates, index);
        PyObject *value = folded(functions, current, key, record);
        if (value == NULL) {
            failed = report_failure(cache, functions->failed, index) < 0 ? -1 : 1;
        } else {
            failed = change(cache, entry, current, value, updates, index);
        }
        Py_XDECREF(current);
        Py_XDECREF(value);
    }
    Py_XDECREF(key);
    Py_XDECREF(record);
    return failed;
}

PyObject *fold_entries(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *cache_argument, *updates_argument;
    Functions functions;
    if (!PyArg_ParseTuple(arguments, "OO!OOOO", &cache_argument, &PyTuple_Type, &updates_argument,
                          &functions.initializer, &functions.aggregator, &functions.own, &functions.failed)) {
        return NULL;
    }
    Cache cache = {0};
    Updates updates = {0};
    Block block = {0};
    int failed = !open_updates(&updates, updates_argument) || !open_cache(&cache, cache_argument);
    Py_ssize_t skipped = -1;
    for (Py_ssize_t position = 0; !failed && position < updates.count; position++) {
        /* As in Python, get the entries of skipped changes too, so that the same entries are loaded
         * together. */
        Entry *entry = changed_entry(&cache, &updates, &block, position);
        Py_ssize_t index = entry == NULL ? -1 : record_of(&updates, position);
        int done = index < 0           ? -1
                   : index == skipped ? 0
                                       : fold_one(&cache, &updates, &functions, entry, index);
        skipped = done > 0 ? index : skipped;
        failed = done < 0;
    }
    return none_unless(close_all(&cache, &updates, &block, failed));
}
