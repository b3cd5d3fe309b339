/* Which sessions or windows of a key there are: the class `KeyIndex`, for C. */

#ifndef MILLSTREAM_KEY_INDEX_H
#define MILLSTREAM_KEY_INDEX_H

#include "python.h"

typedef struct KeyIndex KeyIndex;

/* The same object as an index; NULL with an exception if it is none. */
KeyIndex *as_key_index(PyObject *object);

/* The stored keys of a key, ascending, as a new reference to the index's own list, which can change
 * whenever Python runs: 1, 0 if there are none, or -1 with an exception. */
int stored_keys_of(KeyIndex *self, PyObject *key, PyObject **known);

/* Where the first of them is whose time is not before one. Runs no Python. */
Py_ssize_t place_at(KeyIndex *self, PyObject *known, long long time);

/* How many bytes a time has. */
#define TIME_BYTES 8

/* The time that begins so many bytes before the end of a stored key. */
long long time_before(PyObject *stored, Py_ssize_t bytes);

/* The time of a stored key that the index has. */
long long time_of(KeyIndex *self, PyObject *stored);

/* A stored key has come, or gone: 0, or -1 with an exception. */
int note_key(KeyIndex *self, PyObject *stored);
int unnote_key(KeyIndex *self, PyObject *stored);

#endif
