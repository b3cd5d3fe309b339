/* The entries of a record cache, equivalent to those of `state/caches/cache_entries.py`.
 *
 * A cache of 10 MiB has 100,000 entries, which are scattered in memory, so the cost of a change is
 * the number of cache lines that it touches. Therefore, the fields that a change writes are in the
 * first 64 bytes, and numbers are not separate objects: twelve objects take twice the time. */

#ifndef MILLSTREAM_ENTRIES_H
#define MILLSTREAM_ENTRIES_H

#include "python.h"

typedef struct {
    PyObject_HEAD
    PyObject *value;
    long long timestamp, dirty_seq;
    PyObject *place;
    long long offset;
    PyObject *headers;
    /* Not touched by changes. */
    PyObject *key_bytes, *stored, *raw;
    long long used_seq, queued_seq, size;
} Entry;

/* Creates an entry with the stored value; NULL with an exception. */
Entry *made_entry(PyObject *key_bytes, PyObject *stored, long long size, long long used_seq);

/* Adds an entry to an `EvictionOrder`: 0, or -1 with an exception. */
int queue_entry(PyObject *order, Entry *entry);

/* Casts an object to an entry; NULL with an exception for other types. */
Entry *as_entry(PyObject *object);

/* Returns the key of an entry as a new reference; NULL with an exception if it was deleted. */
PyObject *key_of_entry(Entry *entry);

/* Sets an attribute and takes over the reference; returns the old object, which must be released
 * after all attributes are set. */
static inline PyObject *replace(PyObject **attribute, PyObject *object) {
    PyObject *old = *attribute;
    *attribute = object;
    return old;
}

/* Sets an attribute to an object; the caller keeps its own reference. */
static inline void set(PyObject **attribute, PyObject *object) { Py_XDECREF(replace(attribute, Py_NewRef(object))); }

/* Prefetches the second cache line of the entry. */
static inline void prefetch_rest(Entry *entry) { __builtin_prefetch(&entry->key_bytes); }

/* Prefetches the objects that a change of the entry touches. */
static inline void prefetch_objects(Entry *entry) {
    __builtin_prefetch(entry->value, 1);
    __builtin_prefetch(entry->key_bytes);
}

/* The `used_seq` of an entry that was removed from its cache. */
#define REMOVED (-1)

/* Sets a new value of an entry, with the context of the record; returns whether the entry was
 * unchanged before. The caller owns the entry and the objects. */
static inline int change_entry(Entry *entry, PyObject *value, long long timestamp, long long seq, PyObject *place,
                               long long offset, PyObject *headers) {
    int was_clean = entry->dirty_seq == 0;
    entry->timestamp = timestamp;
    entry->dirty_seq = seq;
    entry->offset = offset;
    PyObject *old_value = replace(&entry->value, Py_NewRef(value));
    PyObject *old_place = replace(&entry->place, Py_NewRef(place));
    PyObject *old_headers = replace(&entry->headers, Py_NewRef(headers));
    Py_XDECREF(old_value);
    Py_XDECREF(old_place);
    Py_XDECREF(old_headers);
    return was_clean;
}

#endif
