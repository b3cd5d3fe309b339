"""Schema evolution: read records that were written by earlier versions.

Topics and changelogs contain records of earlier versions. A typed serde checks each record when it
is read, so new types must also accept old records. Give new fields a default, because old records
do not have them. Removed fields are ignored. If the meaning of a field changes, use a new field. If
that is not enough, tag records with their version and read a union, as here; the rest of the
topology then only handles the latest type. `millstream upgrade-check old.py new.py` compares the
types of two versions before you deploy.
"""

from __future__ import annotations

import msgspec

from millstream import StreamsBuilder, Topology
from millstream.serdes import BYTES, STRING, json_of
from millstream.testing import TopologyTestDriver


class OrderV1(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """The first version: a price in whole euros, and a single name."""

    name: str
    euros: int


class OrderV2(msgspec.Struct, frozen=True, tag_field="version", tag=2):
    """The current version: a price in cents, and a currency that defaults to euros."""

    first_name: str
    last_name: str
    cents: int
    currency: str = "EUR"


ANY_ORDER = json_of(OrderV1 | OrderV2)
ORDER = json_of(OrderV2)


def newest(order: OrderV1 | OrderV2) -> OrderV2:
    """Return the order, converted to the current version."""
    if isinstance(order, OrderV2):
        return order
    first, _, last = order.name.rpartition(" ")
    return OrderV2(first, last, order.euros * 100)


def upgraded() -> Topology:
    """Read orders of both versions, and write orders of the current version."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=STRING, value=ANY_ORDER)
    orders.map_values(newest).to("orders-v2", key=STRING, value=ORDER)
    return builder.build()


def test_both_versions_are_read() -> None:
    with TopologyTestDriver(upgraded()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=BYTES)
        orders.pipe_input("1", b'{"version":1,"name":"Ann Lee","euros":12}')
        orders.pipe_input(
            "2",
            b'{"version":2,"first_name":"Bob","last_name":"Ray","cents":50,"gift":true}',
        )
        found = driver.create_output_topic("orders-v2", key=STRING, value=ORDER).read_values()
    assert found == [OrderV2("Ann", "Lee", 1200), OrderV2("Bob", "Ray", 50)]
