"""Group members with an unreachable coordinator."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.membership.coordinator import (
    FIRST_CONTACT_TIMEOUT_MS,
    CoordinatorMonitor,
)


class Cluster:
    """Stands in for the connections."""

    def __init__(self, bootstrap_timeout_ms: int = 15_000) -> None:
        self.is_connected = False
        self.advertised_brokers = ["kafka-1:9092"]
        self.config = {"client_id": "m", "bootstrap_timeout_ms": bootstrap_timeout_ms}

    def connected(self, node_id: str) -> bool:
        return self.is_connected


def make_monitor(cluster: Cluster, clock: ManualClock) -> CoordinatorMonitor:
    coordinator = SimpleNamespace(coordinator_id="coordinator-1", group_id="shop")
    return CoordinatorMonitor(cast(Any, cluster), cast(Any, coordinator), clock)


def test_the_error_of_a_failed_first_contact_names_the_advertised_brokers() -> None:
    """Unreachable `advertised.listeners` are a configuration error, not an outage."""
    clock, cluster = ManualClock(), Cluster()
    monitor = make_monitor(cluster, clock)
    clock.advance(FIRST_CONTACT_TIMEOUT_MS - 1)
    monitor.check()
    clock.advance(1)
    message = r"advertise kafka-1:9092.*advertised\.listeners"
    with pytest.raises(BrokerUnavailableError, match=message):
        monitor.check()


def test_a_first_contact_has_the_bootstrap_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A coordinator that is down when a worker restarts is an ordinary outage."""
    clock, cluster = ManualClock(), Cluster(bootstrap_timeout_ms=300_000)
    monitor = make_monitor(cluster, clock)
    for _ in range(29):
        clock.advance(10_000)
        monitor.check()
    assert len(caplog.messages) == 29
    assert "for 290 s, retrying. The brokers advertise kafka-1:9092" in caplog.messages[-1]
    clock.advance(10_000)
    with pytest.raises(BrokerUnavailableError, match="within 300 s"):
        monitor.check()


def test_a_later_outage_logs_repeated_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "millstream.kafka.membership.group_member")
    clock, cluster = ManualClock(), Cluster()
    monitor = make_monitor(cluster, clock)
    cluster.is_connected = True
    monitor.check()
    cluster.is_connected = False
    for _ in range(400):
        clock.advance(250)
        monitor.check()
    cluster.is_connected = True
    monitor.check()
    monitor.check()
    assert [record.message for record in caplog.records] == [
        *(
            f"m: no connection to the coordinator of group shop for {s} s, retrying"
            for s in (30, 60, 90)
        ),
        "m: the coordinator of the group is reachable again",
    ]
