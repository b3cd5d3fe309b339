"""The position of a store excludes input whose results have not reached the store."""

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
from millstream.runtime.queries.query_messages import QueryStore
from millstream.runtime.queries.store_positions import Upstream, upstream_of_stores
from millstream.serdes import LONG, STRING
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.state.queries.requests.query_results import FailureReason

HOUR = timedelta(hours=1)
WITHIN = JoinWindows(timedelta(seconds=1), grace=timedelta(0))


def clicks(builder: StreamsBuilder, topic: str = "in") -> Any:
    return builder.stream(topic, key=STRING, value=STRING)


def suppressed(builder: StreamsBuilder, limit: timedelta = HOUR) -> Any:
    counted = clicks(builder).group_by_key().count(store=Materialized("counts", caching=False))
    return counted.suppress(Suppressed.until_time_limit(limit, BufferConfig.unbounded()))


def final_windows(builder: StreamsBuilder) -> Any:
    grouped = clicks(builder).group_by_key().windowed_by(TimeWindows(HOUR))
    return grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")


def buffered(builder: StreamsBuilder) -> Any:
    history = Stores.persistent_versioned("rates", HOUR)
    rates = builder.table("rates-in", key=STRING, value=LONG, store=history)
    return clicks(builder).join(rates, lambda one, rate: one, grace=timedelta(seconds=5))


def outer_joined(builder: StreamsBuilder) -> Any:
    return clicks(builder).left_join(clicks(builder, "other"), lambda one, other: one, WITHIN)


def inner_joined(builder: StreamsBuilder) -> Any:
    return clicks(builder).join(clicks(builder, "other"), lambda one, other: one, WITHIN)


def mapped_async(builder: StreamsBuilder) -> Any:
    return clicks(builder).map_async(lambda value: value)


def upstream(stream: Any, builder: StreamsBuilder) -> Upstream:
    if hasattr(stream, "to_stream"):
        stream = stream.to_stream()
    stream.to_table(key=STRING, value=STRING, store=Materialized("x"))
    (part,) = upstream_of_stores(builder.build()._subtopologies(), "app").values()
    return part["x"]


@pytest.mark.parametrize(
    ("build", "holds_back", "concurrent"),
    [
        (clicks, False, False),
        (suppressed, True, False),
        (buffered, True, False),
        (outer_joined, True, False),
        (inner_joined, False, False),
        (mapped_async, False, True),
    ],
)
def test_operators_that_hold_records_back_are_recognized(
    build: Any, holds_back: bool, concurrent: bool
) -> None:
    builder = StreamsBuilder()
    found = upstream(build(builder), builder)
    assert (found.holds_back_records, found.has_concurrent_operator) == (holds_back, concurrent)


def test_final_windows_are_held_back() -> None:
    """They are held back from the stores behind the operator, but not from its own store."""
    builder = StreamsBuilder()
    final_windows(builder).map_values(str, store=Materialized("x", value=STRING))
    (part,) = upstream_of_stores(builder.build()._subtopologies(), "app").values()
    assert part["x"].holds_back_records
    assert not part["counts"].holds_back_records


def test_position_behind_a_buffer_excludes_its_records() -> None:
    """A query with a bound fails as not up to date, instead of returning no value."""
    builder = StreamsBuilder()
    suppressed(builder).map_values(str, store=Materialized("x", value=STRING, caching=False))
    task = QueriedTask(builder.build())
    for time in range(3):
        task.write("in", b"k", b"v", time)
    read = ReadRequest(ReadKind.GET, STRING.serialize("t", "k"))
    (counted,) = task.answer(QueryStore("counts", read, "KeyQuery", bound={"in": {0: 2}})).tasks
    assert counted.position == {"in": {0: 2}}
    assert counted.page
    (behind,) = task.answer(QueryStore("x", read, "KeyQuery", bound={"in": {0: 2}})).tasks
    assert behind.reason is FailureReason.NOT_UP_TO_BOUND
    (unbound,) = task.answer(QueryStore("x", read, "KeyQuery")).tasks
    assert (unbound.reason, unbound.position, unbound.page) == (None, {}, ())
    task.close()
