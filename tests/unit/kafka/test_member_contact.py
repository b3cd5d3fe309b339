"""What a group member makes of a coordinator that cannot be reached."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.member_contact import FIRST_CONTACT_TIMEOUT_MS, CoordinatorContact


class Cluster:
    """Stands in for the connections: connected or not."""

    def __init__(self) -> None:
        self.connected = False
        self.client = SimpleNamespace(connected=lambda node: self.connected)
        self.cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(host="kafka-1", port=9092)])
        self.config = {"client_id": "m"}


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


def test_a_later_outage_is_waited_out_with_a_warning_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "millstream.kafka.member")
    clock, cluster = ManualClock(), Cluster()
    checked = contact(cluster, clock)
    cluster.connected = True
    checked.check()
    cluster.connected = False
    for _ in range(400):
        clock.advance(250)
        checked.check()
    cluster.connected = True
    checked.check()
    checked.check()
    assert [record.message for record in caplog.records] == [
        *(
            f"m: has not reached the coordinator of group shop for {s} s; goes on trying"
            for s in (30, 60, 90)
        ),
        "m: the coordinator of the group is back",
    ]
