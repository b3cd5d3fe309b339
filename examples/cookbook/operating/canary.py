"""Canary: let a new version work beside the old one before it takes over.

A second application id is a second application: it reads the same input from where you say, has
stores and changelogs of its own, and disturbs nobody. Let it write to other topics, compare what
the two have written, and then deploy the new version under the old id, or point readers to the new
topics. Instances of one id share the partitions, so a canary *within* the application gets some of
them; do that only for versions that `millstream upgrade-check` says may run side by side.
"""

from __future__ import annotations

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver


def config(bootstrap_servers: str, canary: bool) -> StreamsConfig:
    """Settings of the application, or of its canary, which begins with what comes from now on."""
    return StreamsConfig(
        application_id="totals-canary" if canary else "totals",
        bootstrap_servers=bootstrap_servers,
        consumer={"auto.offset.reset": "latest" if canary else "earliest"},
    )


def totals(canary: bool = False) -> Topology:
    """Amounts by account in, totals out; the canary's go to a topic of its own."""
    builder = StreamsBuilder()
    amounts = builder.stream("amounts", key=STRING, value=LONG)
    if canary:  # what is new: refunds do not count
        amounts = amounts.filter(lambda account, cents: cents > 0)
    (
        amounts.group_by_key()
        .reduce(lambda total, cents: total + cents, store="totals")
        .to_stream()
        .to("totals-canary" if canary else "totals", key=STRING, value=LONG)
    )
    return builder.build()


def test_canary_and_application_do_not_meet() -> None:
    found = {}
    for canary in (False, True):
        with TopologyTestDriver(totals(canary), config("not-used:9092", canary)) as driver:
            amounts = driver.create_input_topic("amounts", key=STRING, value=LONG)
            amounts.pipe_key_values([("ann", 500), ("ann", -200)])
            out = "totals-canary" if canary else "totals"
            topic = driver.create_output_topic(out, key=STRING, value=LONG)
            found[out] = topic.read_key_values_to_map()
    assert found == {"totals": {"ann": 300}, "totals-canary": {"ann": 500}}
