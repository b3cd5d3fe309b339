"""Topologies of Kafka Streams 4.3, recorded and built again here.

Each recorded case has the operations of a program, the output of `describe()` in Kafka Streams, and
the sub-topologies and internal topics under the application id `app`.
"""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology

CASES = json.loads(Path(__file__).with_name("kafka_streams_4_3.json").read_text())


class Program:
    """Builds the topology of a recorded program; the results of its functions do not matter."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._builder = StreamsBuilder(optimize=case["optimize"])
        self._results: dict[str, Any] = {}
        for operation in case["operations"]:
            result = getattr(self, operation["op"])(operation)
            if "id" in operation:
                self._results[operation["id"]] = result
        self.topology = self._builder.build()

    def _from(self, operation: dict[str, Any]) -> Any:
        return self._results[operation["from"]]

    def stream(self, operation: dict[str, Any]) -> Any:
        topics = operation.get("topics") or operation.get("topic")
        pattern = operation.get("pattern")
        chosen: Any = topics if pattern is None else re.compile(pattern)
        return self._builder.stream(chosen, name=operation.get("name"))

    def _stateless(self, operation: dict[str, Any]) -> Any:
        method = getattr(self._from(operation), operation["op"])
        return method(lambda *_: None, name=operation.get("name"))

    filter = filter_not = map = map_values = flat_map = flat_map_values = _stateless
    select_key = peek = group_by = _stateless

    def foreach(self, operation: dict[str, Any]) -> None:
        self._from(operation).for_each(print, name=operation.get("name"))

    def merge(self, operation: dict[str, Any]) -> Any:
        one, other = (self._results[each] for each in operation["from"])
        return one.merge(other, name=operation.get("name"))

    def split(self, operation: dict[str, Any]) -> None:
        split = self._from(operation).split(name=operation.get("name"))
        identities = []
        for branch in operation["branches"]:
            split.branch(lambda *_: True, branch.get("name"))
            identities.append(branch["id"])
        if operation.get("default"):
            streams = split.default_branch(operation["default"].get("name"))
            identities.append(operation["default"]["id"])
        else:
            streams = split.no_default_branch()
        self._results.update(zip(identities, streams.values(), strict=True))

    def repartition(self, operation: dict[str, Any]) -> Any:
        return self._from(operation).repartition(
            partitions=operation.get("partitions"), name=operation.get("name")
        )

    def to(self, operation: dict[str, Any]) -> None:
        self._from(operation).to(operation["topic"], name=operation.get("name"))

    def group_by_key(self, operation: dict[str, Any]) -> Any:
        return self._from(operation).group_by_key(name=operation.get("name"))

    def _options(self, operation: dict[str, Any]) -> dict[str, Any]:
        store = operation.get("store")
        if isinstance(store, dict):
            store = Materialized(
                store.get("name"), kind=store.get("kind"), logging=store.get("logging", True)
            )
        return {"store": store, "name": operation.get("name")}

    def count(self, operation: dict[str, Any]) -> Any:
        return self._from(operation).count(**self._options(operation))

    def reduce(self, operation: dict[str, Any]) -> Any:
        return self._from(operation).reduce(max, **self._options(operation))

    def aggregate(self, operation: dict[str, Any]) -> Any:
        return self._from(operation).aggregate(list, max, **self._options(operation))

    def to_stream(self, operation: dict[str, Any]) -> Any:
        selector = max if operation.get("key") else None
        return self._from(operation).to_stream(selector, name=operation.get("name"))


@pytest.fixture(params=CASES, ids=[case["name"] for case in CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    recorded: dict[str, Any] = request.param
    return recorded


@pytest.fixture
def topology(case: dict[str, Any]) -> Topology:
    return Program(case).topology


def test_description_is_the_same_text(case: dict[str, Any], topology: Topology) -> None:
    """Names, numbers, connections, sub-topologies, and the order of all of these."""
    assert str(topology.describe()) == case["describe"]


def test_internal_topics_are_the_same(case: dict[str, Any], topology: Topology) -> None:
    """The changelog and repartition topics of a Java application are found again, with their
    config."""
    topics: dict[str, Any] = {}
    for repartition in topology.internal_topics.values():
        enforced = {} if repartition.partitions is None else {"partitions": repartition.partitions}
        config = repartition.config()
        topics[f"app-{repartition.name}"] = {"kind": "repartition", **enforced, "config": config}
    for changelog in topology._changelog_topics().values():
        topics[f"app-{changelog.name}"] = {"kind": "changelog", "config": changelog.config()}
    assert topics == case["topics"]


def test_subtopologies_read_and_write_the_same_topics(
    case: dict[str, Any], topology: Topology
) -> None:
    """Each sub-topology has the same number, sources, sinks and changelogs."""
    found = [
        {
            "id": part.id,
            "sources": sorted(part.decorate(topic, "app") for topic in part.source_topics),
            "sinks": sorted(part.decorate(topic, "app") for topic in part.sink_topics),
            "changelogs": sorted(part.decorate(log, "app") for log in part.changelogs.values()),
        }
        for part in topology._subtopologies()
        # The recorder omits sub-topologies that only read by pattern, before a topic matches.
        if part.source_topics
    ]
    assert found == [
        {name: sorted(value) if isinstance(value, list) else value for name, value in part.items()}
        for part in case["subtopologies"]
    ]


def test_pickled_topologies_are_equal(topology: Topology) -> None:
    """Topologies and sub-topologies are sent to workers, with the lambdas of the user."""
    copy = pickle.loads(cloudpickle.dumps(topology))
    assert copy.describe() == topology.describe()
    for part in topology._subtopologies():
        shipped = pickle.loads(cloudpickle.dumps(part))
        assert [node.name for node in shipped.nodes] == [node.name for node in part.nodes]
        assert shipped.changelogs == part.changelogs


def test_word_count() -> None:
    """The usual first program, with a named store."""
    builder = StreamsBuilder()
    lines = builder.stream("in")
    words = lines.flat_map_values(str.split).group_by(lambda _, word: word)
    words.count(store="Counts").to_stream().to("out")
    assert str(builder.build().describe()).splitlines() == [
        "Topologies:",
        "   Sub-topology: 0",
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [in])",
        "      --> KSTREAM-FLATMAPVALUES-0000000001",
        "    Processor: KSTREAM-FLATMAPVALUES-0000000001 (stores: [])",
        "      --> KSTREAM-KEY-SELECT-0000000002",
        "      <-- KSTREAM-SOURCE-0000000000",
        "    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])",
        "      --> Counts-repartition-filter",
        "      <-- KSTREAM-FLATMAPVALUES-0000000001",
        "    Processor: Counts-repartition-filter (stores: [])",
        "      --> Counts-repartition-sink",
        "      <-- KSTREAM-KEY-SELECT-0000000002",
        "    Sink: Counts-repartition-sink (topic: Counts-repartition)",
        "      <-- Counts-repartition-filter",
        "",
        "  Sub-topology: 1",
        "    Source: Counts-repartition-source (topics: [Counts-repartition])",
        "      --> KSTREAM-AGGREGATE-0000000003",
        "    Processor: KSTREAM-AGGREGATE-0000000003 (stores: [Counts])",
        "      --> KTABLE-TOSTREAM-0000000007",
        "      <-- Counts-repartition-source",
        "    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])",
        "      --> KSTREAM-SINK-0000000008",
        "      <-- KSTREAM-AGGREGATE-0000000003",
        "    Sink: KSTREAM-SINK-0000000008 (topic: out)",
        "      <-- KTABLE-TOSTREAM-0000000007",
        "",
    ]
