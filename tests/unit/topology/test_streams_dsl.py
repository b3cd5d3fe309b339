"""The DSL: what each word makes of serdes, keys, stores and names, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import CopartitionError, TopologyError
from millstream.serdes import JSON, LONG, STRING, Serde, json_of
from millstream.state.builders.key_value import KeyValueStoreBuilder
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
    """The serdes with which the result of some operations is written."""
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
    "repartition, given": (
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
    "count, given": (
        lambda s: s.group_by_key().count(store=Materialized(value=JSON)).to_stream(),
        (STRING, JSON),
    ),
    "reduce": (lambda s: s.group_by_key().reduce(max).to_stream(), (STRING, LONG)),
    "aggregate": (lambda s: s.group_by_key().aggregate(int, keep).to_stream(), (STRING, None)),
    "aggregate, given": (
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
    """An explicit serde wins, then that of the stream; a mapper may change types, so forgets."""
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
def test_aggregations_repartition_where_keys_may_have_changed(case: str) -> None:
    """Only then: a topic more than needed is paid for with each record."""
    operations, expected = REPARTITIONED[case]
    builder = StreamsBuilder()
    stream = operations(builder.stream("in", key=STRING, value=LONG))
    stream.group_by_key().count(store="last")
    assert ("last-repartition" in builder.build().internal_topics) is expected


def test_store_choices() -> None:
    """A name, a Materialized, and a store from Stores all say what the builder should be."""
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
    """A generated name moves when the program changes, so it is not offered."""
    grouped = source().group_by_key()
    assert grouped.count(store="n").queryable_store_name == "n"
    assert grouped.count(store=Stores.in_memory_key_value("m")).queryable_store_name == "m"
    assert grouped.count().queryable_store_name is None
    assert grouped.count(store=Materialized(kind="in_memory")).queryable_store_name is None


def test_branches_are_told_to_the_node() -> None:
    """Children in the order of the predicates, the default branch last."""
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


def test_chained_branches_are_what_the_chain_returns() -> None:
    """Under the branch's name."""
    split = source().split(name="sp-")
    streams = split.branch(lambda k, v: True, "a", lambda s: s.peek(print)).no_default_branch()
    streams["sp-a"].to("out", name="sink")
    other = source().split()
    assert other.branch(lambda k, v: True, chain=lambda s: s.to("x")).no_default_branch() == {}


def test_print_is_labelled_with_the_operation_before() -> None:
    """Unless the user gives a label."""
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


def test_sources_of_the_same_topics_are_one() -> None:
    """Whatever the order of the topics, and for patterns, if the options are the same."""
    topic = "any"

    def options() -> dict[str, Any]:
        # Made anew each time, as a program does that makes them where it needs them.
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


def test_what_a_program_holds_says_what_it_is() -> None:
    """In a notebook or a debugger: the node, where its records come from, and known serdes."""
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


def test_options_of_a_source_arrive() -> None:
    """Extractor, reset and serdes are on the source node."""

    def extractor(record: Any, partition_time: int) -> int:
        return partition_time

    builder = StreamsBuilder()
    builder.stream(
        "in", value=LONG, timestamp_extractor=extractor, offset_reset=timedelta(hours=1), name="s"
    )
    assert builder.build().nodes["s"] == SourceNode(
        "s", ("in",), None, None, LONG, extractor, timedelta(hours=1)
    )


def test_options_of_sinks_and_repartitions_arrive() -> None:
    """Partitioners and enforced counts are on the nodes and topics."""

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


def reading(**options: Any) -> Callable[[StreamsBuilder], object]:
    """Topic "a" read twice, with each of several options in turn."""
    [(name, values)] = options.items()

    def read(builder: StreamsBuilder) -> None:
        for value in values:
            given: Any = {name: value}
            builder.stream("a", **given).to("out")

    return read


def at(number: int) -> Callable[[Any, int], int]:
    return lambda record, partition_time: number


def twice(builder: StreamsBuilder, **options: Any) -> None:
    builder.stream(["a", "b"]).to("o1")
    builder.stream(**options).to("o2")


REFUSED: dict[str, tuple[Callable[[StreamsBuilder], object], str]] = {
    "no topic": (lambda b: b.stream([]), "at least one topic"),
    "illegal topic": (lambda b: b.stream("a b"), "'a b' holds a character"),
    "unknown reset": (lambda b: b.stream("a", offset_reset="newest"), "no offset reset 'newest'"),
    "negative reset": (
        lambda b: b.stream("a", offset_reset=-timedelta(milliseconds=1)),
        "not a negative one",
    ),
    "overlapping topics": (
        lambda b: twice(b, topics=["b", "c"]),
        "'b' is read by two sources which do not read the same topics otherwise",
    ),
    "different resets": (
        lambda b: twice(b, topics=["a", "b"], offset_reset="latest"),
        "have different offset resets: the config's default (declared at ",
    ),
    "different keys": (
        lambda b: twice(b, topics=["a", "b"], key=STRING),
        "and STRING. A topic is read once, so give both the same",
    ),
    "different values": (
        reading(value=(STRING, LONG)),
        "have different value serdes: STRING (declared at ",
    ),
    "different functions": (
        reading(value=(Serde(encode, decode), Serde(encode, encode))),
        "have different value serdes: Serde(encode, decode) (declared at ",
    ),
    "other closures": (
        reading(timestamp_extractor=(at(1), at(2))),
        "have different timestamp extractors: at.<locals>.<lambda> (declared at ",
    ),
    "different extractors": (
        lambda b: twice(b, topics=["a", "b"], timestamp_extractor=max),
        "have different timestamp extractors: the config's default (declared at ",
    ),
    "stream and table": (
        lambda b: (b.stream("a", value=LONG).peek(print), b.table("a", value=STRING, store="s")),
        "'a' is read by another source already, 'KSTREAM-SOURCE-0000000000' declared at",
    ),
    "table and table": (
        lambda b: [b.table("a", value=serde, store=None) for serde in (STRING, LONG)],
        "'a' is read by another source already, 'KSTREAM-SOURCE-",
    ),
    "topic under a pattern": (
        lambda b: twice(b, topics=re.compile("a|x")),
        "'a' is read by another source already",
    ),
    "illegal name": (lambda b: b.stream("a").peek(print, name="a/b"), "'a/b' holds"),
    "empty name": (lambda b: b.stream("a").peek(print, name=""), "must not be empty"),
    "dots": (lambda b: b.stream("a").group_by_key(name=".."), "'..' is not a name"),
    "long name": (lambda b: b.stream("a").to("b", name="n" * 250), "has 250 characters"),
    "illegal store name": (lambda b: b.stream("a").group_by_key().count(store="é"), "'é' holds"),
    "illegal store of a supplier": (
        lambda b: b.stream("a").group_by_key().count(store=Stores.in_memory_key_value("a b")),
        "'a b' holds",
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
    "foreign stream": (lambda b: b.stream("a").merge(source()), "of one StreamsBuilder"),
    "illegal sink": (lambda b: b.stream("a").to("o/p"), "'o/p' holds"),
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
        "must know how long",
    ),
    "retention": (
        lambda b: (
            b.stream("a").group_by_key().count(store=Materialized(retention=timedelta(days=1)))
        ),
        "for windows and sessions only",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_place(case: str) -> None:
    """The error names the line of the user's program, also when build() finds it."""
    call, message = REFUSED[case]

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
def test_what_cannot_be_called_is_refused_at_once(operation: str) -> None:
    """Not when the first record arrives on some worker."""
    with pytest.raises(TypeError, match=rf"^{operation}\(\) needs a function .* got int: 7"):
        FUNCTIONS[operation](source(), 7)


def test_join_partners_with_different_counts_are_refused_when_built() -> None:
    """The graph passes co-partitioning on, also of sources that were merged away."""
    builder = StreamsBuilder()
    streams = [builder.stream("in").repartition(partitions=n, name=f"r{n}") for n in (2, 3)]
    graph = streams[0]._part.graph
    graph.copartition(streams[0]._part.sources | streams[1]._part.sources)
    with pytest.raises(
        CopartitionError, match=r"'r2-repartition' has 2 .*, 'r3-repartition' has 3 "
    ):
        builder.build()


def test_copartitioning_follows_a_source_that_was_merged_away() -> None:
    """The second source of a topic is no node of its own, but its topic counts."""
    builder = StreamsBuilder()
    builder.stream("a").to("o")
    again, other = builder.stream("a"), builder.stream("b")
    again._part.graph.copartition(again._part.sources | other._part.sources)
    assert builder.build()._copartition_groups() == [frozenset(["a", "b"])]


def test_building_ends_the_program() -> None:
    """build() gives the same topology again; an operation after it would be lost, so is refused."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("out")
    topology = builder.build()
    assert builder.build() is topology
    with pytest.raises(TopologyError, match="built already"):
        stream.to("out2")


def test_stores_of_the_builder() -> None:
    """A store is in the topology for processors to connect to; the same builder may come again."""
    builder = StreamsBuilder()
    store = KeyValueStoreBuilder("s")
    builder.add_state_store(store).add_state_store(store)
    assert builder.build().state_stores == {"s": store}


def unnamed() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda k, v: v)
    stream.group_by_key().count(store="named")
    stream.group_by_key(name="grouped").count()
    stream.group_by_key(name="quiet").reduce(max, store=Materialized(logging=False))
    stream.repartition()
    stream.group_by_key().count()
    return builder.build()


def test_generated_names_are_known() -> None:
    """What would be left behind if an operator were inserted."""
    assert unnamed().generated_names() == {
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


def test_generated_names_can_be_refused() -> None:
    """The error lists them all, by kind."""
    with pytest.raises(TopologyError) as caught:
        unnamed().check_explicit_names()
    assert "state stores: KSTREAM-AGGREGATE-STATE-STORE-0000000006, KSTREAM" in str(caught.value)
    assert "repartition topics: KSTREAM-REPARTITION-0000000016" in str(caught.value)
    builder = StreamsBuilder()
    builder.stream("in").group_by(max, name="g").count(store="s").to_stream().to("out")
    builder.build().check_explicit_names()


def test_aggregations_behind_one_filter_share_a_topic() -> None:
    """Kafka Streams fails to optimize this one; here both aggregations read the merged topic."""
    builder = StreamsBuilder(optimize=True)
    kept = builder.stream("in").select_key(max, name="rekey").filter(lambda k, v: True, name="f")
    kept.group_by_key().count(store="c", name="count")
    kept.group_by_key().reduce(max, store="r", name="reduce")
    topology = builder.build()
    assert list(topology.internal_topics) == ["c-repartition"]
    parents = {
        name: node.parents for name, node in topology.nodes.items() if hasattr(node, "parents")
    }
    assert parents["f"] == ("c-repartition-source",)
    assert parents["count"] == parents["reduce"] == ("f",)


def test_topics_are_not_merged_where_other_records_would_bypass_them() -> None:
    """Kafka Streams merges here, and then counts records that were not placed by their key."""
    builder = StreamsBuilder(optimize=True)
    one = builder.stream("in").map(max)
    two = one.map(max)
    two.group_by_key().count(store="some")
    two.merge(one).group_by_key().count(store="all")
    topology = builder.build()
    assert list(topology.internal_topics) == ["some-repartition", "all-repartition"]


def test_merging_needs_equal_values_on_every_way() -> None:
    """The topic of the first grouping holds numbers, that of the second one text."""
    builder = StreamsBuilder(optimize=True)
    kept = builder.stream("in").select_key(max).filter(max)
    kept.group_by_key(value=LONG).count(store="numbers")
    kept.map_values(str).merge(kept).group_by_key(value=STRING).count(store="text")
    assert "text-repartition" in builder.build().internal_topics


def test_explicit_repartitions_are_never_merged() -> None:
    """The user asked for each of them."""
    builder = StreamsBuilder(optimize=True)
    rekeyed = builder.stream("in").select_key(max)
    rekeyed.repartition(name="one").to("o1")
    rekeyed.repartition(name="two").to("o2")
    assert list(builder.build().internal_topics) == ["one-repartition", "two-repartition"]
