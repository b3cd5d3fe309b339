"""Links of a cluster are cut and slow, disks are full, and records come all the while."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.cluster.hosts import Host
from support.cluster.masters import SILENCE_S, Cluster
from support.cluster.submitted import SESSION_TIMEOUT_S, Submitted, submitted
from support.waiting import wait_for

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


def test_a_short_cut(cluster: Cluster, application: Submitted) -> None:
    """Goal: a link that is back before the session is over costs nothing but this time."""
    host = busiest(cluster, application)
    before = application.on_hosts()
    seconds = SESSION_TIMEOUT_S / 3
    with application.measured(f"a worker's link is cut for {seconds:.0f} s"):
        host.cut()
        time.sleep(seconds)
        host.mend()
    assert application.on_hosts() == before


def test_a_long_cut(cluster: Cluster, application: Submitted) -> None:
    """Goal: others take the tasks; who comes back writes nothing for tasks that are not his."""
    host = busiest(cluster, application)
    application.wait_warm()
    seconds = SESSION_TIMEOUT_S + SILENCE_S + 10
    with application.measured(f"a worker's link is cut for {seconds} s"):
        host.cut()
        wait_for(lambda: host.name not in application.on_hosts(), 180, "others have its tasks")
        time.sleep(seconds)
        host.mend()


def test_a_bad_line(cluster: Cluster, application: Submitted) -> None:
    """Goal: slow is not dead: records go on, however late."""
    host = busiest(cluster, application)
    with host.slowed() as how, application.measured(f"a worker's link is slow: {how}"):
        time.sleep(20)


def test_a_full_disk(cluster: Cluster, application: Submitted) -> None:
    """Goal: threads that cannot write fail and are replaced until there is room; nothing is lost.

    Method: there is no room for twenty seconds, which is longer than any pause before a thread is
    tried again.
    """
    host = busiest(cluster, application)
    application.wait_warm()
    with application.measured("a worker's disk is full for 20 s"), host.full_disk():
        time.sleep(20)
