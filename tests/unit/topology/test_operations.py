"""Operations of nodes are data: comparable, printable, picklable, and all can be compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from millstream import (
    BufferConfig,
    EmitStrategy,
    FixedKeyProcessor,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Processor,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.operators.operator import Operator
from millstream.parallel import Properties, Retry
from millstream.runtime.task.compile_operator import compile_operator
from millstream.serdes import LONG, STRING
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.tasks.task_extraction import TaskReader
from millstream.topology.operations.operation import Operation
from millstream.topology.physical.nodes import ProcessorNode

MINUTE = timedelta(minutes=1)
VERSIONED = Materialized[str, str]("versioned", kind="versioned", history_retention=MINUTE)


# Functions with names, which are pickled as references and therefore equal afterwards.
def one(value: Any) -> Any:
    return value


def two(key: Any, value: Any) -> Any:
    return value


def pair(key: Any, value: Any) -> tuple[Any, Any]:
    return value, key


def pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
    return [(value, key)]


def three(key: Any, value: Any, other: Any) -> Any:
    return other


async def waiting(value: Any) -> Any:
    return value


class CustomProcessor(Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        pass


class CustomFixedKeyProcessor(FixedKeyProcessor[Any, Any, Any]):
    def process(self, record: Any) -> None:
        pass


class Transformer:
    def transform(self, key: Any, value: Any) -> Any:
        return value


def stream(builder: StreamsBuilder, topic: str = "in") -> KStream[str, str]:
    return builder.stream(topic, key=STRING, value=STRING)


def table(builder: StreamsBuilder, topic: str = "table") -> KTable[str, str]:
    return builder.table(topic, key=STRING, value=STRING)


def global_store(builder: StreamsBuilder) -> None:
    store = Stores.key_value_builder(Stores.in_memory_key_value("own"), STRING, STRING)
    builder.add_global_store(store, "global", CustomProcessor)


def subscription(builder: StreamsBuilder) -> Topology:
    """Operations that are not part of the DSL."""
    plan = SubscriptionPlan(
        name="mailer",
        chain=ProcessorChain.of(two),
        reader=TaskReader(None, None, legacy_parse_fallback=False),
        properties=Properties(),
        retry=Retry(backoff=timedelta(seconds=1)),
        on_error="retry",
    )
    return subscription_topology(plan, "emails", None)


def suppressed(builder: StreamsBuilder) -> None:
    counts = stream(builder).group_by_key().windowed_by(TimeWindows(MINUTE)).count()
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))


def cogrouped(builder: StreamsBuilder) -> None:
    groups = stream(builder).group_by_key().cogroup(three)
    groups.cogroup(stream(builder, "more").group_by_key(), three)
    groups.aggregate(str)
    groups.windowed_by(TimeWindows(MINUTE)).aggregate(str)
    groups.windowed_by(SlidingWindows(MINUTE)).aggregate(str)
    groups.windowed_by(SessionWindows(MINUTE)).aggregate(str, three)


def join_with_grace_period(builder: StreamsBuilder) -> None:
    versioned = builder.table("table", key=STRING, value=STRING, store=VERSIONED)
    stream(builder).join(versioned, two, grace=timedelta(seconds=1))


def windowed(builder: StreamsBuilder, windows: Any) -> None:
    grouped: Any = stream(builder).group_by_key().windowed_by(windows)
    merger = (three,) if isinstance(windows, SessionWindows) else ()
    grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
    grouped.reduce(two)
    grouped.aggregate(str, three, *merger)


PROGRAMS: dict[str, Callable[[StreamsBuilder], object]] = {
    "filter": lambda b: stream(b).filter(two),
    "filter_not": lambda b: stream(b).filter_not(two),
    "map": lambda b: stream(b).map(pair),
    "map_values": lambda b: stream(b).map_values(two, with_key=True),
    "map_async": lambda b: stream(b).map_async(two, with_key=True),
    "map_batches": lambda b: stream(b).map_batches(one, schema=pa.string(), with_key=True),
    "map_batches, async": lambda b: stream(b).map_batches(waiting, concurrency=2),
    "subscription": subscription,
    "flat_map": lambda b: stream(b).flat_map(pairs),
    "flat_map_values": lambda b: stream(b).flat_map_values(one),
    "select_key": lambda b: stream(b).select_key(two),
    "peek": lambda b: stream(b).peek(two),
    "for_each": lambda b: stream(b).for_each(two),
    "print": lambda b: stream(b).print("label", file="out.txt"),
    "merge": lambda b: stream(b).merge(stream(b, "more")),
    "split": lambda b: stream(b).split().branch(two, "a").default_branch(),
    "repartition": lambda b: stream(b).repartition(),
    "null keys kept": lambda b: stream(b).select_key(two).left_join(table(b), two),
    "process": lambda b: stream(b).process(CustomProcessor),
    "process_values": lambda b: stream(b).process_values(CustomFixedKeyProcessor),
    "global store": global_store,
    "count": lambda b: stream(b).group_by_key().count(),
    "reduce": lambda b: stream(b).group_by(two).reduce(two),
    "aggregate": lambda b: stream(b).group_by_key().aggregate(str, three),
    "time windows": lambda b: windowed(b, TimeWindows(MINUTE)),
    "sliding windows": lambda b: windowed(b, SlidingWindows(MINUTE)),
    "sessions": lambda b: windowed(b, SessionWindows(MINUTE)),
    "cogroup": cogrouped,
    "to_table": lambda b: stream(b).to_table(store="kept"),
    "table": lambda b: table(b).filter(two, store="kept").to_stream(),
    "global_table": lambda b: b.global_table("global"),
    "filtered table": lambda b: stream(b).join(table(b).filter_not(two), two),
    "mapped table": lambda b: stream(b).join(table(b).map_values(one), two),
    "transformed table": lambda b: table(b).transform_values(Transformer, store="kept"),
    "computed by an object": lambda b: stream(b).join(table(b).transform_values(Transformer), two),
    "grouped table": lambda b: table(b).group_by(pair).count(),
    "reduced table": lambda b: table(b).group_by(pair).reduce(two, two),
    "aggregated table": lambda b: table(b).group_by(pair).aggregate(str, three, three),
    "suppress": suppressed,
    "join of streams": lambda b: stream(b).join(stream(b, "more"), two, JoinWindows(MINUTE)),
    "outer join": lambda b: stream(b).outer_join(stream(b, "more"), two, JoinWindows(MINUTE)),
    "join with a table": join_with_grace_period,
    "join with a global table": lambda b: stream(b).join(
        b.global_table("global"), two, key_selector=two
    ),
    "join of tables": lambda b: table(b).outer_join(table(b, "more"), two, store="kept"),
    "joined table": lambda b: stream(b).join(table(b).left_join(table(b, "more"), two), two),
    "foreign key": lambda b: table(b).join(table(b, "more"), two, foreign_key=one),
    "foreign key by key": lambda b: table(b).left_join(
        table(b, "more"), two, foreign_key=two, with_key=True
    ),
    "self join": lambda b: (lambda s: s.join(s, two, JoinWindows(MINUTE)))(stream(b)),
}


def build(name: str) -> Topology:
    builder = StreamsBuilder(optimize=name == "self join")
    result = PROGRAMS[name](builder)
    return result if isinstance(result, Topology) else builder.build()


def operations_of(topology: Topology) -> list[Operation]:
    nodes = [*topology.nodes.values(), *(s.processor for s in topology.global_stores.values())]
    return [node.operation for node in nodes if isinstance(node, ProcessorNode)]


def kinds(base: type[Operation]) -> set[type[Operation]]:
    return {base}.union(*map(kinds, base.__subclasses__()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_survive_pickling(name: str) -> None:
    """Each operation is equal to its pickled copy, field by field, and both can be compiled."""
    operations = operations_of(build(name))
    assert operations
    for operation in operations:
        assert is_dataclass(operation)
        copy = cloudpickle.loads(cloudpickle.dumps(operation))
        for field in fields(operation):
            assert getattr(copy, field.name) == getattr(operation, field.name), field.name
        assert copy == operation
        assert repr(operation).startswith(f"{type(operation).__name__}(")
        for each in (operation, copy):
            first, second = compile_operator(each), compile_operator(each)
            assert isinstance(first, Operator)
            assert first is not second


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_programs_have_equal_operations(name: str) -> None:
    """No part of an operation is unique to a build, so that programs can be compared."""
    assert operations_of(build(name)) == operations_of(build(name))


def test_every_kind_of_operation_is_in_a_program() -> None:
    """The programs contain every operation that can be compiled, and no other ones."""
    described = {type(operation) for name in PROGRAMS for operation in operations_of(build(name))}
    compiled = {kind for kind in compile_operator.registry if kind.__module__.startswith("millst")}
    assert described == compiled - {Operation}


def test_unknown_operation_cannot_be_compiled() -> None:
    """The error contains the operation without an operator."""
    with pytest.raises(TypeError, match=r"no operator for Operation\(\)"):
        compile_operator(Operation())


def test_operations_differ_in_their_parameters() -> None:
    """Functions, stores and flags make operations differ."""
    builder = StreamsBuilder()
    counts = stream(builder).group_by_key().count(store=Materialized("counts", value=LONG))
    counts.filter(two, store="few")
    plain = operations_of(builder.build())
    assert [type(operation).__name__ for operation in plain] == ["StreamCount", "TableFilter"]
    assert "store='few'" in repr(plain[1])
    assert plain[1] not in operations_of(build("table"))
