"""Each host of a cluster fails in turn, without notice, under load."""

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
    """The application under load. At the end, the output has all ids, as its guarantee promises."""
    folder = tmp_path_factory.mktemp("application")
    settings = {"processing_guarantee": request.param, "num_standby_replicas": 1}
    with submitted(cluster, folder, **settings) as running:
        yield running


@pytest.mark.parametrize("name", ["worker1", "worker2", "worker3"])
def test_standbys_take_over_from_a_failed_worker(
    cluster: Cluster, application: Submitted, name: str
) -> None:
    """Goal: the tasks of a host move to their standbys, which only restore unread records.

    Method: power off the host under load, while only standbys have recent copies of its state. The
    changelogs of its tasks do not grow until others own the tasks, so the number of unread records
    is known; the restore listener reports the number of restored records.
    """
    host = cluster.worker(name)
    application.wait_warm()
    partitions = application.stateful_on(host)
    before = len(application.restorations())
    fault = f"{name} fails, with {len(partitions)} stateful tasks"
    with application.measured(fault) as recovered, cluster.powered_off(host):
        unread = application.unread(partitions)
        recovered()
    restored = application.restorations()[before:]
    for number in partitions:
        first = next(count for place, count in restored if place == number)
        assert first <= unread[number], (
            f"{number}: {restored}, unread {unread}\n{application.copies(number)}"
        )


def test_the_master_fails(cluster: Cluster, application: Submitted) -> None:
    """Goal: running threads do not need the master; a restarted master places new ones."""
    with application.measured("the master fails") as recovered:
        cluster.master.power_off()
        try:
            recovered()
        finally:
            cluster.master.boot()
            cluster.start_master()


def test_the_broker_fails(cluster: Cluster, application: Submitted) -> None:
    """Goal: all threads wait for the broker and continue after its restart."""
    with application.measured("the broker fails and restarts"):
        cluster.crash_broker()


def test_the_drivers_host_fails(application: Submitted) -> None:
    """Goal: a restarted driver continues with the state on the workers."""
    with application.measured("the driver's host fails and restarts"):
        application.crash_driver_host()
