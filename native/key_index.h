/* The C interface of the class `KeyIndex`: the sessions or windows of each key. */

#ifndef MILLSTREAM_KEY_INDEX_H
#define MILLSTREAM_KEY_INDEX_H

#include "python.h"

typedef struct KeyIndex KeyIndex;

/* Casts an object to an index; NULL with an exception for other types. */
KeyIndex *as_key_index(PyObject *object);

/* Gets the stored keys of a key, ascending, as a new reference to the index's own list, which can
 * change whenever Python runs: 1, 0 if there are none, or -1 with an exception. */
int find_stored_keys(KeyIndex *self, PyObject *key, PyObject **list);

/* Returns the index of the first stored key with at least the given time. Runs no Python. */
Py_ssize_t index_at_time(KeyIndex *self, PyObject *list, long long time);

/* The size of a time in bytes. */
#define TIME_BYTES 8

/* Returns the time at the given number of bytes before the end of a stored key. */
long long time_before(PyObject *stored, Py_ssize_t bytes);

/* Returns the time of a stored key of the index. */
long long time_of(KeyIndex *self, PyObject *stored);

/* Add or remove a stored key: 0, or -1 with an exception. */
int add_stored_key(KeyIndex *self, PyObject *stored);
int remove_stored_key(KeyIndex *self, PyObject *stored);

#endif
