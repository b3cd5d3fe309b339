#include "client.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- librdkafka's functions */

Librdkafka kafka;

static int has_plugins(char *reason, size_t size) {
    char features[1024];
    size_t length = sizeof(features);
    rd_kafka_conf_t *conf = kafka.conf_new();
    int found = kafka.conf_get(conf, "builtin.features", features, &length) == CONF_OK;
    kafka.conf_destroy(conf);
    if (!found || strstr(features, "plugins") == NULL) {
        snprintf(reason, size, "this librdkafka is built without plugins");
        return 0;
    }
    return 1;
}

int find_librdkafka(const char *library, char *reason, size_t size) {
    /* The library is already loaded, so this only finds it; it stays loaded until the process
     * ends. */
    void *handle = dlopen(library, RTLD_NOW);
    if (handle == NULL) {
        snprintf(reason, size, "%s cannot be loaded: %s", library, dlerror());
        return 0;
    }
    /* dlsym also searches the dependencies of the library, but nothing else. POSIX requires that an
     * object pointer can hold the address of a function; C has no cast for this. */
#define FOUND(result, name, arguments)                                                             \
    *(void **)(&kafka.name) = dlsym(handle, "rd_kafka_" #name);                                    \
    if (kafka.name == NULL) {                                                                      \
        snprintf(reason, size, "confluent-kafka's librdkafka does not export rd_kafka_" #name);      \
        return 0;                                                                                  \
    }
    LIBRDKAFKA_FUNCTIONS(FOUND)
#undef FOUND
    return has_plugins(reason, size);
}

/* ---- clients */

#define NAME "millstream"
#define FIRST_BUCKETS 64

/* The Python objects of confluent-kafka do not expose their client, but librdkafka passes it to a
 * plugin, on the thread that creates the client. */
static _Thread_local Client *newest;
static _Thread_local int is_ignored;

/* The client from which this thread is reading, which collects errors. */
static _Thread_local Client *reading;
/* confluent-kafka's error callback, which is the same for all of its clients. */
static error_function *original_callback;

int ignore_acknowledgements(int ignored) {
    int before = is_ignored;
    is_ignored = ignored;
    return before;
}

void collect_events(Client *client) { reading = client; }

Client *take_newest_client(void) {
    Client *client = newest;
    newest = NULL;
    return client;
}

/* Closed clients. Their memory is kept for reuse, because librdkafka's threads may report lost
 * records of a client even after `on_destroy`. */
static Client *unused;
static pthread_mutex_t unused_lock = PTHREAD_MUTEX_INITIALIZER;

static Client *allocated(void) {
    Client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return NULL;
    }
    client->offsets = calloc(FIRST_BUCKETS, sizeof(*client->offsets));
    if (client->offsets == NULL) {
        free(client);
        return NULL;
    }
    client->buckets = FIRST_BUCKETS;
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->idle, NULL);
    return client;
}

static Client *new_client(rd_kafka_t *rk) {
    pthread_mutex_lock(&unused_lock);
    Client *client = unused;
    if (client != NULL) {
        unused = client->next;
    }
    pthread_mutex_unlock(&unused_lock);
    client = client == NULL ? allocated() : client;
    if (client != NULL) {
        pthread_mutex_lock(&client->lock);
        client->rk = rk;
        client->references = 1;
        pthread_mutex_unlock(&client->lock);
    }
    return client;
}

/* Replaces confluent-kafka's error callback. Most errors occur during calls of confluent-kafka, and
 * are forwarded to it. */
static void on_error(rd_kafka_t *rk, int error, const char *reason, void *opaque) {
    Client *client = reading;
    if (client == NULL) {
        original_callback(rk, error, reason, opaque);
        return;
    }
    pthread_mutex_lock(&client->lock);
    if (client->event_count < MAX_EVENTS) {
        client->events[client->event_count].error = error;
        client->events[client->event_count].reason = strdup(reason == NULL ? "" : reason);
        client->event_count++;
    }
    pthread_mutex_unlock(&client->lock);
}

/* Errors of topics are queued with the records of their partitions, and reported by the reader. */
static void replace_error_callback(const rd_kafka_conf_t *conf) {
    char text[64];
    size_t size = sizeof(text);
    void *function = NULL;
    if (kafka.conf_get(conf, "error_cb", text, &size) != CONF_OK || sscanf(text, "%p", &function) != 1 ||
        function == NULL) {
        return;
    }
    error_function *callback;
    memcpy(&callback, &function, sizeof(callback));
    if (callback != on_error) {
        original_callback = callback;
        /* This is the client's own copy of the configuration, which no thread reads yet. */
        kafka.conf_set_error_cb((rd_kafka_conf_t *)conf, on_error);
    }
}

static void drop_events(Client *client) {
    for (size_t index = 0; index < client->event_count; index++) {
        free(client->events[index].reason);
    }
    client->event_count = 0;
}

static void reset_locked(Client *client) {
    drop_events(client);
    for (size_t bucket = 0; bucket < client->buckets; bucket++) {
        for (PartitionOffset *slot = client->offsets[bucket], *next; slot != NULL; slot = next) {
            next = slot->next;
            free(slot);
        }
        client->offsets[bucket] = NULL;
    }
    client->count = 0;
    client->last = NULL;
    for (size_t index = 0; index < MAX_FAILURES; index++) {
        free(client->failures[index].topic);
        client->failures[index].topic = NULL;
    }
    client->failed = 0;
}

void reset_deliveries(Client *client) {
    pthread_mutex_lock(&client->lock);
    reset_locked(client);
    pthread_mutex_unlock(&client->lock);
}

void release_client(Client *client) {
    pthread_mutex_lock(&client->lock);
    int is_unused = --client->references == 0;
    if (is_unused) {
        client->rk = NULL;
        reset_locked(client);
    }
    pthread_mutex_unlock(&client->lock);
    if (is_unused) {
        pthread_mutex_lock(&unused_lock);
        client->next = unused;
        unused = client;
        pthread_mutex_unlock(&unused_lock);
    }
}

int begin_call(Client *client) {
    pthread_mutex_lock(&client->lock);
    int is_alive = client->rk != NULL;
    client->calls += is_alive;
    pthread_mutex_unlock(&client->lock);
    return is_alive;
}

void end_call(Client *client) {
    pthread_mutex_lock(&client->lock);
    if (--client->calls == 0) {
        pthread_cond_broadcast(&client->idle);
    }
    pthread_mutex_unlock(&client->lock);
}

void free_handles(Client *client) {
    pthread_mutex_lock(&client->lock);
    rd_kafka_queue_t *queue = client->queue;
    Topic *topic = client->topics;
    client->queue = NULL;
    client->topics = NULL;
    pthread_mutex_unlock(&client->lock);
    if (queue != NULL) {
        kafka.queue_destroy(queue);
    }
    while (topic != NULL) {
        Topic *next = topic->next;
        kafka.topic_destroy(topic->handle);
        free(topic);
        topic = next;
    }
}

/* Called on a thread of librdkafka, while the closing thread waits without the GIL. Queues and
 * topics must be released before the client ends. */
static rd_kafka_resp_err_t on_destroy(rd_kafka_t *rk, void *opaque) {
    Client *client = opaque;
    (void)rk;
    pthread_mutex_lock(&client->lock);
    client->rk = NULL;
    while (client->calls > 0) {
        pthread_cond_wait(&client->idle, &client->lock);
    }
    pthread_mutex_unlock(&client->lock);
    free_handles(client);
    release_client(client);
    return ERROR_NONE;
}

static uint64_t hash_of(const char *topic, int32_t partition) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *at = topic; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    }
    return (hash ^ (uint32_t)partition) * 1099511628211u;
}

static int is_for(const PartitionOffset *slot, const char *topic, int32_t partition) {
    return slot->partition == partition && strcmp(slot->topic, topic) == 0;
}

/* Doubles the number of buckets, if memory allows. */
static void add_buckets(Client *client) {
    size_t buckets = client->buckets * 2;
    PartitionOffset **offsets = calloc(buckets, sizeof(*offsets));
    if (offsets == NULL) {
        return;
    }
    for (size_t bucket = 0; bucket < client->buckets; bucket++) {
        for (PartitionOffset *slot = client->offsets[bucket], *next; slot != NULL; slot = next) {
            next = slot->next;
            PartitionOffset **first = &offsets[slot->hash & (buckets - 1)];
            slot->next = *first;
            *first = slot;
        }
    }
    free(client->offsets);
    client->offsets = offsets;
    client->buckets = buckets;
}

/* Returns the slot for a partition's offset; NULL if out of memory. */
static PartitionOffset *slot_of(Client *client, const char *topic, int32_t partition) {
    /* Reports arrive in batches, each of one partition. */
    if (client->last != NULL && is_for(client->last, topic, partition)) {
        return client->last;
    }
    uint64_t hash = hash_of(topic, partition);
    PartitionOffset *slot = client->offsets[hash & (client->buckets - 1)];
    while (slot != NULL && !(slot->hash == hash && is_for(slot, topic, partition))) {
        slot = slot->next;
    }
    if (slot == NULL) {
        size_t length = strlen(topic) + 1;
        slot = malloc(sizeof(*slot) + length);
        if (slot == NULL) {
            return NULL;
        }
        if (client->count++ >= client->buckets) {
            add_buckets(client);
        }
        memcpy(slot->topic, topic, length);
        slot->hash = hash;
        slot->partition = partition;
        slot->next = client->offsets[hash & (client->buckets - 1)];
        client->offsets[hash & (client->buckets - 1)] = slot;
    }
    client->last = slot;
    return slot;
}

static void note_failure(Client *client, const rd_kafka_message_t *message) {
    if (message->err == ERROR_PURGE_QUEUE || message->err == ERROR_PURGE_INFLIGHT) {
        /* Deliberately dropped. */
        return;
    }
    if (client->failed < MAX_FAILURES) {
        Failure *failure = &client->failures[client->failed];
        failure->error = message->err;
        failure->partition = message->partition;
        failure->topic = strdup(kafka.topic_name(message->rkt));
    }
    client->failed++;
}

/* Called for each record that was acknowledged or has failed, on a thread of librdkafka, in the
 * order of each partition. */
static rd_kafka_resp_err_t on_acknowledgement(rd_kafka_t *rk, rd_kafka_message_t *message, void *opaque) {
    Client *client = opaque;
    /* Records of confluent-kafka's own `produce` are reported to its callback. */
    if (is_ignored || message->_private != NULL || message->rkt == NULL) {
        return ERROR_NONE;
    }
    pthread_mutex_lock(&client->lock);
    if (client->rk != rk) {
        /* The client has ended, and its memory may already belong to another client. */
    } else if (message->err != ERROR_NONE) {
        note_failure(client, message);
    } else if (message->offset >= 0) {
        /* The offset is negative after a lost response: the record exists, but only an earlier
         * offset is certain. */
        PartitionOffset *slot = slot_of(client, kafka.topic_name(message->rkt), message->partition);
        if (slot != NULL) {
            slot->offset = message->offset;
        }
    }
    pthread_mutex_unlock(&client->lock);
    return ERROR_NONE;
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *reason,
                                  size_t size) {
    (void)opaque, (void)reason, (void)size;
    Client *former = take_newest_client();
    if (former != NULL) {
        release_client(former);
    }
    Client *client = new_client(rk);
    if (client == NULL) {
        return ERROR_NONE;
    }
    if (kafka.interceptor_add_on_destroy(rk, NAME, on_destroy, client) != ERROR_NONE) {
        release_client(client);
        return ERROR_NONE;
    }
    if (kafka.interceptor_add_on_acknowledgement(rk, NAME, on_acknowledgement, client) == ERROR_NONE) {
        client->references++;
        newest = client;
        replace_error_callback(conf);
    }
    return ERROR_NONE;
}

/* Called by librdkafka if this library is in a client's `plugin.library.paths`. */
__attribute__((visibility("default"))) rd_kafka_resp_err_t conf_init(rd_kafka_conf_t *conf, void **opaque,
                                                                     char *reason, size_t size) {
    (void)opaque, (void)reason, (void)size;
    return kafka.conf_interceptor_add_on_new(conf, NAME, on_new, NULL);
}
