/* Shared code of the aggregation loops: the columns of records, and a cache while its entries
 * are changed, by the rules of Millstream's `RecordCache`. */

#ifndef MILLSTREAM_UPDATES_H
#define MILLSTREAM_UPDATES_H

#include "entry_table.h"

/* A column of the records of a loop. Lists are read at any index, other iterables in order. */
typedef struct {
    PyObject *list, *iterator, *current;
    Py_ssize_t at;
} Column;

/* A cache while its entries are changed. `cache` is an argument; the other objects are owned.
 * `table` is `entries`. */
typedef struct {
    PyObject *cache, *entries, *dirty;
    EntryTable *table;
    long long seq;
    int is_open;
} Cache;

/* The entries to change, and the columns of the records that change them; owned. */
typedef struct {
    PyObject *stored_keys, *indices;
    /* The number of changes. A list that becomes shorter meanwhile ends the loop with an
     * IndexError. */
    Py_ssize_t count;
    Column keys, values, timestamps, places, offsets, headers;
    PyObject *no_headers;
    /* The index of the record whose Python function is called, visible to other code. */
    Py_buffer at;
} Updates;

/* The data of a record except key and value; objects are owned. */
typedef struct {
    long long timestamp, offset;
    PyObject *place, *headers;
} Context;

/* Returns the item of a column at an index that is not before the previous one, as a new reference;
 * NULL with an exception. */
PyObject *cell(Column *column, Py_ssize_t index);

/* Prepares the cache's entries for changes from C; returns whether that succeeded. */
int open_cache(Cache *state, PyObject *cache);

/* Writes the sequence number to the cache and releases it, even after a failure, whose exception
 * must be saved before: 0, or -1 with an exception. */
int close_cache(Cache *state);

/* Writes the sequence number to the cache before Python uses it, and reads it afterwards: 0, or
 * -1 with an exception. */
int write_seq(Cache *state);
int read_seq(Cache *state);

/* Reads the sequence number after Python code that may have failed; keeps its exception: 0, or -1
 * with an exception. */
int read_seq_after(Cache *state, int failed);

/* Parses the arguments of Millstream's `AggregateUpdates`; returns whether they are valid. */
int open_updates(Updates *updates, PyObject *tuple);
void close_updates(Updates *updates);

/* Reads the data of a record except key and value: 0, or -1 with an exception and without owned
 * references. */
int context_of(Updates *updates, Py_ssize_t index, Context *context);

/* Sets the value of an entry of the cache that results from a record: 0, or -1 with an
 * exception. */
int change_cached(Cache *cache, Entry *entry, PyObject *value, long long timestamp, Context *context);

/* Passes the exception of a user's function to the callback `failed`: 0 if the record is skipped,
 * or -1 with an exception. */
int report_failure(Cache *cache, PyObject *failed, Py_ssize_t index);

/* Publishes the index of the record whose Python function is called. */
static inline void publish_index(Updates *updates, Py_ssize_t index) {
    long long number = index;
    memcpy(updates->at.buf, &number, sizeof(number));
}

static inline int is_none(PyObject *object) { return object == NULL || object == Py_None; }

#endif
