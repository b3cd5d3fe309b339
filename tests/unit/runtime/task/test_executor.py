"""Batches through a sub-topology give what single records, depth-first, would give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import Operator, Output
from millstream.processor.handlers import LogAndFailProcessingExceptionHandler
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.compile_operator import compile_operator
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.node_context import Dropped, NodeContext, SinkErrors
from millstream.runtime.task.sinks import Sink, SinkMeeting
from millstream.runtime.task.steps import (
    independent_nodes,
    meeting_sinks,
    needs_order,
    plan_steps,
)
from millstream.serdes import STRING
from millstream.testing.driver_topics import CapturingCollector
from millstream.topology.operations.operation import Operation
from millstream.topology.operations.streams import (
    Branch,
    Filter,
    FlatMapValues,
    MapValues,
    PassThrough,
)
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode

TASK = TaskId(0, 0)


def source(name: str = "source", topic: str = "in") -> SourceNode:
    return SourceNode(name, (topic,))


@dataclass(frozen=True)
class Made(Operation):
    """An operation whose operator the test brings."""

    make: Callable[[], Operator]


@compile_operator.register
def _(operation: Made) -> Operator:
    return operation.make()


def node(
    name: str,
    does: Operation | Callable[[], Operator],
    *parents: str,
    stores: tuple[str, ...] = (),
) -> ProcessorNode:
    operation = does if isinstance(does, Operation) else Made(does)
    return ProcessorNode(name, operation, parents or ("source",), stores)


def sink(name: str, topic: Any, *parents: str) -> SinkNode:
    return SinkNode(name, topic, None, None, None, parents)


def append(text: str) -> Operation:
    return MapValues(lambda value: value + text)


def repeat(times: int) -> Operation:
    return FlatMapValues(lambda value: [f"{value}{i}" for i in range(times)])


class Run:
    """An executor at work; sinks write into a list."""

    def __init__(self, *nodes: Node, order_across_topics: bool = False) -> None:
        self.collector = CapturingCollector()
        self.stores: dict[str, Any] = {}
        self.executor = Executor(
            nodes, self._context, self._sink, order_across_topics=order_across_topics
        )
        self.executor.init()

    def _context(self, of: ProcessorNode, output: Output) -> NodeContext:
        for name in of.stores:
            self.stores.setdefault(name, [])
        stores = {name: self.stores[name] for name in of.stores}
        handler = LogAndFailProcessingExceptionHandler()
        return NodeContext(of.name, TASK, ManualClock(), output, stores, handler, Dropped(TASK))

    def _sink(self, of: SinkNode, meeting: SinkMeeting | None) -> Sink:
        errors = SinkErrors(None, Dropped(TASK), of.name, TASK)
        return Sink(of.name, TASK, of.topic, STRING, STRING, None, self.collector, meeting, errors)

    def feed(self, *values: str, rows: dict[str, list[int]] | None = None) -> list[tuple[str, str]]:
        """Topic and value of what is written for a batch of records.

        `rows` deals the records out to several sources.
        """
        origin = Origin(TopicPartition("in", 0), range(len(values)))
        batches = []
        for name, own in (rows or {"source": list(range(len(values)))}).items():
            order: Any = [(row,) for row in own] if self.executor.ordered else None
            columns = ["k" for _ in own], [values[row] for row in own], list(own)
            batches.append((name, Batch(*columns, own, origin, order)))
        self.executor.run(batches)
        return self.written()

    def written(self) -> list[tuple[str, str]]:
        return [(record.topic, (record.value or b"").decode()) for record in self.collector.take()]


def values_of(topic: str, written: list[tuple[str, str]]) -> list[str]:
    return [value for name, value in written if name == topic]


def test_a_diamond_alternates_as_single_records_do() -> None:
    """Fork and merge: each record takes both paths before the next one comes."""
    run = Run(
        source(),
        node("left", append("l")),
        node("right", append("r")),
        node("merge", PassThrough(), "left", "right"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", run.feed("a", "b")) == ["al", "ar", "bl", "br"]


def test_one_flat_map_before_the_fork_and_one_on_each_side() -> None:
    """Before the fork: a0l a0r a1l a1r. On each side: a0l a1l a0r a1r."""
    before = Run(
        source(),
        node("many", repeat(2)),
        node("left", append("l"), "many"),
        node("right", append("r"), "many"),
        node("merge", PassThrough(), "left", "right"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", before.feed("a", "b")) == [
        *("a0l", "a0r", "a1l", "a1r"),
        *("b0l", "b0r", "b1l", "b1r"),
    ]
    beside = Run(
        source(),
        node("left", repeat(2)),
        node("right", repeat(2)),
        node("merge", PassThrough(), "left", "right"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", beside.feed("a", "b")) == ["a0", "a1"] * 2 + ["b0", "b1"] * 2


def test_a_short_and_a_long_way_to_one_merge() -> None:
    """The child that was attached first comes first, however many nodes lie below it."""
    run = Run(
        source(),
        node("first", append("1")),
        node("second", append("2"), "first"),
        node("short", append("s")),
        node("third", append("3"), "second"),
        node("merge", PassThrough(), "short", "third"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", run.feed("a", "b")) == ["a123", "as", "b123", "bs"]


def test_records_of_several_sources_meet_in_the_order_of_taking() -> None:
    run = Run(
        source("one", "in-1"),
        source("two", "in-2"),
        node("merge", PassThrough(), "two", "one"),
        sink("out", "out", "merge"),
    )
    rows = {"one": [0, 3], "two": [1, 2]}
    assert values_of("out", run.feed("a", "b", "c", "d", rows=rows)) == ["a", "b", "c", "d"]


def test_two_sinks_on_one_topic() -> None:
    run = Run(
        source(),
        sink("plain", "out", "source"),
        node("more", append("!")),
        sink("loud", "out", "more"),
        sink("other", "other", "more"),
    )
    written = run.feed("a", "b")
    assert values_of("out", written) == ["a", "a!", "b", "b!"]
    assert values_of("other", written) == ["a!", "b!"]


def test_a_dynamic_sink_may_meet_any_other() -> None:
    """Its topics are only known record by record."""
    run = Run(
        source(),
        sink("chosen", lambda key, value, context: "out" if value < "c" else "rest", "source"),
        node("more", append("!")),
        sink("loud", "out", "more"),
    )
    written = run.feed("a", "c", "b")
    assert values_of("out", written) == ["a", "a!", "c!", "b", "b!"]
    assert values_of("rest", written) == ["c"]


def test_a_branch_and_what_meets_behind_it() -> None:
    run = Run(
        source(),
        node("split", Branch((lambda k, v: v < "c",), ("low", "high"))),
        node("low", append("l"), "split"),
        node("high", repeat(2), "split"),
        node("merge", PassThrough(), "low", "high"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", run.feed("d", "a", "c")) == ["d0", "d1", "al", "c0", "c1"]


def test_order_across_topics_is_that_of_single_records() -> None:
    """Only where it is asked for: it costs an order for every record."""

    def nodes() -> list[Node]:
        return [
            source(),
            node("slow", append("s")),
            node("slower", append("r"), "slow"),
            sink("first", "one", "slower"),
            sink("second", "two", "source"),
        ]

    written = Run(*nodes(), order_across_topics=True).feed("a", "b")
    assert written == [("one", "asr"), ("two", "a"), ("one", "bsr"), ("two", "b")]
    relaxed = Run(*nodes())
    assert not relaxed.executor.ordered
    assert sorted(relaxed.feed("a", "b")) == sorted(written)


class Remembers(Operator):
    """Adds what it gets to a shared list, and hands on what the list holds by then."""

    def process(self, batch: Batch, output: Output) -> None:
        shared = self.context.store("shared")
        values = []
        for value in batch.values:
            shared.append(value)
            values.append("".join(shared))
        output.emit(batch.with_values(values))


def test_nodes_that_share_a_store_see_each_other_record_by_record() -> None:
    run = Run(
        source(),
        node("left", append("l")),
        node("right", append("r")),
        node("writer", Remembers, "left", stores=("shared",)),
        node("reader", Remembers, "right", stores=("shared",)),
        sink("one", "one", "writer"),
        sink("two", "two", "reader"),
    )
    written = run.feed("a", "b")
    assert values_of("one", written) == ["al", "alarbl"]
    assert values_of("two", written) == ["alar", "alarblbr"]


def test_what_lies_between_two_users_of_a_store_belongs_to_their_step() -> None:
    """Each record reaches the second user before the next one reaches the first."""
    nodes: list[Node] = [
        source(),
        node("before", append("b")),
        node("first", Remembers, "before", stores=("shared",)),
        node("between", repeat(2), "first"),
        node("second", Remembers, "between", stores=("shared",)),
        node("beside", append("!"), "first"),
        sink("out", "out", "second"),
        sink("aside", "aside", "beside"),
    ]
    assert ["first", "between", "second"] in plan_steps(nodes)
    written = Run(*nodes).feed("x", "y")
    # first: xb. second: xb0, xb1, each after what the list holds by then.
    assert values_of("out", written)[:2] == ["xbxb0", "xbxb0xb1"]
    assert values_of("aside", written) == ["xb!", "xbxb0xb1yb!"]


def test_records_waiting_before_a_step_go_in_by_place() -> None:
    """Two ways into one step: the records alternate although they arrive as two batches."""
    nodes: list[Node] = [
        source(),
        node("left", repeat(2)),
        node("right", append("r")),
        node("one", Remembers, "left", stores=("shared",)),
        node("two", Remembers, "right", stores=("shared",)),
        sink("out", "out", "one", "two"),
    ]
    assert values_of("out", Run(*nodes).feed("a", "b")) == [
        "a0",
        "a0a1",
        "a0a1ar",
        "a0a1arb0",
        "a0a1arb0b1",
        "a0a1arb0b1br",
    ]


class Holds(Operator):
    """Holds values back until a flush, as a record cache does."""

    def __init__(self, store: str) -> None:
        self._store = store

    @property
    def holds_back_in(self) -> str:
        return self._store

    def init(self, context: Any) -> None:
        super().init(context)
        self._held: list[str] = []

    def process(self, batch: Batch, output: Output) -> None:
        self._held += batch.values

    def flush(self) -> None:
        held, self._held = self._held, []
        size = len(held)
        origin = Origin(None, [-1] * size)
        order: Any = [(i,) for i in range(size)]
        columns = ["k"] * size, held, [0] * size
        self.context.output.emit(Batch(*columns, range(size), origin, order))


def test_a_flush_goes_through_node_by_node() -> None:
    """What one flush writes into the next node's store leaves with that node's own flush."""
    run = Run(
        source(),
        node("one", partial(Holds, "store of one")),
        node("two", partial(Holds, "store of two"), "one"),
        sink("out", "out", "two"),
        sink("early", "early", "one"),
    )
    assert run.feed("a", "b") == []
    run.executor.flush("store of two")
    assert run.written() == []
    run.executor.flush("store of one")
    assert sorted(run.written()) == [("early", "a"), ("early", "b")]
    run.executor.flush("store of two")
    assert run.written() == [("out", "a"), ("out", "b")]
    run.executor.flush("store of one")
    run.executor.flush("store of two")
    assert run.written() == []


def test_an_operator_may_emit_an_empty_batch() -> None:
    """Nobody downstream is called with nothing."""

    class Nothing(Operator):
        def process(self, batch: Batch, output: Output) -> None:
            output.emit(batch.select([False] * len(batch)))
            output.emit_to("next", batch.select([False] * len(batch)))

    class Refuses(Operator):
        def process(self, batch: Batch, output: Output) -> None:
            raise AssertionError(len(batch))

    run = Run(source(), node("nothing", Nothing), node("next", Refuses, "nothing"))
    assert run.feed("a") == []


def test_every_operator_is_closed_even_if_one_fails() -> None:
    closed: list[str] = []

    class Closes(Operator):
        def __init__(self, name: str) -> None:
            self._name = name

        def close(self) -> None:
            closed.append(self._name)
            if self._name == "a":
                raise ValueError(self._name)

    run = Run(source(), node("a", partial(Closes, "a")), node("b", partial(Closes, "b"), "a"))
    with pytest.raises(ValueError, match="a"):
        run.executor.close()
    assert closed == ["a", "b"]


def test_order_is_only_kept_where_paths_meet() -> None:
    """A chain and a tree need none: their records carry no places."""
    keep = Filter(lambda k, v: True)
    tree: list[Node] = [
        source(),
        node("a", keep),
        node("b", keep),
        sink("o1", "one", "a"),
        sink("o2", "two", "b"),
    ]
    assert not needs_order(tree)
    assert needs_order([*tree, node("merge", PassThrough(), "a", "b")])
    assert needs_order([*tree, sink("o3", "one", "b")])
    assert needs_order([*tree, sink("o3", lambda k, v, c: "x", "b")])
    assert meeting_sinks([*tree, sink("o3", "one", "b")]) == {"o1", "o3"}
    assert meeting_sinks([*tree, sink("o3", lambda k, v, c: "x", "b")]) == {"o1", "o2", "o3"}
    sharing = [node("x", keep, stores=("s",)), node("y", keep, stores=("s",))]
    assert needs_order([source(), *sharing])


def test_steps_come_after_what_feeds_them() -> None:
    """Sharing a store unites nodes, and whatever lies on a path between them."""
    keep = Filter(lambda k, v: True)
    nodes: list[Node] = [
        source(),
        node("late", keep, "between"),
        node("first", keep, stores=("s",)),
        node("between", keep, "first"),
        node("second", keep, "between", stores=("s", "t")),
        node("third", keep, "source", stores=("t",)),
    ]
    steps = plan_steps(nodes)
    assert sorted(map(len, steps)) == [1, 1, 4]
    assert steps[0] == ["source"]
    assert steps[1] == ["first", "between", "second", "third"]
    assert steps[2] == ["late"]


def test_independent_of_what_follows_in_its_step_is_who_shares_no_store_with_it() -> None:
    """Nor may what follows share one among itself, or be reached in two ways."""
    keep = Filter(lambda k, v: True)

    def independent(*nodes: Node) -> set[str]:
        return set(independent_nodes(nodes, plan_steps(nodes)))

    # A join of tables: each side writes its own store and reads the other one.
    join: list[Node] = [
        source("a", "a"),
        source("b", "b"),
        node("left", keep, "a", stores=("l",)),
        node("right", keep, "b", stores=("r",)),
        node("join-left", keep, "left", stores=("r",)),
        node("join-right", keep, "right", stores=("l",)),
    ]
    assert sorted(map(len, plan_steps(join))) == [1, 1, 4]
    assert independent(*join) == {node.name for node in join}
    shared: list[Node] = [
        source(),
        node("one", keep, stores=("s",)),
        node("other", keep, "one", stores=("s",)),
    ]
    assert independent(*shared) == {"source", "other"}
    apart: list[Node] = [
        source(),
        node("first", keep),
        node("second", keep, "first", stores=("s", "t")),
        node("third", keep, "second", stores=("s",)),
        node("fourth", keep, "first", stores=("t",)),
    ]
    assert independent(*apart) == {"source", "third", "fourth", "first"}
    diamond: list[Node] = [
        source(),
        node("top", keep, stores=("s",)),
        node("left", keep, "top"),
        node("right", keep, "top"),
        node("bottom", keep, "left", "right", stores=("t",)),
        node("tie", keep, "bottom", stores=("s",)),
    ]
    assert independent(*diamond) == {"source", "left", "right", "bottom", "tie"}


class Counts(Operator):
    """Notes how many records it is given at a time."""

    def __init__(self, seen: list[int]) -> None:
        self._seen = seen

    def process(self, batch: Batch, output: Output) -> None:
        self._seen.append(len(batch))
        output.emit(batch)


def test_an_independent_node_and_what_follows_take_many_records_at_a_time() -> None:
    """Until a record waits at another node of the step; and outputs meet in their order."""
    seen: dict[str, list[int]] = {name: [] for name in ("left", "right", "join-left", "join-right")}

    def counts(name: str) -> Callable[[], Operator]:
        return partial(Counts, seen[name])

    run = Run(
        source("a", "a"),
        source("b", "b"),
        node("left", counts("left"), "a", stores=("l",)),
        node("right", counts("right"), "b", stores=("r",)),
        node("join-left", counts("join-left"), "left", stores=("r",)),
        node("join-right", counts("join-right"), "right", stores=("l",)),
        sink("out", "out", "join-left", "join-right"),
    )
    rows = {"a": [0, 1, 4], "b": [2, 3]}
    written = run.feed("a0", "a1", "b2", "b3", "a4", rows=rows)
    assert values_of("out", written) == ["a0", "a1", "b2", "b3", "a4"]
    assert seen["left"] == seen["join-left"] == [2, 1]
    assert seen["right"] == seen["join-right"] == [2]


class FillsCache(Holds):
    """Holds values back, reads nothing, and notes how many records it is given at a time."""

    def __init__(self, store: str, seen: list[int], only: bool) -> None:
        super().__init__(store)
        self.seen = seen
        self._only = only

    @property
    def only_fills_cache(self) -> bool:
        return self._only

    def process(self, batch: Batch, output: Output) -> None:
        self.seen.append(len(batch))
        super().process(batch, output)


@pytest.mark.parametrize(
    ("stores", "only", "expected"),
    [
        (("l", "r"), (True, True), [[3], [2]]),
        # One of them may show something to the other before it is flushed.
        (("l", "r"), (True, False), [[1, 2], [1, 1]]),
        (("l", "l"), (True, True), [[1, 2], [1, 1]]),
    ],
)
def test_who_only_fills_a_cache_needs_no_turns(
    stores: tuple[str, str], only: tuple[bool, bool], expected: list[list[int]]
) -> None:
    """Two tables that are joined when they are flushed take all that waits, one after the other."""
    seen: list[list[int]] = [[], []]
    run = Run(
        source("a", "a"),
        source("b", "b"),
        node("left", lambda: FillsCache(stores[0], seen[0], only[0]), "a", stores=(stores[0],)),
        node("right", lambda: FillsCache(stores[1], seen[1], only[1]), "b", stores=(stores[1],)),
        node("join-left", PassThrough(), "left", stores=("r",)),
        node("join-right", PassThrough(), "right", stores=("l",)),
        sink("out", "out", "join-left", "join-right"),
    )
    rows = {"a": [0, 2, 3], "b": [1, 4]}
    assert run.feed("a0", "b1", "a2", "a3", "b4", rows=rows) == []
    assert seen == expected
    run.executor.flush("l")
    run.executor.flush("r")
    assert sorted(values_of("out", run.written())) == ["a0", "a2", "a3", "b1", "b4"]
