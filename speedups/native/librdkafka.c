#include "librdkafka.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

Librdkafka kafka;

static int has_plugins(char *reason, size_t size) {
    char features[1024];
    size_t room = sizeof(features);
    rd_kafka_conf_t *conf = kafka.conf_new();
    int known = kafka.conf_get(conf, "builtin.features", features, &room) == CONF_OK;
    kafka.conf_destroy(conf);
    if (!known || strstr(features, "plugins") == NULL) {
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
        snprintf(reason, size, "confluent-kafka's librdkafka does not show rd_kafka_" #name);      \
        return 0;                                                                                  \
    }
    LIBRDKAFKA_FUNCTIONS(FOUND)
#undef FOUND
    return has_plugins(reason, size);
}
