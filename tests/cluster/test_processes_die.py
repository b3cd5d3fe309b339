"""Processes of a cluster are killed under load, while their hosts stay up."""

from __future__ import annotations

import pytest
from support.cluster.masters import Cluster
from support.cluster.submitted import Submitted

pytestmark = pytest.mark.slow


def test_an_executor_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: Spark's worker starts another executor; its threads restart with their state, or where
    slots are free."""
    host = application.busiest()
    application.wait_warm()
    with application.measured("an executor is killed"):
        assert host.kill("CoarseGrainedExecutorBackend")


def test_python_workers_are_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: killed threads are restarted."""
    host = application.busiest()
    application.wait_warm()
    with application.measured("the Python processes of a host are killed"):
        assert host.kill("pyspark.daemon")


def test_a_worker_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: an executor without its worker exits, and its threads are restarted elsewhere."""
    host = application.busiest()
    application.wait_warm()
    with application.measured("Spark's worker of a host is killed"):
        assert host.kill("deploy.worker.Worker")
    cluster.start_worker(host)


def test_the_driver_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: a driver that is restarted immediately, as by a supervisor, continues; the previous
    driver's threads have committed and left, or are fenced."""
    with application.measured("the driver is killed and restarted"):
        application.end()
        application.submit()
