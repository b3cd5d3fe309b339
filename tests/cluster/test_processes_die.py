"""Processes of a cluster die while their hosts live, and records come."""

from __future__ import annotations

import pytest
from support.cluster.masters import Cluster
from support.cluster.submitted import Submitted

pytestmark = pytest.mark.slow


def test_an_executor_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: Spark's worker starts another one; its threads come back to their state, or to where
    there is room."""
    host = application.busiest()
    application.wait_warm()
    with application.measured("an executor is killed"):
        assert host.kill("CoarseGrainedExecutorBackend")


def test_python_workers_are_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: threads whose processes die are started again."""
    host = application.busiest()
    application.wait_warm()
    with application.measured("the Python processes of a host are killed"):
        assert host.kill("pyspark.daemon")


def test_a_worker_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: an executor that loses Spark's worker ends, and its threads are started elsewhere."""
    host = application.busiest()
    application.wait_warm()
    with application.measured("Spark's worker of a host is killed"):
        assert host.kill("deploy.worker.Worker")
    cluster.start_worker(host)


def test_the_driver_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: one that is started again at once, as a supervisor does, goes on; threads of the first
    one have committed and left, or are fenced."""
    with application.measured("the driver is killed, and started again"):
        application.end()
        application.submit()
