#!/bin/sh
# Runs ../app.py on a Spark standalone cluster: submit.sh spark://master:7077
#
# environment.tar.gz contains the Python packages for the executors; docs/operations/cluster.md explains
# how to create it. Standalone clusters do not support --deploy-mode cluster for Python programs, and
# therefore not --supervise: let systemd or another process manager restart this script.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
export PYSPARK_PYTHON=./environment/bin/python
export PYSPARK_DRIVER_PYTHON="${PYSPARK_DRIVER_PYTHON:-python3}"

exec spark-submit \
    --master "$1" \
    --archives "${ENVIRONMENT:-environment.tar.gz}#environment" \
    --conf spark.executor.cores=2 \
    --conf spark.executor.memory=1g \
    --conf spark.speculation=false \
    --conf spark.network.timeout=30s \
    --conf spark.executor.heartbeatInterval=5s \
    "$here/app.py" "${PROPERTIES:-application.properties}"
