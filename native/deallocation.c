/* Frees objects that refer to each other in long chains, with a bounded stack. */

#include "python.h"

/* The maximum depth of nested calls before objects are queued. */
#define MAX_NESTED 50

typedef struct {
    PyObject *object;
    void (*free_one)(PyObject *object);
} Queued;

/* Each thread frees its own chains, because the GIL may be released within a chain. */
static _Thread_local int nested;
static _Thread_local Queued *queue;
static _Thread_local size_t count, capacity;

/* Queues an object for later; returns 0 if out of memory. */
static int enqueue(PyObject *object, void (*free_one)(PyObject *object)) {
    if (count == capacity) {
        size_t larger_capacity = capacity == 0 ? 64 : capacity * 2;
        Queued *larger = PyMem_Realloc(queue, larger_capacity * sizeof(*larger));
        if (larger == NULL) {
            return 0;
        }
        queue = larger;
        capacity = larger_capacity;
    }
    queue[count++] = (Queued){object, free_one};
    return 1;
}

void free_flat(PyObject *object, void (*free_one)(PyObject *object)) {
    if (nested >= MAX_NESTED && enqueue(object, free_one)) {
        return;
    }
    nested++;
    free_one(object);
    while (nested == 1 && count > 0) {
        Queued next = queue[--count];
        next.free_one(next.object);
    }
    if (--nested == 0 && capacity > 0) {
        PyMem_Free(queue);
        queue = NULL;
        capacity = 0;
    }
}
