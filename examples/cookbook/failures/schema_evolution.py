"""Schema evolution: read what was written before the fields were what they are now.

Topics and changelogs hold what earlier versions wrote. A typed serde checks each record when it is
read, so think of both directions. New fields get a default: old records have none. Fields that are
gone are simply not read. A field that changes its meaning becomes another field. Where that is not
enough, tag the record with its version and read a union, as here; the topology sees one type.
`millstream upgrade-check old.py new.py` compares the types of two versions before you deploy.
"""

from __future__ import annotations

import msgspec

from millstream import StreamsBuilder, Topology
from millstream.serdes import BYTES, STRING, json_of
from millstream.testing import TopologyTestDriver


class OrderV1(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """As it was: a price in whole euros, and a name in one piece."""

    name: str
    euros: int


class OrderV2(msgspec.Struct, frozen=True, tag_field="version", tag=2):
    """As it is: cents, and a currency, which is euros where nobody says."""

    first_name: str
    last_name: str
    cents: int
    currency: str = "EUR"


ANY_ORDER = json_of(OrderV1 | OrderV2)
ORDER = json_of(OrderV2)


def newest(order: OrderV1 | OrderV2) -> OrderV2:
    """An order as this version knows it."""
    if isinstance(order, OrderV2):
        return order
    first, _, last = order.name.rpartition(" ")
    return OrderV2(first, last, order.euros * 100)


def upgraded() -> Topology:
    """Orders of both versions in, orders of the newest out."""
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
