"""What a group member makes of a coordinator that cannot be reached."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.member.contact import FIRST_CONTACT_TIMEOUT_MS, CoordinatorContact


class Cluster:
    """Stands in for the connections: connected or not."""

    def __init__(self, bootstrap_timeout_ms: int = 15_000) -> None:
        self.is_connected = False
        self.advertised = ["kafka-1:9092"]
        self.config = {"client_id": "m", "bootstrap_timeout_ms": bootstrap_timeout_ms}

    def connected(self, node_id: str) -> bool:
        return self.is_connected


def contact(cluster: Cluster, clock: ManualClock) -> CoordinatorContact:
    coordinator = SimpleNamespace(coordinator_id="coordinator-1", group_id="shop")
    return CoordinatorContact(cast(Any, cluster), cast(Any, coordinator), clock)


def test_a_first_contact_that_never_comes_names_what_the_brokers_advertise() -> None:
    """Aim: advertised.listeners that cannot be reached is a configuration error, not an outage."""
    clock, cluster = ManualClock(), Cluster()
    checked = contact(cluster, clock)
    clock.advance(FIRST_CONTACT_TIMEOUT_MS - 1)
    checked.check()
    clock.advance(1)
    with pytest.raises(BrokerUnavailableError, match=r"advertise kafka-1:9092.*advertised"):
        checked.check()


def test_a_first_contact_is_waited_for_as_long_as_brokers_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Aim: a coordinator that is away when a worker is restarted is an outage like any other."""
    clock, cluster = ManualClock(), Cluster(bootstrap_timeout_ms=300_000)
    checked = contact(cluster, clock)
    for _ in range(29):
        clock.advance(10_000)
        checked.check()
    assert len(caplog.messages) == 29
    assert "for 290 s; goes on trying. The brokers advertise kafka-1:9092" in caplog.messages[-1]
    clock.advance(10_000)
    with pytest.raises(BrokerUnavailableError, match="within 300 s"):
        checked.check()


def test_a_later_outage_is_waited_out_with_a_warning_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "millstream.kafka.member.group_member")
    clock, cluster = ManualClock(), Cluster()
    checked = contact(cluster, clock)
    cluster.is_connected = True
    checked.check()
    cluster.is_connected = False
    for _ in range(400):
        clock.advance(250)
        checked.check()
    cluster.is_connected = True
    checked.check()
    checked.check()
    assert [record.message for record in caplog.records] == [
        *(
            f"m: has not reached the coordinator of group shop for {s} s; goes on trying"
            for s in (30, 60, 90)
        ),
        "m: the coordinator of the group is back",
    ]
