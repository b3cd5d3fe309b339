/* The state of one librdkafka client, shared by the client's threads, which report
 * acknowledgements, and by Python, which reads and writes records. */

#ifndef MILLSTREAM_CLIENT_H
#define MILLSTREAM_CLIENT_H

#include <pthread.h>

#include "librdkafka.h"

/* The maximum number of failures with details; further failures are only counted. */
#define MAX_FAILURES 64
/* The maximum number of events during one read; further events are dropped. */
#define MAX_EVENTS 16

typedef struct PartitionOffset {
    struct PartitionOffset *next;
    uint64_t hash;
    int32_t partition;
    int64_t offset;
    char topic[];
} PartitionOffset;

typedef struct {
    rd_kafka_resp_err_t error;
    int32_t partition;
    char *topic;
} Failure;

/* An event of the client itself, such as a failed connection. */
typedef struct {
    rd_kafka_resp_err_t error;
    char *reason;
} ClientEvent;

typedef struct Topic {
    struct Topic *next;
    rd_kafka_topic_t *handle;
    char name[];
} Topic;

/* Guarded by `lock`, which is never held while waiting for the GIL. */
typedef struct Client {
    struct Client *next;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int references;
    /* The number of calls from Python that are using `rk`; closing waits for them. */
    int calls;
    /* NULL once the client has ended. */
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    Topic *topics;
    /* The last acknowledged offset of each partition. */
    PartitionOffset **offsets;
    size_t buckets;
    size_t count;
    PartitionOffset *last;
    /* The number of failed records since the failures were last taken, and details of the first. */
    size_t failed;
    Failure failures[MAX_FAILURES];
    /* Events during this thread's current read. */
    size_t event_count;
    ClientEvent events[MAX_EVENTS];
} Client;

/* Returns the client that this thread created last, which the caller then owns; NULL if there is
 * none or it was already taken. */
Client *take_newest_client(void);

void release_client(Client *client);

/* Begins a call that uses the client, which cannot end before `end_call`. Returns 0 if the client
 * has already ended. */
int begin_call(Client *client);
void end_call(Client *client);

/* Collects the client's events on this thread, until a call with NULL, instead of forwarding them
 * to confluent-kafka, whose callbacks may only be called within its own calls. */
void collect_events(Client *client);

/* Releases the queue and the topics of the client; librdkafka's client must still exist. */
void free_handles(Client *client);

/* Sets whether acknowledgements are ignored on this thread; returns the previous setting. A caller
 * that sends records gets immediate rejections as return values instead. */
int ignore_acknowledgements(int ignored);

/* Resets acknowledged offsets and failures. */
void reset_deliveries(Client *client);

#endif
