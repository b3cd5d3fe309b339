"""Links of a cluster are cut and slow, disks are full, and records come all the while."""

from __future__ import annotations

import time

import pytest
from support.cluster.masters import SILENCE_S, Cluster
from support.cluster.submitted import SESSION_TIMEOUT_S, Submitted
from support.waiting import wait_for

pytestmark = pytest.mark.slow


def test_a_short_cut(cluster: Cluster, application: Submitted) -> None:
    """Goal: a link that is back before the session is over costs nothing but this time."""
    host = application.busiest()
    before = application.on_hosts()
    seconds = SESSION_TIMEOUT_S / 3
    with application.measured(f"a worker's link is cut for {seconds:.0f} s"):
        host.cut()
        time.sleep(seconds)
        host.mend()
    assert application.on_hosts() == before


def test_a_long_cut(cluster: Cluster, application: Submitted) -> None:
    """Goal: others take the tasks; who comes back writes nothing for tasks that are not his."""
    host = application.busiest()
    application.wait_warm()
    seconds = SESSION_TIMEOUT_S + SILENCE_S + 10
    with application.measured(f"a worker's link is cut for {seconds} s"):
        host.cut()
        wait_for(lambda: host.name not in application.on_hosts(), 180, "others have its tasks")
        time.sleep(seconds)
        host.mend()


def test_a_bad_line(cluster: Cluster, application: Submitted) -> None:
    """Goal: slow is not dead: records go on, however late."""
    host = application.busiest()
    with host.slowed() as how, application.measured(f"a worker's link is slow: {how}"):
        time.sleep(20)


def test_a_full_disk(cluster: Cluster, application: Submitted) -> None:
    """Goal: threads that cannot write fail and are replaced until there is room; nothing is lost.

    Method: there is no room for twenty seconds, which is longer than any pause before a thread is
    tried again.
    """
    host = application.busiest()
    application.wait_warm()
    with application.measured("a worker's disk is full for 20 s"), host.full_disk():
        time.sleep(20)
