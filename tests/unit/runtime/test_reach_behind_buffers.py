"""Goal: no store says that it stands for input whose effects have not reached it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.tasks.served_tasks import QueriedTask

from millstream import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Materialized,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from millstream.query.requests.answers import FailureReason
from millstream.runtime.queries.questions import AskStore
from millstream.runtime.queries.reach import Upstream, upstream_of_stores
from millstream.serdes import LONG, STRING
from millstream.state.queries.reads import Read, ReadKind

HOUR = timedelta(hours=1)
WITHIN = JoinWindows(timedelta(seconds=1), grace=timedelta(0))


def clicks(builder: StreamsBuilder, topic: str = "in") -> Any:
    return builder.stream(topic, key=STRING, value=STRING)


def suppressed(builder: StreamsBuilder, limit: timedelta = HOUR) -> Any:
    counted = clicks(builder).group_by_key().count(store=Materialized("counts", caching=False))
    return counted.suppress(Suppressed.until_time_limit(limit, BufferConfig.unbounded()))


def closed(builder: StreamsBuilder) -> Any:
    grouped = clicks(builder).group_by_key().windowed_by(TimeWindows(HOUR))
    return grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")


def buffered(builder: StreamsBuilder) -> Any:
    history = Stores.persistent_versioned("rates", HOUR)
    rates = builder.table("rates-in", key=STRING, value=LONG, store=history)
    return clicks(builder).join(rates, lambda one, rate: one, grace=timedelta(seconds=5))


def last(builder: StreamsBuilder) -> Any:
    return clicks(builder).left_join(clicks(builder, "other"), lambda one, other: one, WITHIN)


def inner(builder: StreamsBuilder) -> Any:
    return clicks(builder).join(clicks(builder, "other"), lambda one, other: one, WITHIN)


def later(builder: StreamsBuilder) -> Any:
    return clicks(builder).map_async(lambda value: value)


def upstream(made: Any, builder: StreamsBuilder) -> Upstream:
    if hasattr(made, "to_stream"):
        made = made.to_stream()
    made.to_table(key=STRING, value=STRING, store=Materialized("x"))
    (part,) = upstream_of_stores(builder.build()._subtopologies(), "app").values()
    return part["x"]


@pytest.mark.parametrize(
    ("before", "held", "apart"),
    [
        (clicks, False, False),
        (suppressed, True, False),
        (buffered, True, False),
        (last, True, False),
        (inner, False, False),
        (later, False, True),
    ],
)
def test_what_holds_records_back_is_known(before: Any, held: bool, apart: bool) -> None:
    builder = StreamsBuilder()
    found = upstream(before(builder), builder)
    assert (found.is_held_back, found.is_apart) == (held, apart)


def test_final_windows_are_held_back() -> None:
    """From what comes behind them, and not from their own store."""
    builder = StreamsBuilder()
    closed(builder).map_values(str, store=Materialized("x", value=STRING))
    (part,) = upstream_of_stores(builder.build()._subtopologies(), "app").values()
    assert part["x"].is_held_back
    assert not part["counts"].is_held_back


def test_a_store_behind_a_buffer_does_not_stand_for_what_is_in_there() -> None:
    """Who asks with a bound hears that it is not there yet, rather than that there is no value."""
    builder = StreamsBuilder()
    suppressed(builder).map_values(str, store=Materialized("x", value=STRING, caching=False))
    task = QueriedTask(builder.build())
    for time in range(3):
        task.write("in", b"k", b"v", time)
    read = Read(ReadKind.GET, STRING.serialize("t", "k"))
    (counted,) = task.answer(AskStore("counts", read, "KeyQuery", bound={"in": {0: 2}})).tasks
    assert counted.position == {"in": {0: 2}}
    assert counted.page
    (behind,) = task.answer(AskStore("x", read, "KeyQuery", bound={"in": {0: 2}})).tasks
    assert behind.reason is FailureReason.NOT_UP_TO_BOUND
    (unbound,) = task.answer(AskStore("x", read, "KeyQuery")).tasks
    assert (unbound.reason, unbound.position, unbound.page) == (None, {}, ())
    task.close()
