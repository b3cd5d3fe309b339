"""Processes of a cluster die while their hosts live, and records come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.cluster.hosts import Host
from support.cluster.masters import Cluster
from support.cluster.submitted import Submitted, submitted

from millstream import EXACTLY_ONCE_V2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def application(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitted]:
    """The application under load. At the end, all ids are there once."""
    folder = tmp_path_factory.mktemp("application")
    settings = {"processing_guarantee": EXACTLY_ONCE_V2, "num_standby_replicas": 1}
    with submitted(cluster, folder, **settings) as running:
        yield running


def busiest(cluster: Cluster, application: Submitted) -> Host:
    """The worker with the most tasks."""
    tasks = application.on_hosts()
    return max(cluster.workers, key=lambda host: len(tasks.get(host.name, [])))


def test_an_executor_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: Spark's worker starts another one; its threads come back to their state, or to where
    there is room."""
    host = busiest(cluster, application)
    application.wait_warm()
    with application.measured("an executor is killed"):
        assert host.kill("CoarseGrainedExecutorBackend")


def test_python_workers_are_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: threads whose processes die are started again."""
    host = busiest(cluster, application)
    application.wait_warm()
    with application.measured("the Python processes of a host are killed"):
        assert host.kill("pyspark.daemon")


def test_a_worker_is_killed(cluster: Cluster, application: Submitted) -> None:
    """Goal: an executor that loses Spark's worker ends, and its threads are started elsewhere."""
    host = busiest(cluster, application)
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
