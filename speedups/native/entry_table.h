/* Entries by their keys, for Python as a mapping and for C with all that looking up touches. */

#ifndef MILLSTREAM_ENTRY_TABLE_H
#define MILLSTREAM_ENTRY_TABLE_H

#include <string.h>

#include "entries.h"

typedef struct {
    Py_hash_t hash;
    /* NULL where the slot is free; else owned. */
    Entry *entry;
} Slot;

typedef struct {
    PyObject_HEAD
    /* One more than `mask`, a power of two; NULL while nothing was put. */
    Slot *slots;
    size_t mask, count;
} EntryTable;

/* Put an entry under its own key: 0, or -1 with an exception. */
int put_entry(EntryTable *table, PyObject *key, PyObject *entry);

/* Take the entry of a key out, as an owned reference: 1, 0 if there is none, or -1 with an exception. */
int take_entry(EntryTable *table, PyObject *key, PyObject **taken);

/* The entry of a key, as a new reference: 1, 0 if there is none, or -1 with an exception. */
int find_entry(EntryTable *table, PyObject *key, Entry **found);

/* The same object as a table; NULL with an exception if it is none. */
EntryTable *as_table(PyObject *object);

/* Whether an entry has a key. Runs no Python: bytes are compared, whatever a subclass makes of `==`. */
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

/* The slot of a key, or the free one where it belongs, until Python runs. The table must have slots;
 * keys are bytes. Runs no Python. */
static inline Slot *slot_of(EntryTable *table, PyObject *key, Py_hash_t hash) {
    size_t at = (size_t)hash & table->mask;
    while (table->slots[at].entry != NULL &&
           !(table->slots[at].hash == hash && has_key(table->slots[at].entry, key))) {
        at = (at + 1) & table->mask;
    }
    return &table->slots[at];
}

#endif
