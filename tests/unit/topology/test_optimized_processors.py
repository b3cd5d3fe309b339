"""With `optimize`, repartition topics stay behind processors of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream import FixedKeyProcessor, Processor, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver


class ByValue(Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        self.context.forward(record.with_key(record.value))


class Length(FixedKeyProcessor[Any, Any, Any]):
    def process(self, record: Any) -> None:
        self.context.forward(record.with_value(len(record.value)))


def count_twice(stream: Any) -> None:
    for store in ("one", "two"):
        stream.group_by_key(key=STRING, value=STRING).count(store=store)


def sum_lengths(stream: Any) -> None:
    lengths = stream.process_values(Length).group_by_key(key=STRING, value=LONG)
    lengths.reduce(lambda total, length: total + length, store="one")


TOPOLOGIES: dict[str, tuple[Callable[[Any], None], str, list[tuple[str, int]]]] = {
    "process": (
        lambda s: count_twice(s.process(ByValue)),
        "KSTREAM-PROCESSOR-",
        [("ab", 1), ("abc", 1)],
    ),
    "process, then a mapping": (
        lambda s: count_twice(s.process(ByValue).map_values(str.upper)),
        "KSTREAM-MAPVALUES-",
        [("ab", 1), ("abc", 1)],
    ),
    "process_values": (sum_lengths, "KSTREAM-PROCESSVALUES-", [("a", 5)]),
}


@pytest.mark.parametrize("case", TOPOLOGIES)
@pytest.mark.parametrize("optimize", [False, True])
def test_processor_stays_in_front_of_the_repartition_topic(case: str, optimize: bool) -> None:
    """Unlike Kafka Streams: it can forward other keys, values and types (KAFKA-19668)."""
    add, prefix, expected = TOPOLOGIES[case]
    builder = StreamsBuilder(optimize)
    add(builder.stream("in", key=STRING, value=STRING).select_key(lambda key, value: value[0]))
    topology = builder.build()
    text = str(topology.describe())
    assert text.index(f"Processor: {prefix}") < text.index("Sink: ")
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="not-used:9092",
        topology_optimization="all" if optimize else "none",
    )
    with TopologyTestDriver(topology, config) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for value in ("ab", "abc"):
            topic.pipe_input(None, value)
        found = [(key, stored.value) for key, stored in driver.get_state_store("one").all()]
    assert found == expected


def test_aggregations_behind_a_processor_share_a_topic() -> None:
    """The processor changes keys, so two aggregations behind it share a repartition topic."""
    for optimize, topics in ((False, 2), (True, 1)):
        builder = StreamsBuilder(optimize)
        count_twice(builder.stream("in", key=STRING, value=STRING).process(ByValue))
        assert str(builder.build().describe()).count("Sink: ") == topics
