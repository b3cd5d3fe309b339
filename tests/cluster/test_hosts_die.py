"""Each host of a cluster dies in turn, without a word, while records come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.cluster.masters import Cluster
from support.cluster.submitted import Submitted, submitted

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[EXACTLY_ONCE_V2, AT_LEAST_ONCE])
def application(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submitted]:
    """The application under load. At the end, all ids are there, as often as was promised."""
    folder = tmp_path_factory.mktemp("application")
    settings = {"processing_guarantee": request.param, "num_standby_replicas": 1}
    with submitted(cluster, folder, **settings) as running:
        yield running


@pytest.mark.parametrize("name", ["worker1", "worker2", "worker3"])
def test_the_standbys_of_a_worker_that_dies_go_on(
    cluster: Cluster, application: Submitted, name: str
) -> None:
    """Goal: the tasks of a host go on where their standbys are, with what these have not read.

    Method: power off, under load, while no other copies are warm. Nobody writes to the changelogs
    of its tasks until others have them, so what is unread is known; the restore listener tells what
    was restored.
    """
    host = cluster.worker(name)
    application.wait_warm()
    partitions = application.stateful_on(host)
    before = len(application.restorations())
    fault = f"{name} dies, with {len(partitions)} stateful tasks"
    with application.measured(fault) as recovered, cluster.without(host):
        unread = application.unread(partitions)
        recovered()
    restored = application.restorations()[before:]
    for number in partitions:
        first = next(count for place, count in restored if place == number)
        assert first <= unread[number], (
            f"{number}: {restored}, unread {unread}\n{application.copies(number)}"
        )


def test_the_master_dies(cluster: Cluster, application: Submitted) -> None:
    """Goal: threads that run do not need the master; one that is there again places new ones."""
    with application.measured("the master dies") as recovered:
        cluster.master.die()
        try:
            recovered()
        finally:
            cluster.master.boot()
            cluster.start_master()


def test_the_broker_dies(cluster: Cluster, application: Submitted) -> None:
    """Goal: all wait for the broker, and go on when it is there again with what it had."""
    with application.measured("the broker dies, and is back"):
        cluster.crash_broker()


def test_the_drivers_host_dies(application: Submitted) -> None:
    """Goal: a driver that is started again goes on with the state that is on the workers."""
    with application.measured("the driver's host dies, and is back"):
        application.crash_drivers_host()
