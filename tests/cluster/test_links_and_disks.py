"""Network and disk faults on a cluster, under load."""

from __future__ import annotations

import time

import pytest
from support.cluster.masters import SILENCE_S, Cluster
from support.cluster.submitted import SESSION_TIMEOUT_S, Submitted
from support.waiting import wait_for

pytestmark = pytest.mark.slow


def test_a_short_network_partition(cluster: Cluster, application: Submitted) -> None:
    """Goal: a link that is restored before the session timeout causes no rebalance."""
    host = application.busiest()
    before = application.on_hosts()
    seconds = SESSION_TIMEOUT_S / 3
    with application.measured(f"a worker's link is cut for {seconds:.0f} s"):
        host.cut()
        time.sleep(seconds)
        host.restore_link()
    assert application.on_hosts() == before


def test_a_long_network_partition(cluster: Cluster, application: Submitted) -> None:
    """Goal: others take over the tasks; the returning host writes nothing for tasks it has lost."""
    host = application.busiest()
    application.wait_warm()
    seconds = SESSION_TIMEOUT_S + SILENCE_S + 10
    with application.measured(f"a worker's link is cut for {seconds} s"):
        host.cut()
        wait_for(lambda: host.name not in application.on_hosts(), 180, "others own its tasks")
        time.sleep(seconds)
        host.restore_link()


def test_a_slow_link(cluster: Cluster, application: Submitted) -> None:
    """Goal: records are processed over a slow link."""
    host = application.busiest()
    with host.slow_link() as how, application.measured(f"a worker's link is slow: {how}"):
        time.sleep(20)


def test_a_full_disk(cluster: Cluster, application: Submitted) -> None:
    """Goal: threads that cannot write fail and are replaced until there is space; nothing is lost.

    Method: the disk is full for twenty seconds, which is longer than any backoff before a restart
    of a thread.
    """
    host = application.busiest()
    application.wait_warm()
    with application.measured("a worker's disk is full for 20 s"), host.full_disk():
        time.sleep(20)
