/* A table of entries by key: a mapping for Python, with the internals of lookups for C. */

#ifndef MILLSTREAM_ENTRY_TABLE_H
#define MILLSTREAM_ENTRY_TABLE_H

#include "entries.h"

#include <string.h>

typedef struct {
    Py_hash_t hash;
    /* Owned; NULL in a free slot. */
    Entry *entry;
} Slot;

typedef struct {
    PyObject_HEAD
    /* `mask` + 1 slots, a power of two; NULL until an entry is added. */
    Slot *slots;
    size_t mask, count;
} EntryTable;

/* Adds an entry under its own key: 0, or -1 with an exception. */
int put_entry(EntryTable *table, PyObject *key, PyObject *entry);

/* Removes the entry of a key and passes its reference to the caller: 1, 0 if there is none, or -1
 * with an exception. */
int take_entry(EntryTable *table, PyObject *key, PyObject **taken);

/* Gets the entry of a key as a new reference: 1, 0 if there is none, or -1 with an exception. */
int find_entry(EntryTable *table, PyObject *key, Entry **found);

/* Casts an object to a table; NULL with an exception for other types. */
EntryTable *as_table(PyObject *object);

/* Returns whether an entry has a key. Runs no Python: compares bytes, even if a subclass overrides
 * `==`. */
static inline int has_key(Entry *entry, PyObject *key) {
    PyObject *own = entry->key_bytes;
    if (own == key) {
        return 1;
    }
    if (own == NULL || !PyBytes_Check(own) || PyBytes_Size(own) != PyBytes_Size(key)) {
        return 0;
    }
    return memcmp(PyBytes_AsString(own), PyBytes_AsString(key), (size_t)PyBytes_Size(key)) == 0;
}

/* Returns the slot of a key, or the free slot for it, which is valid until Python runs. The table
 * must have slots, and the key must be bytes. Runs no Python. */
static inline Slot *slot_of(EntryTable *table, PyObject *key, Py_hash_t hash) {
    size_t at = (size_t)hash & table->mask;
    while (table->slots[at].entry != NULL &&
           !(table->slots[at].hash == hash && has_key(table->slots[at].entry, key))) {
        at = (at + 1) & table->mask;
    }
    return &table->slots[at];
}

#endif
