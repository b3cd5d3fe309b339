"""Aggregations of grouped streams (by key, window or session) and grouped tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.topology.operations.operation import TableOperation, VersionAwareOperation
from millstream.topology.options.windows import FixedSizeWindows, SessionWindows


@dataclass(frozen=True)
class Aggregation(TableOperation):
    """An operation that maintains one aggregate per key in a store."""

    store: str


@dataclass(frozen=True)
class StreamAggregate(Aggregation):
    """Aggregates the values of each key."""

    initializer: Initializer
    aggregator: Aggregator


@dataclass(frozen=True)
class StreamCount(Aggregation):
    """Counts the records of each key."""


@dataclass(frozen=True)
class StreamReduce(Aggregation):
    """Combines the values of each key."""

    #: (aggregate, value) → the next aggregate; None deletes it.
    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class WindowedAggregation(Aggregation):
    """An aggregation by key and window of a fixed size."""

    windows: FixedSizeWindows
    #: Whether only final results are emitted, after their windows have closed.
    emit_final: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class WindowAggregate(WindowedAggregation):
    """Aggregates the values of each key in each window."""

    initializer: Initializer
    aggregator: Aggregator


@dataclass(frozen=True)
class WindowCount(WindowedAggregation):
    """Counts the records of each key in each window."""


@dataclass(frozen=True)
class WindowReduce(WindowedAggregation):
    """Combines the values of each key in each window."""

    #: (aggregate, value) → the next aggregate; None deletes it.
    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class SessionAggregation(Aggregation):
    """An aggregation by key and session."""

    windows: SessionWindows
    #: Whether only final results are emitted, after their sessions have closed.
    emit_final: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class SessionAggregate(SessionAggregation):
    """Aggregates the values of each session."""

    initializer: Initializer
    aggregator: Aggregator
    #: (key, one, other) → the aggregate of two sessions that are merged.
    merger: Aggregator


@dataclass(frozen=True)
class SessionCount(SessionAggregation):
    """Counts the records of each session."""


@dataclass(frozen=True)
class SessionReduce(SessionAggregation):
    """Combines the values of each session."""

    #: (aggregate, value) → the next aggregate; also called to merge two sessions.
    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class TableSelect(TableOperation, VersionAwareOperation):
    """Assigns the rows of a table to groups."""

    #: (key, value) → (group, value in the group), or None.
    selector: Callable[[Any, Any], tuple[Any, Any] | None]


@dataclass(frozen=True)
class TableAggregate(Aggregation):
    """Aggregates the rows of each group."""

    initializer: Initializer
    adder: Aggregator
    subtractor: Aggregator


@dataclass(frozen=True)
class TableCount(Aggregation):
    """Counts the rows of each group."""


@dataclass(frozen=True)
class TableReduce(Aggregation):
    """Combines the rows of each group."""

    adder: Callable[[Any, Any], Any]
    #: (aggregate, value) → the aggregate without the value; None deletes it.
    subtractor: Callable[[Any, Any], Any]
