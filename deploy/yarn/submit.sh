#!/bin/sh
# Runs ../app.py on YARN: submit.sh. HADOOP_CONF_DIR selects the cluster.
#
# The driver runs in the application master, which YARN restarts when it fails, as often as the cluster's
# yarn.resourcemanager.am.max-attempts allows within the interval below. On every node, state.dir must be
# a folder that is writable for the containers' user and outlives containers: not one of YARN's local
# folders.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)

exec spark-submit \
    --master yarn \
    --deploy-mode cluster \
    --name shop \
    --archives "${ENVIRONMENT:-environment.tar.gz}#environment" \
    --files "${PROPERTIES:-application.properties}#application.properties" \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf spark.executor.instances=4 \
    --conf spark.executor.cores=2 \
    --conf spark.executor.memory=1g \
    --conf spark.executor.memoryOverhead=3g \
    --conf spark.dynamicAllocation.enabled=false \
    --conf spark.speculation=false \
    --conf spark.network.timeout=30s \
    --conf spark.executor.heartbeatInterval=5s \
    --conf spark.executor.maxNumFailures=20 \
    --conf spark.executor.failuresValidityInterval=1h \
    --conf spark.yarn.maxAppAttempts=4 \
    --conf spark.yarn.am.attemptFailuresValidityInterval=1h \
    --conf spark.yarn.submit.waitAppCompletion=false \
    "$here/app.py" application.properties
