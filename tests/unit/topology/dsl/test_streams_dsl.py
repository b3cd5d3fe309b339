"""The DSL: serdes, keys, stores and names of its operations, and rejected arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import CopartitionError, TopologyError
from millstream.serdes import JSON, LONG, STRING, Serde, json_of
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.stores import Stores
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KStream
from millstream.topology.operations.streams import Branch, Print
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.nodes import ProcessorNode, SinkNode, SourceNode
from millstream.topology.physical.topology import Topology


def keep(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


def source() -> KStream[str, int]:
    return StreamsBuilder().stream("in", key=STRING, value=LONG)


def sink_serdes(
    operations: Callable[[KStream[Any, Any]], KStream[Any, Any]],
) -> tuple[Serde[Any] | None, Serde[Any] | None]:
    """Return the serdes with which the result of some operations is written."""
    builder = StreamsBuilder()
    operations(builder.stream("in", key=STRING, value=LONG)).to("out", name="sink")
    node = builder.build().nodes["sink"]
    assert isinstance(node, SinkNode)
    return node.key_serde, node.value_serde


INHERITED: dict[str, tuple[Callable[[KStream[Any, Any]], KStream[Any, Any]], tuple[Any, Any]]] = {
    "filter": (lambda s: s.filter(lambda k, v: True), (STRING, LONG)),
    "filter_not": (lambda s: s.filter_not(lambda k, v: True), (STRING, LONG)),
    "peek": (lambda s: s.peek(lambda k, v: None), (STRING, LONG)),
    "branch": (lambda s: s.branch(lambda k, v: True)[0], (STRING, LONG)),
    "repartition": (lambda s: s.repartition(), (STRING, LONG)),
    "repartition with a serde": (
        lambda s: s.map(lambda k, v: (v, k)).repartition(key=LONG),
        (LONG, None),
    ),
    "map": (lambda s: s.map(lambda k, v: (k, v)), (None, None)),
    "flat_map": (lambda s: s.flat_map(lambda k, v: []), (None, None)),
    "map_values": (lambda s: s.map_values(str), (STRING, None)),
    "flat_map_values": (lambda s: s.flat_map_values(lambda v: [v]), (STRING, None)),
    "select_key": (lambda s: s.select_key(lambda k, v: v), (None, LONG)),
    "merge": (lambda s: s.merge(s.filter(lambda k, v: True)), (None, None)),
    "count": (lambda s: s.group_by_key().count().to_stream(), (STRING, LONG)),
    "count with a serde": (
        lambda s: s.group_by_key().count(store=Materialized(value=JSON)).to_stream(),
        (STRING, JSON),
    ),
    "reduce": (lambda s: s.group_by_key().reduce(max).to_stream(), (STRING, LONG)),
    "aggregate": (lambda s: s.group_by_key().aggregate(int, keep).to_stream(), (STRING, None)),
    "aggregate with serdes": (
        lambda s: (
            s.group_by(lambda k, v: v, key=LONG)
            .aggregate(list, keep, store=Materialized(value=JSON))
            .to_stream()
        ),
        (LONG, JSON),
    ),
    "group_by": (lambda s: s.group_by(lambda k, v: v).reduce(max).to_stream(), (None, LONG)),
    "to_stream with keys": (
        lambda s: s.group_by_key().count().to_stream(lambda k, v: v),
        (None, LONG),
    ),
}


@pytest.mark.parametrize("case", INHERITED)
def test_serdes_are_inherited_until_the_type_may_change(case: str) -> None:
    """An explicit serde takes precedence over that of the stream. Operations that may change types
    drop the serdes."""
    operations, serdes = INHERITED[case]
    assert sink_serdes(operations) == serdes


def test_repartition_topics_are_written_and_read_with_the_same_serdes() -> None:
    """Those of the grouping."""
    builder = StreamsBuilder()
    words = builder.stream("in", value=STRING)
    words.group_by(lambda _, word: len(word), key=LONG).count(store="c")
    nodes = builder.build().nodes
    written, read = nodes["c-repartition-sink"], nodes["c-repartition-source"]
    assert isinstance(written, SinkNode)
    assert isinstance(read, SourceNode)
    assert (written.key_serde, written.value_serde) == (LONG, STRING)
    assert (read.key_serde, read.value_serde) == (LONG, STRING)


REPARTITIONED: dict[str, tuple[Callable[[KStream[Any, Any]], KStream[Any, Any]], bool]] = {
    "nothing": (lambda s: s, False),
    "filter": (lambda s: s.filter(lambda k, v: True), False),
    "map_values": (lambda s: s.map_values(str), False),
    "flat_map_values": (lambda s: s.flat_map_values(lambda v: [v]), False),
    "peek": (lambda s: s.peek(lambda k, v: None), False),
    "select_key": (lambda s: s.select_key(lambda k, v: k), True),
    "map": (lambda s: s.map(lambda k, v: (k, v)), True),
    "flat_map": (lambda s: s.flat_map(lambda k, v: []), True),
    "select_key, filter": (lambda s: s.select_key(max).filter(lambda k, v: True), True),
    "select_key, split": (lambda s: s.select_key(max).branch(lambda k, v: True)[0], True),
    "select_key, repartition": (lambda s: s.select_key(max).repartition(), False),
    "merge with one": (lambda s: s.merge(s.select_key(max)), True),
    "merge into one": (lambda s: s.select_key(max).merge(s), True),
    "merge of none": (lambda s: s.merge(s.peek(max)), False),
    "table": (lambda s: s.select_key(max).group_by_key().count().to_stream(), False),
    "table with keys": (lambda s: s.group_by_key().count().to_stream(max), True),
}


@pytest.mark.parametrize("case", REPARTITIONED)
def test_aggregations_repartition_if_keys_may_have_changed(case: str) -> None:
    """Only then: an additional topic has a cost for each record."""
    operations, expected = REPARTITIONED[case]
    builder = StreamsBuilder()
    stream = operations(builder.stream("in", key=STRING, value=LONG))
    stream.group_by_key().count(store="last")
    assert ("last-repartition" in builder.build().internal_topics) is expected


def test_options_of_stores() -> None:
    """A name, a Materialized, and a store from Stores define the builder."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=STRING, value=LONG).group_by_key()
    grouped.count(store="by-name")
    config = {"retention.ms": "1"}
    grouped.reduce(max, store=Materialized("m", kind="in_memory", caching=False, logging=config))
    grouped.aggregate(int, keep, store=Stores.persistent_key_value("supplied"))
    grouped.reduce(min, store=Materialized(supplier=Stores.in_memory_key_value("s"), logging=False))
    assert builder.build().state_stores == {
        "by-name": KeyValueStoreBuilder(
            "by-name", None, STRING, LONG, timestamped=True, caching=True
        ),
        "m": KeyValueStoreBuilder(
            "m", "in_memory", STRING, LONG, timestamped=True, topic_config=config
        ),
        "supplied": KeyValueStoreBuilder(
            "supplied", "rocksdb", STRING, None, timestamped=True, caching=True
        ),
        "s": KeyValueStoreBuilder(
            "s", "in_memory", STRING, LONG, timestamped=True, caching=True, logging=False
        ),
    }


def test_only_stores_with_a_name_can_be_queried() -> None:
    """A generated name changes with the program, so it is not offered."""
    grouped = source().group_by_key()
    assert grouped.count(store="n").queryable_store_name == "n"
    assert grouped.count(store=Stores.in_memory_key_value("m")).queryable_store_name == "m"
    assert grouped.count().queryable_store_name is None
    assert grouped.count(store=Materialized(kind="in_memory")).queryable_store_name is None


def test_branches_are_children_of_the_node() -> None:
    """Children are in the order of the predicates, with the default branch last."""
    builder = StreamsBuilder()
    split = builder.stream("in").split(name="sp-")
    seen: list[KStream[Any, Any]] = []
    predicates = [lambda k, v: True, lambda k, v: False]
    split.branch(predicates[0], "a").branch(predicates[1], chain=seen.append)
    streams = split.default_branch("rest")
    assert list(streams) == ["sp-a", "sp-rest"]
    assert len(seen) == 1
    node = builder.build().nodes["sp-"]
    assert isinstance(node, ProcessorNode)
    assert node.operation == Branch(tuple(predicates), ("sp-a", "sp-2", "sp-rest"))


def test_chained_branches_are_the_results_of_their_chains() -> None:
    """With the name of the branch."""
    split = source().split(name="sp-")
    streams = split.branch(lambda k, v: True, "a", lambda s: s.peek(print)).no_default_branch()
    streams["sp-a"].to("out", name="sink")
    other = source().split()
    assert other.branch(lambda k, v: True, chain=lambda s: s.to("x")).no_default_branch() == {}


def test_print_is_labeled_with_the_previous_operation() -> None:
    """Unless the user passes a label."""
    builder = StreamsBuilder()
    stream = builder.stream("in", name="src")
    stream.print(name="p1")
    stream.print("label", file="f.txt", name="p2")
    nodes = builder.build().nodes
    printers = [nodes[name] for name in ("p1", "p2")]
    assert [node.operation for node in printers if isinstance(node, ProcessorNode)] == [
        Print("src"),
        Print("label", "f.txt"),
    ]


def test_sources_of_the_same_topics_are_merged() -> None:
    """Regardless of the order of topics, and also for patterns, if their options are equal."""
    topic = "any"

    def options() -> dict[str, Any]:
        # New objects each time, as in a program that creates them where it needs them.
        return {
            "key": json_of(list[int]),
            "value": Serde(encode, lambda _, data: decode(topic, data)),
            "timestamp_extractor": lambda record, partition_time: partition_time,
            "offset_reset": "latest",
        }

    builder = StreamsBuilder()
    builder.stream(["a", "b"], name="ab", **options()).to("o1")
    builder.stream(["b", "a"], **options()).to("o2")
    builder.stream(re.compile("x.*"), name="xs").to("o3")
    builder.stream(re.compile("x.*")).to("o4")
    builder.stream(re.compile("y.*"), name="ys").to("o5")
    nodes = builder.build().nodes
    sources = {name: node for name, node in nodes.items() if isinstance(node, SourceNode)}
    assert list(sources) == ["ab", "xs", "ys"]
    assert sources["ab"].key_serde == json_of(list[int])
    parents = [node.parents for node in nodes.values() if isinstance(node, SinkNode)]
    assert parents == [("ab",), ("ab",), ("xs",), ("xs",), ("ys",)]


def test_repr_of_streams_tables_and_builders() -> None:
    """For notebooks and debuggers: the node, the topics of its records, and known serdes."""
    builder = StreamsBuilder()
    words = builder.stream(["a", "b"], name="words", key=STRING, value=STRING)
    others = builder.stream(re.compile("x.*"), name="others")
    counts = words.group_by(lambda k, v: len(v), key=LONG).count(store="counts", name="count")
    rows = builder.table("rows", value=LONG, name="rows")
    builder.global_table("all", value=LONG, store="all")
    joined = words.map_values(len, name="lengths").join(rows, max, name="joined")
    assert repr(words) == "KStream('words', topics=['a', 'b'], key=STRING, value=STRING)"
    assert repr(words.merge(others, name="both")) == "KStream('both', topics=['a', 'b', 'x.*'])"
    assert repr(counts) == (
        "KTable('count', topics=['a', 'b'], key=LONG, value=LONG, store='counts')"
    )
    assert repr(joined) == "KStream('joined', topics=['a', 'b'], key=STRING)"
    assert re.fullmatch(
        r"StreamsBuilder\(\d+ operations, topics=\['a', 'b', 'x\.\*', 'rows', 'all'\]\)",
        repr(builder),
    )
    builder.build()
    assert repr(words) == "KStream('words', topics=['a', 'b'], key=STRING, value=STRING)"


def test_options_of_a_source_are_in_its_node() -> None:
    """Extractor, reset and serdes."""

    def extractor(record: Any, partition_time: int) -> int:
        return partition_time

    builder = StreamsBuilder()
    builder.stream(
        "in", value=LONG, timestamp_extractor=extractor, offset_reset=timedelta(hours=1), name="s"
    )
    assert builder.build().nodes["s"] == SourceNode(
        "s", ("in",), None, None, LONG, extractor, timedelta(hours=1)
    )


def test_options_of_sinks_and_repartitions_are_in_their_nodes() -> None:
    """Partitioners and enforced numbers of partitions."""

    def partitioner(topic: str, key: Any, value: Any, count: int) -> int:
        return 0

    def chooser(key: Any, value: Any, context: Any) -> str:
        return "out"

    builder = StreamsBuilder()
    stream = builder.stream("in").repartition(partitions=3, partitioner=partitioner, name="r")
    stream.to(chooser, partitioner=partitioner, name="sink")
    topology = builder.build()
    assert topology.internal_topics["r-repartition"].partitions == 3
    through, sink = topology.nodes["r-repartition-sink"], topology.nodes["sink"]
    assert isinstance(through, SinkNode)
    assert isinstance(sink, SinkNode)
    assert through.partitioner is sink.partitioner is partitioner
    assert sink.topic is chooser
    assert "(extractor class: " in str(topology.describe())
    assert chooser.__qualname__ in str(topology.describe())


def encode(topic: str, value: Any) -> bytes:
    return bytes(value)


def decode(topic: str, data: bytes) -> Any:
    return data


def read_twice(**options: Any) -> Callable[[StreamsBuilder], object]:
    """Return a program that reads topic "a" once for each value of an option."""
    [(name, values)] = options.items()

    def read(builder: StreamsBuilder) -> None:
        for value in values:
            arguments: Any = {name: value}
            builder.stream("a", **arguments).to("out")

    return read


def extractor_of(number: int) -> Callable[[Any, int], int]:
    return lambda record, partition_time: number


def add_two_sources(builder: StreamsBuilder, **options: Any) -> None:
    builder.stream(["a", "b"]).to("o1")
    builder.stream(**options).to("o2")


INVALID: dict[str, tuple[Callable[[StreamsBuilder], object], str]] = {
    "no topic": (lambda b: b.stream([]), "at least one topic"),
    "illegal topic": (lambda b: b.stream("a b"), "'a b' contains a character"),
    "unknown reset": (lambda b: b.stream("a", offset_reset="newest"), "no offset reset 'newest'"),
    "negative reset": (
        lambda b: b.stream("a", offset_reset=-timedelta(milliseconds=1)),
        "non-negative timedelta",
    ),
    "overlapping topics": (
        lambda b: add_two_sources(b, topics=["b", "c"]),
        "'b' is read by two sources with different sets of topics",
    ),
    "different resets": (
        lambda b: add_two_sources(b, topics=["a", "b"], offset_reset="latest"),
        "have different offset resets: the config's default (declared at ",
    ),
    "different keys": (
        lambda b: add_two_sources(b, topics=["a", "b"], key=STRING),
        "and STRING. A topic is read once: use the same option for both",
    ),
    "different values": (
        read_twice(value=(STRING, LONG)),
        "have different value serdes: STRING (declared at ",
    ),
    "different functions": (
        read_twice(value=(Serde(encode, decode), Serde(encode, encode))),
        "have different value serdes: Serde(encode, decode) (declared at ",
    ),
    "other closures": (
        read_twice(timestamp_extractor=(extractor_of(1), extractor_of(2))),
        "have different timestamp extractors: extractor_of.<locals>.<lambda> (declared at ",
    ),
    "different extractors": (
        lambda b: add_two_sources(b, topics=["a", "b"], timestamp_extractor=max),
        "have different timestamp extractors: the config's default (declared at ",
    ),
    "stream and table": (
        lambda b: (b.stream("a", value=LONG).peek(print), b.table("a", value=STRING, store="s")),
        "'a' is already read by another source, 'KSTREAM-SOURCE-0000000000' declared at",
    ),
    "table and table": (
        lambda b: [b.table("a", value=serde, store=None) for serde in (STRING, LONG)],
        "'a' is already read by another source, 'KSTREAM-SOURCE-",
    ),
    "topic under a pattern": (
        lambda b: add_two_sources(b, topics=re.compile("a|x")),
        "'a' is already read by another source",
    ),
    "illegal name": (lambda b: b.stream("a").peek(print, name="a/b"), "'a/b' contains a character"),
    "empty name": (lambda b: b.stream("a").peek(print, name=""), "must not be empty"),
    "dots": (lambda b: b.stream("a").group_by_key(name=".."), "Kafka does not allow the name '..'"),
    "long name": (lambda b: b.stream("a").to("b", name="n" * 250), "has 250 characters"),
    "illegal store name": (
        lambda b: b.stream("a").group_by_key().count(store="é"),
        "'é' contains a character",
    ),
    "illegal store of a supplier": (
        lambda b: b.stream("a").group_by_key().count(store=Stores.in_memory_key_value("a b")),
        "'a b' contains a character",
    ),
    "name used twice": (
        lambda b: b.stream("a").peek(print, name="x").to("o", name="x"),
        "another node called 'x', declared at",
    ),
    "store used twice": (
        lambda b: [b.stream("a").group_by_key().count(store="s") for _ in range(2)],
        "another store called 's'",
    ),
    "no partitions": (lambda b: b.stream("a").repartition(partitions=0), "at least 1 partition"),
    "foreign stream": (lambda b: b.stream("a").merge(source()), "of the same StreamsBuilder"),
    "illegal sink": (lambda b: b.stream("a").to("o/p"), "'o/p' contains a character"),
    "supplier and kind": (
        lambda b: Materialized(supplier=Stores.in_memory_key_value("m"), kind="rocksdb"),
        "not both",
    ),
    "unknown kind": (
        lambda b: Materialized("m", kind="redis"),  # type: ignore[arg-type]
        "no kind of store called 'redis'",
    ),
    "versioned": (
        lambda b: b.stream("a").group_by_key().count(store=Materialized("v", kind="versioned")),
        "needs a history retention",
    ),
    "retention": (
        lambda b: (
            b.stream("a").group_by_key().count(store=Materialized(retention=timedelta(days=1)))
        ),
        "for windows and sessions only",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_error_contains_the_location(case: str) -> None:
    """The error contains the line of the program, also if build() raises it."""
    call, message = INVALID[case]

    def program() -> None:
        builder = StreamsBuilder()
        call(builder)
        builder.build()

    with pytest.raises(TopologyError, match=re.escape(message)) as caught:
        program()
    assert "test_streams_dsl.py:" in str(caught.value)


FUNCTIONS: dict[str, Callable[[KStream[Any, Any], Any], object]] = {
    "filter": lambda s, f: s.filter(f),
    "filter_not": lambda s, f: s.filter_not(f),
    "map": lambda s, f: s.map(f),
    "map_values": lambda s, f: s.map_values(f),
    "flat_map": lambda s, f: s.flat_map(f),
    "flat_map_values": lambda s, f: s.flat_map_values(f),
    "select_key": lambda s, f: s.select_key(f),
    "peek": lambda s, f: s.peek(f),
    "for_each": lambda s, f: s.for_each(f),
    "to": lambda s, f: s.to(f),
    "group_by": lambda s, f: s.group_by(f),
    "branch": lambda s, f: s.split().branch(f),
    "reduce": lambda s, f: s.group_by_key().reduce(f),
    "aggregate": lambda s, f: s.group_by_key().aggregate(f, max),
}


@pytest.mark.parametrize("operation", FUNCTIONS)
def test_invalid_functions_are_rejected_at_their_declaration(operation: str) -> None:
    """Not when the first record arrives on a worker."""
    with pytest.raises(TypeError, match=rf"^{operation}\(\) needs a function .* got int: 7"):
        FUNCTIONS[operation](source(), 7)


def test_join_partners_with_different_partition_counts_are_rejected_by_build() -> None:
    """The graph propagates co-partitioning, also for merged sources."""
    builder = StreamsBuilder()
    streams = [builder.stream("in").repartition(partitions=n, name=f"r{n}") for n in (2, 3)]
    graph = streams[0]._part.graph
    graph.copartition(streams[0]._part.sources | streams[1]._part.sources)
    with pytest.raises(
        CopartitionError, match=r"'r2-repartition' has 2 .*, 'r3-repartition' has 3 "
    ):
        builder.build()


def test_copartitioning_applies_to_merged_sources() -> None:
    """The second source of a topic is not a node of its own, but its topic counts."""
    builder = StreamsBuilder()
    builder.stream("a").to("o")
    second, other = builder.stream("a"), builder.stream("b")
    second._part.graph.copartition(second._part.sources | other._part.sources)
    assert builder.build()._copartitioned.groups() == [frozenset(["a", "b"])]


def test_build_ends_the_program() -> None:
    """build() returns the same topology again. A later operation would be lost, so it is
    rejected."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("out")
    topology = builder.build()
    assert builder.build() is topology
    with pytest.raises(TopologyError, match="already been built"):
        stream.to("out2")


def test_stores_of_the_builder() -> None:
    """A store is in the topology for processors to connect to; a builder can be added again."""
    builder = StreamsBuilder()
    store = KeyValueStoreBuilder("s")
    builder.add_state_store(store).add_state_store(store)
    assert builder.build().state_stores == {"s": store}


def topology_without_names() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda k, v: v)
    stream.group_by_key().count(store="named")
    stream.group_by_key(name="grouped").count()
    stream.group_by_key(name="quiet").reduce(max, store=Materialized(logging=False))
    stream.repartition()
    stream.group_by_key().count()
    return builder.build()


def test_generated_names_are_reported() -> None:
    """They would change if an operator were inserted."""
    assert topology_without_names().generated_names() == {
        "changelog topics": [
            "KSTREAM-AGGREGATE-STATE-STORE-0000000006-changelog",
            "KSTREAM-AGGREGATE-STATE-STORE-0000000020-changelog",
        ],
        "state stores": [
            "KSTREAM-AGGREGATE-STATE-STORE-0000000006",
            "KSTREAM-REDUCE-STATE-STORE-0000000011",
            "KSTREAM-AGGREGATE-STATE-STORE-0000000020",
        ],
        "repartition topics": [
            "KSTREAM-REPARTITION-0000000016-repartition",
            "KSTREAM-AGGREGATE-STATE-STORE-0000000020-repartition",
        ],
    }


def test_generated_names_can_be_rejected() -> None:
    """The error lists all of them, by kind."""
    with pytest.raises(TopologyError) as caught:
        topology_without_names().check_explicit_names()
    assert "state stores: KSTREAM-AGGREGATE-STATE-STORE-0000000006, KSTREAM" in str(caught.value)
    assert "repartition topics: KSTREAM-REPARTITION-0000000016" in str(caught.value)
    builder = StreamsBuilder()
    builder.stream("in").group_by(max, name="g").count(store="s").to_stream().to("out")
    builder.build().check_explicit_names()


def test_aggregations_behind_one_filter_share_a_topic() -> None:
    """Kafka Streams fails to optimize this program; here both aggregations read the merged
    topic."""
    builder = StreamsBuilder(optimize=True)
    rekeyed = builder.stream("in").select_key(max, name="rekey").filter(lambda k, v: True, name="f")
    rekeyed.group_by_key().count(store="c", name="count")
    rekeyed.group_by_key().reduce(max, store="r", name="reduce")
    topology = builder.build()
    assert list(topology.internal_topics) == ["c-repartition"]
    parents = {
        name: node.parents for name, node in topology.nodes.items() if hasattr(node, "parents")
    }
    assert parents["f"] == ("c-repartition-source",)
    assert parents["count"] == parents["reduce"] == ("f",)


def test_topics_are_not_merged_if_other_records_would_bypass_them() -> None:
    """Kafka Streams merges here, and then counts records that are not partitioned by their key."""
    builder = StreamsBuilder(optimize=True)
    one = builder.stream("in").map(max)
    two = one.map(max)
    two.group_by_key().count(store="some")
    two.merge(one).group_by_key().count(store="all")
    topology = builder.build()
    assert list(topology.internal_topics) == ["some-repartition", "all-repartition"]


def test_merging_requires_equal_values_on_every_path() -> None:
    """The topic of the first grouping contains numbers, that of the second one text."""
    builder = StreamsBuilder(optimize=True)
    rekeyed = builder.stream("in").select_key(max).filter(max)
    rekeyed.group_by_key(value=LONG).count(store="numbers")
    rekeyed.map_values(str).merge(rekeyed).group_by_key(value=STRING).count(store="text")
    assert "text-repartition" in builder.build().internal_topics


def test_explicit_repartitions_are_never_merged() -> None:
    """Each of them was requested."""
    builder = StreamsBuilder(optimize=True)
    rekeyed = builder.stream("in").select_key(max)
    rekeyed.repartition(name="one").to("o1")
    rekeyed.repartition(name="two").to("o2")
    assert list(builder.build().internal_topics) == ["one-repartition", "two-repartition"]
