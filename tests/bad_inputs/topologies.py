"""Topologies that contradict themselves."""

from __future__ import annotations

import re
from typing import Any

from bad_inputs.case import Case, Family, Outcome, Refused, config, ms, serdes, started
from bad_inputs.nulls import NEAR, TEXT, both
from millstream.errors import ConfigError, CopartitionError, TopologyError
from millstream.runtime.check import check_topology


def refused(*told: str) -> Refused:
    """With the line of the program that is wrong."""
    return Refused(TopologyError, [*told, "bad_inputs/topologies.py:"])


def dsl(id: str, what: str, build: Any, outcome: Outcome, **settings: Any) -> Case:
    return Case(id, what, started(build, **settings), outcome)


class Nothing(ms.Processor):  # type: ignore[misc]
    """Does nothing."""

    def process(self, record: Any) -> None: ...


class Needy(Nothing):
    """Cannot be made without an argument."""

    def __init__(self, limit: int) -> None:
        self.limit = limit


SHARED = Nothing()


def plain(id: str, what: str, build: Any, outcome: Outcome) -> Case:
    """A topology of the Processor API."""

    def do() -> None:
        topology = (
            ms.Topology()
            .add_source("source", "in", **TEXT)
            .add_processor("processor", Nothing, "source")
            .add_sink("sink", "out", "processor", **TEXT)
        )
        build(topology)
        check_topology(topology, config())

    return Case(id, what, do, outcome)


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


def store_of_another(topology: Any) -> None:
    topology.add_state_store(store()).add_state_store(store())


DSL = Family(
    "Programs of the DSL",
    "Refused in the line that is wrong, which the error names.",
    [
        Case(
            "nothing",
            "a topology without anything",
            started(lambda b: None),
            Refused(TopologyError, ["reads no topic", "builder.stream(...)"]),
        ),
        dsl(
            "no-serde",
            "a source without serdes",
            lambda b: b.stream("in").to("out"),
            Refused(ConfigError, ["no key serde", "key=", "topologies.py:"]),
        ),
        dsl(
            "no-sink-serde",
            "a sink whose type is not known",
            lambda b: stream(b).map_values(len).to("out"),
            Refused(ConfigError, ["no value serde", "value="]),
        ),
        dsl(
            "no-store-serde",
            "an aggregate whose type is not known",
            lambda b: stream(b).group_by_key().aggregate(int, lambda k, v, a: a + 1),
            Refused(ConfigError, ["has no serde for its values"]),
        ),
        dsl(
            "topic-number",
            "a number as a topic",
            lambda b: b.stream(5),
            Refused(TypeError, "reads a topic, several, or a pattern"),
        ),
        dsl("topic-empty", "an empty topic", lambda b: b.stream("", **TEXT), refused("empty")),
        dsl(
            "no-topics",
            "a list of no topics",
            lambda b: b.stream([], **TEXT),
            refused("at least one"),
        ),
        dsl(
            "topic-blank",
            "a topic with a blank",
            lambda b: b.stream("a b", **TEXT),
            refused("'a b'"),
        ),
        dsl("topic-dots", "the topic '..'", lambda b: b.stream("..", **TEXT), refused("'..'")),
        dsl(
            "topic-long",
            "a topic of 250 characters",
            lambda b: b.stream("a" * 250, **TEXT),
            refused("250 characters"),
        ),
        dsl(
            "topic-umlaut",
            "letters that are not ASCII",
            lambda b: b.stream("größe", **TEXT),
            refused("'größe'"),
        ),
        dsl(
            "sink-illegal",
            "an illegal topic that is written",
            lambda b: stream(b).to("a/b"),
            refused("'a/b'"),
        ),
        dsl(
            "read-twice",
            "topics that overlap",
            lambda b: (b.stream(["a", "b"], **TEXT), b.stream(["b", "c"], **TEXT)),
            refused("'b'", "two sources"),
        ),
        dsl(
            "pattern-twice",
            "a topic beside a pattern that matches it",
            sub_patterns,
            refused("'ab'"),
        ),
        dsl(
            "serdes-twice",
            "a topic read with two serdes",
            different_serdes,
            refused("different value serdes"),
        ),
        dsl("global-twice", "a global table made twice", global_twice, refused("in")),
        dsl("table-twice", "two tables of one store", two_counts, refused("'counts' already")),
        dsl(
            "name-twice",
            "a name for two operations",
            lambda b: stream(b).filter(lambda k, v: True, name="x").peek(print, name="x"),
            refused("called 'x'"),
        ),
        dsl(
            "name-illegal",
            "an illegal name",
            lambda b: stream(b).peek(print, name="a b"),
            refused("'a b'"),
        ),
        dsl(
            "name-number",
            "a number as a name",
            lambda b: stream(b).peek(print, name=5),
            refused("this one is 5"),
        ),
        dsl(
            "other-builder", "a stream of another builder", other_builder, refused("StreamsBuilder")
        ),
        dsl("built", "something added after build()", built_twice, refused("built already")),
        dsl(
            "counts",
            "a join of 2 and 3 partitions",
            two_partition_counts,
            Refused(CopartitionError, ["'left-repartition' has 2", "'right-repartition' has 3"]),
        ),
        dsl(
            "no-partitions",
            "a repartition topic of no partitions",
            lambda b: stream(b).repartition(partitions=0),
            refused("at least 1 partition"),
        ),
        dsl(
            "names-demanded",
            "generated names where explicit ones are demanded",
            lambda b: stream(b).group_by_key().count().to_stream().to("out", value=serdes.LONG),
            Refused(TopologyError, ["KSTREAM-AGGREGATE-STATE-STORE"]),
            ensure_explicit_internal_resource_naming=True,
        ),
        dsl(
            "no-function",
            "a value in place of a function",
            lambda b: stream(b).map_values(5),
            Refused(TypeError, ["needs a function as its mapper", "int: 5"]),
        ),
        dsl(
            "arguments",
            "a function of other arguments",
            lambda b: stream(b).filter(lambda v: True),
            Refused(TypeError, "predicate(key, value)"),
        ),
        dsl(
            "with-key",
            "a function of key and value without with_key",
            lambda b: stream(b).map_values(lambda k, v: v),
            Refused(TypeError, "with_key=True"),
        ),
        dsl(
            "async",
            "a function that is awaited",
            lambda b: stream(b).map_values(later),
            Refused(TypeError, ["async", "plain function"]),
        ),
        dsl(
            "serde-type",
            "a type in place of a serde",
            lambda b: b.stream("in", key=str),
            Refused(TypeError, ["Serde as its key", "<class 'str'>"]),
        ),
        dsl(
            "merge-table",
            "a stream merged with a table",
            lambda b: stream(b).merge(table(b, "t")),
            Refused(TypeError, "another KStream"),
        ),
        dsl(
            "join-itself",
            "a table joined with text",
            lambda b: table(b).join("other", both),
            Refused(TypeError, "needs another KTable, but got str"),
        ),
        dsl(
            "no-foreign-key",
            "a join by foreign key with a value in place of a function",
            lambda b: table(b).join(table(b, "t"), both, foreign_key="customer"),
            Refused(TypeError, "foreign_key"),
        ),
        dsl(
            "reset",
            "an unknown offset_reset",
            lambda b: b.stream("in", offset_reset="first", **TEXT),
            refused("'first'", "earliest"),
        ),
        dsl(
            "extractor",
            "text as a timestamp extractor",
            lambda b: b.stream("in", timestamp_extractor="time", **TEXT),
            Refused(TypeError, "timestamp_extractor"),
        ),
        dsl(
            "optimize",
            "an unknown optimization",
            lambda b: ms.StreamsBuilder(optimize="fast"),
            Refused(ConfigError, ["'fast'", "none, all"]),
        ),
        dsl(
            "logging",
            "text as logging",
            lambda b: stream(b).join(stream(b, "b"), both, NEAR, logging="no"),
            Refused(TypeError, "logging="),
        ),
    ],
)


async def later(value: Any) -> Any:
    return value


PROCESSORS = Family(
    "Topologies of the Processor API",
    "Refused in the line that is wrong, which the error names.",
    [
        plain(
            "name-twice",
            "a name for two nodes",
            lambda t: t.add_source("sink", "x"),
            refused("another node called 'sink'"),
        ),
        plain(
            "parent",
            "an unknown parent",
            lambda t: t.add_sink("b", "x", "zz"),
            refused("no parent 'zz'"),
        ),
        plain(
            "no-parent",
            "no parent",
            lambda t: t.add_processor("b", Nothing, []),
            refused("at least one parent"),
        ),
        plain(
            "own-parent",
            "a node that is its own parent",
            lambda t: t.add_processor("b", Nothing, "b"),
            refused("its own parent"),
        ),
        plain(
            "sink-parent",
            "a sink as a parent",
            lambda t: t.add_sink("b", "x", "sink"),
            refused("'sink' cannot be a parent"),
        ),
        plain(
            "topic-twice",
            "a topic that two sources read",
            lambda t: t.add_source("b", "in"),
            refused("'in' is read by another"),
        ),
        plain(
            "pattern",
            "a pattern that matches another source's topic",
            lambda t: t.add_source("b", re.compile("i.")),
            refused("'in' is read"),
        ),
        plain(
            "shared",
            "a supplier that gives one processor again and again",
            lambda t: t.add_processor("b", lambda: SHARED, "source"),
            refused("new processor at each call"),
        ),
        plain(
            "needy",
            "a processor's class that needs arguments",
            lambda t: t.add_processor("b", Needy, "source"),
            refused("without arguments"),
        ),
        plain(
            "no-processor",
            "a supplier that gives something else",
            lambda t: t.add_processor("b", dict, "source"),
            refused("process"),
        ),
        plain(
            "store-twice",
            "two stores of one name",
            store_of_another,
            refused("another store called 's'"),
        ),
        plain(
            "store-processor",
            "a store for a processor there is not",
            lambda t: t.add_state_store(store(), "zz"),
            refused("no processor 'zz'"),
        ),
        plain(
            "store-sink",
            "a store for a sink",
            lambda t: t.add_state_store(store(), "sink"),
            refused("to a processor only"),
        ),
        plain(
            "no-store",
            "a processor connected with a store there is not",
            lambda t: t.connect_processor_and_state_stores("processor", "nope"),
            refused("no store 'nope'"),
        ),
        plain(
            "supplier",
            "a supplier in place of a store's builder",
            lambda t: t.add_state_store(ms.Stores.in_memory_key_value("s"), "processor"),
            Refused(TypeError, "builder"),
        ),
        plain(
            "source-serde",
            "a type as a serde",
            lambda t: t.add_source("b", "x", key=str),
            Refused(TypeError, "Serde as its key"),
        ),
        plain(
            "sink-topic",
            "a number as a sink's topic",
            lambda t: t.add_sink("b", 5, "source"),
            Refused(TypeError, "function as its topic, but got int: 5"),
        ),
        plain(
            "partitioner",
            "a number as a partitioner",
            lambda t: t.add_sink("b", "x", "source", partitioner=5),
            Refused(TypeError, "partitioner"),
        ),
        plain(
            "topology",
            "None in place of a topology",
            lambda t: check_topology(_NONE, config()),
            Refused(TypeError, ["Topology", "None"]),
        ),
        plain(
            "config",
            "a dict in place of the settings",
            lambda t: check_topology(t, _DICT),
            Refused(TypeError, "StreamsConfig"),
        ),
    ],
)
_NONE: Any = None
_DICT: Any = {}
