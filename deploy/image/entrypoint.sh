#!/bin/bash
# The first process of a container: runs Spark's executor if the first argument is `executor`, as set by
# Spark on Kubernetes, or else the given command.
#
# When an executor ends, its stream threads commit and leave their group, which takes a few seconds.
# They are not children of Java, and a container ends with its first process, so this script waits for
# them.
set -euo pipefail

STREAM_THREADS_END_S=${STREAM_THREADS_END_S:-15}

if [ "${1:-}" != executor ]; then
    exec "$@"
fi

# Spark passes each Java option in its own variable.
options=()
for name in "${!SPARK_JAVA_OPT_@}"; do
    options+=("${!name}")
done

java "${options[@]}" \
    -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*:$PWD" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME" &
executor=$!

trap 'kill -TERM "$executor" 2>/dev/null || true' TERM INT
code=0
wait "$executor" || code=$?
# A signal interrupts `wait`, but the executor may still be running.
while kill -0 "$executor" 2>/dev/null; do
    wait "$executor" || code=$?
done

for _ in $(seq $((STREAM_THREADS_END_S * 10))); do
    pgrep --session 0 -f pyspark.daemon >/dev/null || break
    sleep 0.1
done
exit "$code"
