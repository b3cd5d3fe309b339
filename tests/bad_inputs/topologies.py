"""Invalid topologies."""

from __future__ import annotations

import re
from typing import Any

from bad_inputs.case import Case, Family, Outcome, Raises, check_start, config, ms, serdes
from bad_inputs.nulls import NEAR, TEXT, both
from millstream.errors import ConfigError, CopartitionError, TopologyError
from millstream.runtime.start.topology_checks import check_topology


def raises(*parts: str) -> Raises:
    """An error with the line of the mistake."""
    return Raises(TopologyError, [*parts, "bad_inputs/topologies.py:"])


def dsl(id: str, description: str, build: Any, outcome: Outcome, **settings: Any) -> Case:
    return Case(id, description, check_start(build, **settings), outcome)


class Nothing(ms.Processor):  # type: ignore[misc]
    """Does nothing."""

    def process(self, record: Any) -> None: ...


class RequiresArgument(Nothing):
    """Requires an argument."""

    def __init__(self, limit: int) -> None:
        self.limit = limit


SHARED = Nothing()


def plain(id: str, description: str, build: Any, outcome: Outcome) -> Case:
    """Create a case with a topology of the Processor API."""

    def run() -> None:
        topology = (
            ms.Topology()
            .add_source("source", "in", **TEXT)
            .add_processor("processor", Nothing, "source")
            .add_sink("sink", "out", "processor", **TEXT)
        )
        build(topology)
        check_topology(topology, config())

    return Case(id, description, run, outcome)


def store(name: str = "s") -> Any:
    return ms.Stores.key_value_builder(
        ms.Stores.in_memory_key_value(name), key=serdes.STRING, value=serdes.STRING
    )


def stream(builder: Any, topic: str = "in") -> Any:
    return builder.stream(topic, **TEXT)


def table(builder: Any, topic: str = "in") -> Any:
    return builder.table(topic, **TEXT)


def two_counts(builder: Any) -> None:
    groups = stream(builder).group_by_key()
    groups.count(store="counts")
    groups.count(store="counts")


def other_builder(builder: Any) -> None:
    stream(builder).join(stream(ms.StreamsBuilder(), "other"), both, NEAR)


def two_partition_counts(builder: Any) -> None:
    left = stream(builder, "a").repartition(partitions=2, name="left")
    right = stream(builder, "b").repartition(partitions=3, name="right")
    left.join(right, both, NEAR).to("out")


def built_twice(builder: Any) -> None:
    stream(builder).to("out")
    builder.build()
    stream(builder, "more")


def different_serdes(builder: Any) -> None:
    stream(builder).to("out")
    builder.stream("in", key=serdes.STRING, value=serdes.LONG).to("out")


def sub_patterns(builder: Any) -> None:
    builder.stream(re.compile("a.*"), **TEXT)
    builder.stream("ab", **TEXT)


def global_twice(builder: Any) -> None:
    builder.global_table("in", **TEXT)
    builder.global_table("in", **TEXT)


def two_stores_with_one_name(topology: Any) -> None:
    topology.add_state_store(store()).add_state_store(store())


DSL = Family(
    "DSL programs",
    "Rejected at the line of the mistake, which the error names.",
    [
        Case(
            "nothing",
            "an empty topology",
            check_start(lambda b: None),
            Raises(TopologyError, ["reads no topic", "builder.stream(...)"]),
        ),
        dsl(
            "no-serde",
            "a source without serdes",
            lambda b: b.stream("in").to("out"),
            Raises(ConfigError, ["no key serde", "key=", "topologies.py:"]),
        ),
        dsl(
            "no-sink-serde",
            "a sink without a known serde",
            lambda b: stream(b).map_values(len).to("out"),
            Raises(ConfigError, ["no value serde", "value="]),
        ),
        dsl(
            "no-store-serde",
            "an aggregate without a known serde",
            lambda b: stream(b).group_by_key().aggregate(int, lambda k, v, a: a + 1),
            Raises(ConfigError, ["has no serde for its values"]),
        ),
        dsl(
            "topic-number",
            "a number as a topic",
            lambda b: b.stream(5),
            Raises(TypeError, "takes a topic, several topics, or a pattern"),
        ),
        dsl("topic-empty", "an empty topic name", lambda b: b.stream("", **TEXT), raises("empty")),
        dsl(
            "no-topics",
            "an empty list of topics",
            lambda b: b.stream([], **TEXT),
            raises("at least one"),
        ),
        dsl(
            "topic-blank",
            "a topic name with a space",
            lambda b: b.stream("a b", **TEXT),
            raises("'a b'"),
        ),
        dsl("topic-dots", "the topic '..'", lambda b: b.stream("..", **TEXT), raises("'..'")),
        dsl(
            "topic-long",
            "a topic of 250 characters",
            lambda b: b.stream("a" * 250, **TEXT),
            raises("250 characters"),
        ),
        dsl(
            "topic-umlaut",
            "non-ASCII letters",
            lambda b: b.stream("größe", **TEXT),
            raises("'größe'"),
        ),
        dsl(
            "sink-illegal",
            "an illegal output topic",
            lambda b: stream(b).to("a/b"),
            raises("'a/b'"),
        ),
        dsl(
            "read-twice",
            "overlapping topics",
            lambda b: (b.stream(["a", "b"], **TEXT), b.stream(["b", "c"], **TEXT)),
            raises("'b'", "two sources"),
        ),
        dsl(
            "pattern-twice",
            "a topic and a pattern that matches it",
            sub_patterns,
            raises("'ab'"),
        ),
        dsl(
            "serdes-twice",
            "a topic read with two serdes",
            different_serdes,
            raises("different value serdes"),
        ),
        dsl("global-twice", "a global table created twice", global_twice, raises("in")),
        dsl(
            "table-twice",
            "two tables with one store",
            two_counts,
            raises("another store called 'counts'"),
        ),
        dsl(
            "name-twice",
            "one name for two operations",
            lambda b: stream(b).filter(lambda k, v: True, name="x").peek(print, name="x"),
            raises("called 'x'"),
        ),
        dsl(
            "name-illegal",
            "an illegal name",
            lambda b: stream(b).peek(print, name="a b"),
            raises("'a b'"),
        ),
        dsl(
            "name-number",
            "a number as a name",
            lambda b: stream(b).peek(print, name=5),
            raises("must be strings, but got 5"),
        ),
        dsl(
            "other-builder", "a stream of another builder", other_builder, raises("StreamsBuilder")
        ),
        dsl("built", "an operation added after build()", built_twice, raises("already been built")),
        dsl(
            "counts",
            "a join of 2 and 3 partitions",
            two_partition_counts,
            Raises(CopartitionError, ["'left-repartition' has 2", "'right-repartition' has 3"]),
        ),
        dsl(
            "no-partitions",
            "a repartition topic with zero partitions",
            lambda b: stream(b).repartition(partitions=0),
            raises("at least 1 partition"),
        ),
        dsl(
            "names-demanded",
            "generated names where explicit names are required",
            lambda b: stream(b).group_by_key().count().to_stream().to("out", value=serdes.LONG),
            Raises(TopologyError, ["KSTREAM-AGGREGATE-STATE-STORE"]),
            ensure_explicit_internal_resource_naming=True,
        ),
        dsl(
            "no-function",
            "a value instead of a function",
            lambda b: stream(b).map_values(5),
            Raises(TypeError, ["needs a function as its mapper", "int: 5"]),
        ),
        dsl(
            "arguments",
            "a function with the wrong parameters",
            lambda b: stream(b).filter(lambda v: True),
            Raises(TypeError, "predicate(key, value)"),
        ),
        dsl(
            "with-key",
            "a function of key and value, without with_key",
            lambda b: stream(b).map_values(lambda k, v: v),
            Raises(TypeError, "with_key=True"),
        ),
        dsl(
            "async",
            "an async def function",
            lambda b: stream(b).map_values(later),
            Raises(TypeError, ["async", "plain function"]),
        ),
        dsl(
            "serde-type",
            "a type instead of a serde",
            lambda b: b.stream("in", key=str),
            Raises(TypeError, ["Serde as its key", "<class 'str'>"]),
        ),
        dsl(
            "merge-table",
            "a stream merged with a table",
            lambda b: stream(b).merge(table(b, "t")),
            Raises(TypeError, "another KStream"),
        ),
        dsl(
            "join-itself",
            "a table joined with text",
            lambda b: table(b).join("other", both),
            Raises(TypeError, "needs another KTable, but got str"),
        ),
        dsl(
            "no-foreign-key",
            "a foreign-key join with a value instead of a function",
            lambda b: table(b).join(table(b, "t"), both, foreign_key="customer"),
            Raises(TypeError, "foreign_key"),
        ),
        dsl(
            "reset",
            "an unknown offset_reset",
            lambda b: b.stream("in", offset_reset="first", **TEXT),
            raises("'first'", "earliest"),
        ),
        dsl(
            "extractor",
            "text as a timestamp extractor",
            lambda b: b.stream("in", timestamp_extractor="time", **TEXT),
            Raises(TypeError, "timestamp_extractor"),
        ),
        dsl(
            "optimize",
            "an unknown optimization",
            lambda b: ms.StreamsBuilder(optimize="fast"),
            Raises(ConfigError, ["'fast'", "none, all"]),
        ),
        dsl(
            "logging",
            "text as logging",
            lambda b: stream(b).join(stream(b, "b"), both, NEAR, logging="no"),
            Raises(TypeError, "logging="),
        ),
    ],
)


async def later(value: Any) -> Any:
    return value


PROCESSORS = Family(
    "Topologies of the Processor API",
    "Rejected at the line of the mistake, which the error names.",
    [
        plain(
            "name-twice",
            "one name for two nodes",
            lambda t: t.add_source("sink", "x"),
            raises("another node called 'sink'"),
        ),
        plain(
            "parent",
            "an unknown parent",
            lambda t: t.add_sink("b", "x", "zz"),
            raises("no parent 'zz'"),
        ),
        plain(
            "no-parent",
            "no parent",
            lambda t: t.add_processor("b", Nothing, []),
            raises("at least one parent"),
        ),
        plain(
            "own-parent",
            "a node that is its own parent",
            lambda t: t.add_processor("b", Nothing, "b"),
            raises("its own parent"),
        ),
        plain(
            "sink-parent",
            "a sink as a parent",
            lambda t: t.add_sink("b", "x", "sink"),
            raises("'sink' cannot be a parent"),
        ),
        plain(
            "topic-twice",
            "a topic that two sources read",
            lambda t: t.add_source("b", "in"),
            raises("'in' is already read by another"),
        ),
        plain(
            "pattern",
            "a pattern that matches another source's topic",
            lambda t: t.add_source("b", re.compile("i.")),
            raises("'in' is already read"),
        ),
        plain(
            "shared",
            "a supplier that returns the same processor repeatedly",
            lambda t: t.add_processor("b", lambda: SHARED, "source"),
            raises("new processor for each call"),
        ),
        plain(
            "needy",
            "a processor class with required arguments",
            lambda t: t.add_processor("b", RequiresArgument, "source"),
            raises("without arguments"),
        ),
        plain(
            "no-processor",
            "a supplier that returns something else",
            lambda t: t.add_processor("b", dict, "source"),
            raises("process"),
        ),
        plain(
            "store-twice",
            "two stores with one name",
            two_stores_with_one_name,
            raises("another store called 's'"),
        ),
        plain(
            "store-processor",
            "a store for an unknown processor",
            lambda t: t.add_state_store(store(), "zz"),
            raises("no processor 'zz'"),
        ),
        plain(
            "store-sink",
            "a store for a sink",
            lambda t: t.add_state_store(store(), "sink"),
            raises("to a processor, not"),
        ),
        plain(
            "no-store",
            "a processor connected to an unknown store",
            lambda t: t.connect_processor_and_state_stores("processor", "nope"),
            raises("no store 'nope'"),
        ),
        plain(
            "supplier",
            "a supplier instead of a store builder",
            lambda t: t.add_state_store(ms.Stores.in_memory_key_value("s"), "processor"),
            Raises(TypeError, "builder"),
        ),
        plain(
            "source-serde",
            "a type as a serde",
            lambda t: t.add_source("b", "x", key=str),
            Raises(TypeError, "Serde as its key"),
        ),
        plain(
            "sink-topic",
            "a number as a sink's topic",
            lambda t: t.add_sink("b", 5, "source"),
            Raises(TypeError, "function as its topic, but got int: 5"),
        ),
        plain(
            "partitioner",
            "a number as a partitioner",
            lambda t: t.add_sink("b", "x", "source", partitioner=5),
            Raises(TypeError, "partitioner"),
        ),
        plain(
            "topology",
            "None instead of a topology",
            lambda t: check_topology(_NONE, config()),
            Raises(TypeError, ["Topology", "None"]),
        ),
        plain(
            "config",
            "a dict instead of the settings",
            lambda t: check_topology(t, _DICT),
            Raises(TypeError, "StreamsConfig"),
        ),
    ],
)
_NONE: Any = None
_DICT: Any = {}
