"""Batches through a sub-topology give the same results as single records, depth-first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.operators.operator import Operator, Output
from millstream.operators.record_batch import Batch, Origin
from millstream.processor.handlers import LogAndFailProcessingExceptionHandler
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.compile_operator import compile_operator
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.node_context import DroppedRecords, NodeContext, SinkErrors
from millstream.runtime.task.sinks import Sink, SinkBuffer
from millstream.runtime.task.steps import (
    independent_nodes,
    needs_order,
    plan_steps,
    sinks_sharing_topics,
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
class CustomOperation(Operation):
    """An operation with an operator of the test."""

    make: Callable[[], Operator]


@compile_operator.register
def _(operation: CustomOperation) -> Operator:
    return operation.make()


def node(
    name: str,
    operation_or_operator: Operation | Callable[[], Operator],
    *parents: str,
    stores: tuple[str, ...] = (),
) -> ProcessorNode:
    operation = (
        operation_or_operator
        if isinstance(operation_or_operator, Operation)
        else CustomOperation(operation_or_operator)
    )
    return ProcessorNode(name, operation, parents or ("source",), stores)


def sink(name: str, topic: Any, *parents: str) -> SinkNode:
    return SinkNode(name, topic, None, None, None, parents)


def append(text: str) -> Operation:
    return MapValues(lambda value: value + text)


def repeat(times: int) -> Operation:
    return FlatMapValues(lambda value: [f"{value}{i}" for i in range(times)])


class Run:
    """Runs an executor; sinks write to a list."""

    def __init__(self, *nodes: Node, order_across_topics: bool = False) -> None:
        self.collector = CapturingCollector()
        self.stores: dict[str, Any] = {}
        self.executor = Executor(
            nodes, self._context, self._sink, order_across_topics=order_across_topics
        )
        self.executor.init()

    def _context(self, spec: ProcessorNode, output: Output) -> NodeContext:
        for name in spec.stores:
            self.stores.setdefault(name, [])
        stores = {name: self.stores[name] for name in spec.stores}
        handler = LogAndFailProcessingExceptionHandler()
        return NodeContext(
            spec.name, TASK, ManualClock(), output, stores, handler, DroppedRecords(TASK)
        )

    def _sink(self, spec: SinkNode, sink_buffer: SinkBuffer | None) -> Sink:
        errors = SinkErrors(None, DroppedRecords(TASK), spec.name, TASK)
        return Sink(
            spec.name, TASK, spec.topic, STRING, STRING, None, self.collector, sink_buffer, errors
        )

    def feed(self, *values: str, rows: dict[str, list[int]] | None = None) -> list[tuple[str, str]]:
        """Return topic and value of the records written for a batch.

        `rows` distributes the records among several sources.
        """
        origin = Origin(TopicPartition("in", 0), range(len(values)))
        batches = []
        for name, own_rows in (rows or {"source": list(range(len(values)))}).items():
            order: Any = [(row,) for row in own_rows] if self.executor.ordered else None
            columns = ["k" for _ in own_rows], [values[row] for row in own_rows], list(own_rows)
            batches.append((name, Batch(*columns, own_rows, origin, order)))
        self.executor.run(batches)
        return self.written()

    def written(self) -> list[tuple[str, str]]:
        return [(record.topic, (record.value or b"").decode()) for record in self.collector.take()]


def values_of(topic: str, written: list[tuple[str, str]]) -> list[str]:
    return [value for name, value in written if name == topic]


def test_diamond_alternates_like_single_records() -> None:
    """Fork and merge: each record takes both paths before the next record."""
    run = Run(
        source(),
        node("left", append("l")),
        node("right", append("r")),
        node("merge", PassThrough(), "left", "right"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", run.feed("a", "b")) == ["al", "ar", "bl", "br"]


def test_flat_maps_before_and_behind_a_fork() -> None:
    """Before the fork: a0l a0r a1l a1r. On each side behind it: a0l a1l a0r a1r."""
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
    behind = Run(
        source(),
        node("left", repeat(2)),
        node("right", repeat(2)),
        node("merge", PassThrough(), "left", "right"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", behind.feed("a", "b")) == ["a0", "a1"] * 2 + ["b0", "b1"] * 2


def test_short_and_long_paths_to_one_merge() -> None:
    """The child that was attached first comes first, however long its path is."""
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


def test_records_of_several_sources_are_merged_in_their_order() -> None:
    run = Run(
        source("one", "in-1"),
        source("two", "in-2"),
        node("merge", PassThrough(), "two", "one"),
        sink("out", "out", "merge"),
    )
    rows = {"one": [0, 3], "two": [1, 2]}
    assert values_of("out", run.feed("a", "b", "c", "d", rows=rows)) == ["a", "b", "c", "d"]


def test_two_sinks_write_to_one_topic_in_order() -> None:
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


def test_dynamic_sink_can_write_to_the_topic_of_any_other() -> None:
    """Its topics are only known for each record."""
    run = Run(
        source(),
        sink("chosen", lambda key, value, context: "out" if value < "c" else "rest", "source"),
        node("more", append("!")),
        sink("loud", "out", "more"),
    )
    written = run.feed("a", "c", "b")
    assert values_of("out", written) == ["a", "a!", "c!", "b", "b!"]
    assert values_of("rest", written) == ["c"]


def test_branches_are_merged_in_the_order_of_records() -> None:
    run = Run(
        source(),
        node("split", Branch((lambda k, v: v < "c",), ("low", "high"))),
        node("low", append("l"), "split"),
        node("high", repeat(2), "split"),
        node("merge", PassThrough(), "low", "high"),
        sink("out", "out", "merge"),
    )
    assert values_of("out", run.feed("d", "a", "c")) == ["d0", "d1", "al", "c0", "c1"]


def test_order_across_topics_equals_that_of_single_records() -> None:
    """Only on request, since it needs an order for every record."""

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


class Accumulator(Operator):
    """Appends its values to a shared list, and emits the content of the list."""

    def process(self, batch: Batch, output: Output) -> None:
        shared = self.context.store("shared")
        values = []
        for value in batch.values:
            shared.append(value)
            values.append("".join(shared))
        output.emit(batch.with_values(values))


def test_nodes_that_share_a_store_alternate_record_by_record() -> None:
    run = Run(
        source(),
        node("left", append("l")),
        node("right", append("r")),
        node("writer", Accumulator, "left", stores=("shared",)),
        node("reader", Accumulator, "right", stores=("shared",)),
        sink("one", "one", "writer"),
        sink("two", "two", "reader"),
    )
    written = run.feed("a", "b")
    assert values_of("one", written) == ["al", "alarbl"]
    assert values_of("two", written) == ["alar", "alarblbr"]


def test_nodes_between_two_users_of_a_store_belong_to_their_step() -> None:
    """Each record reaches the second user before the next one reaches the first."""
    nodes: list[Node] = [
        source(),
        node("before", append("b")),
        node("first", Accumulator, "before", stores=("shared",)),
        node("between", repeat(2), "first"),
        node("second", Accumulator, "between", stores=("shared",)),
        node("beside", append("!"), "first"),
        sink("out", "out", "second"),
        sink("aside", "aside", "beside"),
    ]
    assert ["first", "between", "second"] in plan_steps(nodes)
    written = Run(*nodes).feed("x", "y")
    # first: xb. second: xb0, xb1, each after the content of the list at that time.
    assert values_of("out", written)[:2] == ["xbxb0", "xbxb0xb1"]
    assert values_of("aside", written) == ["xb!", "xbxb0xb1yb!"]


def test_records_waiting_before_a_step_enter_in_order() -> None:
    """Two paths into one step: the records alternate although they arrive as two batches."""
    nodes: list[Node] = [
        source(),
        node("left", repeat(2)),
        node("right", append("r")),
        node("one", Accumulator, "left", stores=("shared",)),
        node("two", Accumulator, "right", stores=("shared",)),
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


class HoldingOperator(Operator):
    """Holds values back until a flush, like a record cache."""

    def __init__(self, store: str) -> None:
        self._store = store

    @property
    def cached_store(self) -> str:
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


def test_flush_proceeds_node_by_node() -> None:
    """Values that a flush writes to the store of the next node leave with the flush of that
    node."""
    run = Run(
        source(),
        node("one", partial(HoldingOperator, "store of one")),
        node("two", partial(HoldingOperator, "store of two"), "one"),
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


def test_operator_can_emit_an_empty_batch() -> None:
    """Nodes downstream are not called with an empty batch."""

    class EmitsNothing(Operator):
        def process(self, batch: Batch, output: Output) -> None:
            output.emit(batch.select([False] * len(batch)))
            output.emit_to("next", batch.select([False] * len(batch)))

    class NeverCalled(Operator):
        def process(self, batch: Batch, output: Output) -> None:
            raise AssertionError(len(batch))

    run = Run(source(), node("nothing", EmitsNothing), node("next", NeverCalled, "nothing"))
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
    """Chains and trees do not need it: their records have no order."""
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
    assert sinks_sharing_topics([*tree, sink("o3", "one", "b")]) == {"o1", "o3"}
    assert sinks_sharing_topics([*tree, sink("o3", lambda k, v, c: "x", "b")]) == {"o1", "o2", "o3"}
    sharing = [node("x", keep, stores=("s",)), node("y", keep, stores=("s",))]
    assert needs_order([source(), *sharing])


def test_steps_come_after_their_inputs() -> None:
    """A shared store unites nodes, and all nodes on a path between them."""
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


def test_independent_nodes_share_no_store_with_their_successors_in_the_step() -> None:
    """The successors must not share stores with each other or be reachable on two paths."""
    keep = Filter(lambda k, v: True)

    def independent(*nodes: Node) -> set[str]:
        return set(independent_nodes(nodes, plan_steps(nodes)))

    # A table-table join: each side writes its own store and reads the other one.
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
    runners: list[Node] = [
        source(),
        node("first", keep),
        node("second", keep, "first", stores=("s", "t")),
        node("third", keep, "second", stores=("s",)),
        node("fourth", keep, "first", stores=("t",)),
    ]
    assert independent(*runners) == {"source", "third", "fourth", "first"}
    diamond: list[Node] = [
        source(),
        node("top", keep, stores=("s",)),
        node("left", keep, "top"),
        node("right", keep, "top"),
        node("bottom", keep, "left", "right", stores=("t",)),
        node("tie", keep, "bottom", stores=("s",)),
    ]
    assert independent(*diamond) == {"source", "left", "right", "bottom", "tie"}


class BatchSizeRecorder(Operator):
    """Records the sizes of its batches."""

    def __init__(self, seen: list[int]) -> None:
        self._seen = seen

    def process(self, batch: Batch, output: Output) -> None:
        self._seen.append(len(batch))
        output.emit(batch)


def test_independent_nodes_and_their_successors_take_many_records_at_a_time() -> None:
    """Until a record waits at another node of the step. The outputs keep their order."""
    seen: dict[str, list[int]] = {name: [] for name in ("left", "right", "join-left", "join-right")}

    def recorder(name: str) -> Callable[[], Operator]:
        return partial(BatchSizeRecorder, seen[name])

    run = Run(
        source("a", "a"),
        source("b", "b"),
        node("left", recorder("left"), "a", stores=("l",)),
        node("right", recorder("right"), "b", stores=("r",)),
        node("join-left", recorder("join-left"), "left", stores=("r",)),
        node("join-right", recorder("join-right"), "right", stores=("l",)),
        sink("out", "out", "join-left", "join-right"),
    )
    rows = {"a": [0, 1, 4], "b": [2, 3]}
    written = run.feed("a0", "a1", "b2", "b3", "a4", rows=rows)
    assert values_of("out", written) == ["a0", "a1", "b2", "b3", "a4"]
    assert seen["left"] == seen["join-left"] == [2, 1]
    assert seen["right"] == seen["join-right"] == [2]


class CacheFiller(HoldingOperator):
    """Holds values back without reading any, and records the sizes of its batches."""

    def __init__(self, store: str, seen: list[int], only: bool) -> None:
        super().__init__(store)
        self.seen = seen
        self._only = only

    @property
    def only_updates_cache(self) -> bool:
        return self._only

    def process(self, batch: Batch, output: Output) -> None:
        self.seen.append(len(batch))
        super().process(batch, output)


@pytest.mark.parametrize(
    ("stores", "only", "expected"),
    [
        (("l", "r"), (True, True), [[3], [2]]),
        # One of them may forward records to the other before its flush.
        (("l", "r"), (True, False), [[1, 2], [1, 1]]),
        (("l", "l"), (True, True), [[1, 2], [1, 1]]),
    ],
)
def test_nodes_that_only_fill_a_cache_do_not_alternate(
    stores: tuple[str, str], only: tuple[bool, bool], expected: list[list[int]]
) -> None:
    """Two tables that are joined at their flush take all waiting records, one after the other."""
    seen: list[list[int]] = [[], []]
    run = Run(
        source("a", "a"),
        source("b", "b"),
        node("left", lambda: CacheFiller(stores[0], seen[0], only[0]), "a", stores=(stores[0],)),
        node("right", lambda: CacheFiller(stores[1], seen[1], only[1]), "b", stores=(stores[1],)),
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
