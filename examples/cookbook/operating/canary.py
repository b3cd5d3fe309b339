"""Canary: run a new version next to the old one before it takes over.

A second application id is a second application: it reads the same input from an offset of your
choice, has its own stores and changelogs, and does not affect the first one. Let it write to other
topics and compare the results. Then deploy the new version under the old id, or switch consumers to
the new topics. Instances with the same id share the partitions, so a canary *within* an application
processes only some of them; do that only if `millstream upgrade-check` reports that the versions
can run side by side.
"""

from __future__ import annotations

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver


def config(bootstrap_servers: str, canary: bool) -> StreamsConfig:
    """Return the settings. The canary only reads new records."""
    return StreamsConfig(
        application_id="totals-canary" if canary else "totals",
        bootstrap_servers=bootstrap_servers,
        consumer={"auto.offset.reset": "latest" if canary else "earliest"},
    )


def totals(canary: bool = False) -> Topology:
    """Sum the amounts of each account. The canary writes to a separate topic."""
    builder = StreamsBuilder()
    amounts = builder.stream("amounts", key=STRING, value=LONG)
    if canary:  # the change: ignore refunds
        amounts = amounts.filter(lambda account, cents: cents > 0)
    (
        amounts.group_by_key()
        .reduce(lambda total, cents: total + cents, store="totals")
        .to_stream()
        .to("totals-canary" if canary else "totals", key=STRING, value=LONG)
    )
    return builder.build()


def test_the_canary_is_separate_from_the_application() -> None:
    found = {}
    for canary in (False, True):
        with TopologyTestDriver(totals(canary), config("not-used:9092", canary)) as driver:
            amounts = driver.create_input_topic("amounts", key=STRING, value=LONG)
            amounts.pipe_key_values([("ann", 500), ("ann", -200)])
            out = "totals-canary" if canary else "totals"
            topic = driver.create_output_topic(out, key=STRING, value=LONG)
            found[out] = topic.read_key_values_to_map()
    assert found == {"totals": {"ann": 300}, "totals-canary": {"ann": 500}}
