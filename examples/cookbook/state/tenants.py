"""Multiple tenants in one topic: separate keys, and an output topic for each tenant.

The key has two parts, tenant and user, in one typed serde. Kafka partitions records by the bytes of
the key, and stores compare these bytes, so data of different tenants is never mixed. If the tenant
is the first part, all keys of a tenant share a prefix. A large tenant is spread over all
partitions, because the user is part of the key. `to` takes a function that chooses the topic.
"""

from __future__ import annotations

import msgspec

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import TopologyTestDriver


class Owner(msgspec.Struct, frozen=True, array_like=True):
    """The owner of a record, serialized as `["shop","ann"]`."""

    tenant: str
    user: str


OWNER = json_of(Owner)


def clicks_by_tenant() -> Topology:
    """Count clicks by user, and write the counts to a topic for each tenant."""
    builder = StreamsBuilder()
    (
        builder.stream("clicks", key=STRING, value=STRING)
        .group_by(lambda key, page: Owner(*key.split("/", 1)), key=OWNER, value=STRING)
        .count(store="clicks")
        .to_stream()
        .to(lambda owner, count, context: f"clicks-{owner.tenant}", key=OWNER, value=LONG)
    )
    return builder.build()


def test_tenants_are_separate() -> None:
    with TopologyTestDriver(clicks_by_tenant()) as driver:
        clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        clicks.pipe_key_values([("shop/ann", "/"), ("bank/ann", "/"), ("shop/ann", "/tea")])
        shop = driver.create_output_topic("clicks-shop", key=OWNER, value=LONG)
        bank = driver.create_output_topic("clicks-bank", key=OWNER, value=LONG)
        assert shop.read_key_values_to_map() == {Owner("shop", "ann"): 2}
        assert bank.read_key_values_to_map() == {Owner("bank", "ann"): 1}
