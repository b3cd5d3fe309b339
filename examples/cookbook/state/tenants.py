"""Many tenants in one topic: keys that keep them apart, and a topic for each.

A key of two parts, tenant and user, is one value of a typed serde; its bytes are what Kafka
partitions by and what stores compare. Tenants are then never mixed up in a store, and all of a
tenant's keys can be found by prefix if the tenant comes first. A large tenant is spread over all
partitions, since the user is part of the key. `to` takes a function that chooses the topic.
"""

from __future__ import annotations

import msgspec

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import TopologyTestDriver


class Owner(msgspec.Struct, frozen=True, array_like=True):
    """Whose data it is: written as `["shop","ann"]`."""

    tenant: str
    user: str


OWNER = json_of(Owner)


def clicks_by_tenant() -> Topology:
    """Clicks (`tenant/user` as key) in, counts of each user in a topic of each tenant out."""
    builder = StreamsBuilder()
    (
        builder.stream("clicks", key=STRING, value=STRING)
        .group_by(lambda key, page: Owner(*key.split("/", 1)), key=OWNER, value=STRING)
        .count(store="clicks")
        .to_stream()
        .to(lambda owner, count, context: f"clicks-{owner.tenant}", key=OWNER, value=LONG)
    )
    return builder.build()


def test_tenants_do_not_meet() -> None:
    with TopologyTestDriver(clicks_by_tenant()) as driver:
        clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        clicks.pipe_key_values([("shop/ann", "/"), ("bank/ann", "/"), ("shop/ann", "/tea")])
        shop = driver.create_output_topic("clicks-shop", key=OWNER, value=LONG)
        bank = driver.create_output_topic("clicks-bank", key=OWNER, value=LONG)
        assert shop.read_key_values_to_map() == {Owner("shop", "ann"): 2}
        assert bank.read_key_values_to_map() == {Owner("bank", "ann"): 1}
