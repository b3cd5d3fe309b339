/* The entries of a record cache, as `state/caches/cache_entries.py` of Millstream has them.
 *
 * There are 100,000 of them in a cache of 10 MiB, in any order, so that what a change costs is how
 * many lines of memory it touches: what it writes lies in the first 64 bytes, and numbers are not
 * objects of their own, for a half of what it took with twelve objects. */

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

/* An entry whose value is what is stored for it; NULL with an exception. */
Entry *made_entry(PyObject *key_bytes, PyObject *stored, long long size, long long used_seq);

/* Let an entry be given up in its turn, by an object of the class `EvictionOrder`: 0, or -1 with an
 * exception. */
int queue_entry(PyObject *order, Entry *entry);

/* The same object as an entry; NULL with an exception if it is none. */
Entry *as_entry(PyObject *object);

/* The key of an entry, as a new reference; NULL with an exception if it was deleted. */
PyObject *key_of_entry(Entry *entry);

/* Let an attribute be another object, of which a reference is taken over; returns the old one, to be
 * dropped when all attributes are set. */
static inline PyObject *replace(PyObject **attribute, PyObject *object) {
    PyObject *old = *attribute;
    *attribute = object;
    return old;
}

/* Let an attribute be another object, which stays the caller's. */
static inline void set(PyObject **attribute, PyObject *object) { Py_XDECREF(replace(attribute, Py_NewRef(object))); }

/* Have the second line of the entry on its way. */
static inline void prefetch_rest(Entry *entry) { __builtin_prefetch(&entry->key_bytes); }

/* Have the objects on their way that a change of the entry touches. */
static inline void prefetch_objects(Entry *entry) {
    __builtin_prefetch(entry->value, 1);
    __builtin_prefetch(entry->key_bytes);
}

/* The `used_seq` of an entry that has left its cache. */
#define GONE (-1)

/* Give an entry another value, and what caused it; whether it had no change before. The caller owns
 * the entry and the objects. */
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
