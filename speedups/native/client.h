/* What is known of one of librdkafka's clients, by whoever has to do with it: its threads, which
 * report acknowledgements, and Python, which reads and writes. */

#ifndef MILLSTREAM_CLIENT_H
#define MILLSTREAM_CLIENT_H

#include <pthread.h>

#include "librdkafka.h"

/* Failures that are kept with their place; what comes after them is only counted. */
#define MOST_FAILURES 64
/* Of what a client tells while it is read; what comes after them is left out. */
#define MOST_TOLD 16

typedef struct Place {
    struct Place *next;
    uint64_t hash;
    int32_t partition;
    int64_t offset;
    char topic[];
} Place;

typedef struct {
    rd_kafka_resp_err_t error;
    int32_t partition;
    char *topic;
} Failure;

/* What a client tells of itself, such as a connection that failed. */
typedef struct {
    rd_kafka_resp_err_t error;
    char *reason;
} Told;

typedef struct Topic {
    struct Topic *next;
    rd_kafka_topic_t *handle;
    char name[];
} Topic;

/* Guarded by `lock`, which nobody holds while waiting for Python's. */
typedef struct Client {
    struct Client *next;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int references;
    /* Calls from Python that are using `rk`, which its end waits for. */
    int calls;
    /* NULL once the client has come to its end. */
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    Topic *topics;
    /* The last acknowledged offset of each partition. */
    Place **places;
    size_t buckets;
    size_t count;
    Place *last;
    /* Records that failed since the failures were taken; the first of them with their place. */
    size_t failed;
    Failure failures[MOST_FAILURES];
    /* What was told while this thread's call was reading. */
    size_t told_count;
    Told told[MOST_TOLD];
} Client;

/* The client that this thread has made last, which is the caller's from then on; NULL if there is
 * none, or it was taken. */
Client *take_newest_client(void);

void release_client(Client *client);

/* Begin to use the client, which cannot end before `end_call`; 0 if it has ended. */
int begin_call(Client *client);
void end_call(Client *client);

/* From here on, until it is called with NULL, what the client tells on this thread is kept: it is not
 * told to confluent-kafka, whose callbacks may only come from within its own calls. */
void keep_told(Client *client);

/* Give back what was made of the client, while that is there. */
void free_handles(Client *client);

/* Whether rejections are ignored on this thread from now on, and were until now. The caller that hands
 * records over gets those that are rejected at once as a result. */
int ignore_acknowledgements(int ignored);

/* Forget acknowledged offsets and failures. */
void forget_deliveries(Client *client);

#endif
