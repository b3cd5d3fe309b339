/* Frees objects that refer to each other in long chains, with a bounded stack. */

#include "python.h"

/* The maximum depth of nested calls before objects are queued. */
#define MOST_NESTED 50

typedef struct {
    PyObject *object;
    void (*free_one)(PyObject *object);
} Waiting;

/* Each thread frees its own chains, because the GIL may be released within a chain. */
static _Thread_local int nested;
static _Thread_local Waiting *waiting;
static _Thread_local size_t count, room;

/* Queues an object for later; returns 0 if out of memory. */
static int waits(PyObject *object, void (*free_one)(PyObject *object)) {
    if (count == room) {
        size_t more = room == 0 ? 64 : room * 2;
        Waiting *larger = PyMem_Realloc(waiting, more * sizeof(*larger));
        if (larger == NULL) {
            return 0;
        }
        waiting = larger;
        room = more;
    }
    waiting[count++] = (Waiting){object, free_one};
    return 1;
}

void free_flat(PyObject *object, void (*free_one)(PyObject *object)) {
    if (nested >= MOST_NESTED && waits(object, free_one)) {
        return;
    }
    nested++;
    free_one(object);
    while (nested == 1 && count > 0) {
        Waiting next = waiting[--count];
        next.free_one(next.object);
    }
    if (--nested == 0 && room > 0) {
        PyMem_Free(waiting);
        waiting = NULL;
        room = 0;
    }
}
