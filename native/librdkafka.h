/* The used part of librdkafka's public interface, declared here so that neither its headers nor a
 * copy of the library are needed: the functions are those of the library that confluent-kafka has
 * loaded. The declarations have been stable since librdkafka 1.0, except for
 * rd_kafka_message_leader_epoch, which was added in 2.1. */

#ifndef MILLSTREAM_LIBRDKAFKA_H
#define MILLSTREAM_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef int rd_kafka_resp_err_t;

typedef struct rd_kafka_message_s {
    rd_kafka_resp_err_t err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum {
    ERROR_PURGE_INFLIGHT = -151,
    ERROR_PURGE_QUEUE = -152,
    ERROR_NONE = 0,
};

enum { TYPE_PRODUCER, TYPE_CONSUMER };
enum { CONF_OK = 0 };
enum { MESSAGE_COPY = 0x2 };

/* The tags of the arguments of rd_kafka_producev. */
enum { V_END, V_TOPIC, V_RKT, V_PARTITION, V_VALUE, V_KEY, V_OPAQUE, V_MSGFLAGS, V_TIMESTAMP, V_HEADER, V_HEADERS };

typedef void error_function(rd_kafka_t *, int, const char *, void *);
typedef rd_kafka_resp_err_t on_new_function(rd_kafka_t *, const rd_kafka_conf_t *, void *, char *, size_t);
typedef rd_kafka_resp_err_t on_destroy_function(rd_kafka_t *, void *);
typedef rd_kafka_resp_err_t on_acknowledgement_function(rd_kafka_t *, rd_kafka_message_t *, void *);

/* Result, name without its prefix, arguments. */
#define LIBRDKAFKA_FUNCTIONS(F)                                                                    \
    F(int, type, (const rd_kafka_t *))                                                             \
    F(rd_kafka_conf_t *, conf_new, (void))                                                         \
    F(void, conf_destroy, (rd_kafka_conf_t *))                                                     \
    F(int, conf_get, (const rd_kafka_conf_t *, const char *, char *, size_t *))                    \
    F(void, conf_set_error_cb, (rd_kafka_conf_t *, error_function *))                              \
    F(rd_kafka_resp_err_t, conf_interceptor_add_on_new,                                            \
      (rd_kafka_conf_t *, const char *, on_new_function *, void *))                                \
    F(rd_kafka_resp_err_t, interceptor_add_on_destroy,                                             \
      (rd_kafka_t *, const char *, on_destroy_function *, void *))                                 \
    F(rd_kafka_resp_err_t, interceptor_add_on_acknowledgement,                                     \
      (rd_kafka_t *, const char *, on_acknowledgement_function *, void *))                         \
    F(const char *, err2str, (rd_kafka_resp_err_t))                                                \
    F(rd_kafka_resp_err_t, last_error, (void))                                                     \
    F(rd_kafka_queue_t *, queue_new, (rd_kafka_t *))                                               \
    F(void, queue_destroy, (rd_kafka_queue_t *))                                                   \
    F(rd_kafka_queue_t *, queue_get_partition, (rd_kafka_t *, const char *, int32_t))              \
    F(void, queue_forward, (rd_kafka_queue_t *, rd_kafka_queue_t *))                               \
    F(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))      \
    F(void, message_destroy, (rd_kafka_message_t *))                                               \
    F(const char *, message_errstr, (const rd_kafka_message_t *))                                  \
    F(int64_t, message_timestamp, (const rd_kafka_message_t *, int *))                             \
    F(int32_t, message_leader_epoch, (const rd_kafka_message_t *))                                 \
    F(rd_kafka_resp_err_t, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))   \
    F(rd_kafka_headers_t *, headers_new, (size_t))                                                 \
    F(void, headers_destroy, (rd_kafka_headers_t *))                                               \
    F(rd_kafka_resp_err_t, header_add,                                                             \
      (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))                        \
    F(rd_kafka_resp_err_t, header_get_all,                                                         \
      (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))                \
    F(rd_kafka_topic_t *, topic_new, (rd_kafka_t *, const char *, void *))                         \
    F(void, topic_destroy, (rd_kafka_topic_t *))                                                   \
    F(const char *, topic_name, (const rd_kafka_topic_t *))                                        \
    F(rd_kafka_resp_err_t, producev, (rd_kafka_t *, ...))

typedef struct {
#define DECLARED(result, name, arguments) result (*name) arguments;
    LIBRDKAFKA_FUNCTIONS(DECLARED)
#undef DECLARED
} Librdkafka;

/* Set by find_librdkafka. */
extern Librdkafka kafka;

/* Finds the functions of the librdkafka that a shared library depends on. If one is missing, or
 * this librdkafka loads no plugins, sets `reason` and returns 0. */
int find_librdkafka(const char *library, char *reason, size_t size);

#endif
