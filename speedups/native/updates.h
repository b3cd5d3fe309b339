/* What the loops of aggregations share: the columns of records, and a cache while its entries are
 * changed, by the rules of Millstream's `RecordCache`. */

#ifndef MILLSTREAM_UPDATES_H
#define MILLSTREAM_UPDATES_H

#include "entry_table.h"

/* What a loop reads of each record. Lists are read at any index, others from front to end. */
typedef struct {
    PyObject *list, *iterator, *current;
    Py_ssize_t at;
} Column;

/* A cache while its entries are changed; it is an argument, the others are owned. `table` is `entries`. */
typedef struct {
    PyObject *cache, *entries, *dirty;
    EntryTable *table;
    long long seq;
    int is_open;
} Cache;

/* Which entries to change, and the columns of the records that change them; owned. */
typedef struct {
    PyObject *stored_keys, *indices;
    /* How many there are: a list that becomes shorter meanwhile ends the loop with an IndexError. */
    Py_ssize_t count;
    Column keys, values, timestamps, places, offsets, headers;
    PyObject *no_headers;
    /* One number for others to see, of the record that Python is called for. */
    Py_buffer at;
} Updates;

/* What a record has beside key and value; objects are owned. */
typedef struct {
    long long timestamp, offset;
    PyObject *place, *headers;
} Context;

/* What a column has at an index that is not before the last one; a new reference. */
PyObject *cell(Column *column, Py_ssize_t index);

/* Let C change the entries of a cache: whether it can. */
int open_cache(Cache *state, PyObject *cache);

/* What was done so far counts, also after a failure, whose exception must be taken away for this: 0, or
 * -1 with an exception. */
int close_cache(Cache *state);

/* Before Python works on the cache, and after: 0, or -1 with an exception. */
int tell_seq(Cache *state);
int ask_seq(Cache *state);

/* The same after Python that may have failed, whose exception stays: 0, or -1 with an exception. */
int ask_seq_after(Cache *state, int failed);

/* The arguments of Millstream's `Updates`: whether they are what they should be. */
int open_updates(Updates *updates, PyObject *given);
void close_updates(Updates *updates);

/* What a record has beside key and value: 0, or -1 with an exception and nothing owned. */
int context_of(Updates *updates, Py_ssize_t index, Context *context);

/* Give an entry of the cache another value, because of a record: 0, or -1 with an exception. */
int change_cached(Cache *cache, Entry *entry, PyObject *value, long long timestamp, Context *context);

/* Let the caller decide what an exception of the user's means: 0 if the record is left out. */
int tell_failure(Cache *cache, PyObject *failed, Py_ssize_t index);

/* Let others see which record Python is called for. */
static inline void show_index(Updates *updates, Py_ssize_t index) {
    long long number = index;
    memcpy(updates->at.buf, &number, sizeof(number));
}

static inline int is_none(PyObject *object) { return object == NULL || object == Py_None; }

#endif
