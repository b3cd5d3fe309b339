"""Aggregations of grouped streams, by key, window or session, and of grouped tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.topology.operations.operation import (
    TableOperation,
    VersionHeedingOperation,
)
from millstream.topology.options.windows import FixedSizeWindows, SessionWindows


@dataclass(frozen=True)
class Aggregation(TableOperation):
    """An operation that keeps one aggregate for each key.

    Args:
        store: the name of the store with the aggregates.
    """

    store: str


@dataclass(frozen=True)
class StreamAggregate(Aggregation):
    """Folds the values of each key into one.

    Args:
        initializer: gives the aggregate that a key starts from.
        aggregator: puts a value into it.
    """

    initializer: Initializer
    aggregator: Aggregator


@dataclass(frozen=True)
class StreamCount(Aggregation):
    """Counts the records of each key."""


@dataclass(frozen=True)
class StreamReduce(Aggregation):
    """Combines the values of each key.

    Args:
        reducer: (aggregate, value) → the next aggregate; None deletes it.
    """

    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class WindowedAggregation(Aggregation):
    """An aggregation by key and window of a fixed size.

    Args:
        windows: which windows there are.
        emit_final: whether only final results are sent, when their windows are closed.
    """

    windows: FixedSizeWindows
    emit_final: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class WindowAggregate(WindowedAggregation):
    """Folds the values of each key in each window into one.

    Args:
        initializer: gives the aggregate that a window starts from.
        aggregator: puts a value into it.
    """

    initializer: Initializer
    aggregator: Aggregator


@dataclass(frozen=True)
class WindowCount(WindowedAggregation):
    """Counts the records of each key in each window."""


@dataclass(frozen=True)
class WindowReduce(WindowedAggregation):
    """Combines the values of each key in each window.

    Args:
        reducer: (aggregate, value) → the next aggregate; None deletes it.
    """

    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class SessionAggregation(Aggregation):
    """An aggregation by key and session.

    Args:
        windows: when sessions end.
        emit_final: whether only final results are sent, when their sessions are closed.
    """

    windows: SessionWindows
    emit_final: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class SessionAggregate(SessionAggregation):
    """Folds the values of each session into one.

    Args:
        initializer: gives the aggregate that a session starts from.
        aggregator: puts a value into it.
        merger: (key, one, other) → the aggregate of two sessions that become one.
    """

    initializer: Initializer
    aggregator: Aggregator
    merger: Aggregator


@dataclass(frozen=True)
class SessionCount(SessionAggregation):
    """Counts the records of each session."""


@dataclass(frozen=True)
class SessionReduce(SessionAggregation):
    """Combines the values of each session.

    Args:
        reducer: (aggregate, value) → the next aggregate, also for two sessions that become one.
    """

    reducer: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class TableSelect(TableOperation, VersionHeedingOperation):
    """Gives the rows of a table the keys of their groups.

    Args:
        selector: (key, value) → (group, value in the group), or None.
    """

    selector: Callable[[Any, Any], tuple[Any, Any] | None]


@dataclass(frozen=True)
class TableAggregate(Aggregation):
    """Folds the rows of each group into one.

    Args:
        initializer: gives the aggregate that a group starts from.
        adder: puts a value into it.
        subtractor: takes a value out of it.
    """

    initializer: Initializer
    adder: Aggregator
    subtractor: Aggregator


@dataclass(frozen=True)
class TableCount(Aggregation):
    """Counts the rows of each group."""


@dataclass(frozen=True)
class TableReduce(Aggregation):
    """Combines the rows of each group.

    Args:
        adder: (aggregate, value) → the aggregate with the value.
        subtractor: (aggregate, value) → the aggregate without it; None deletes it.
    """

    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
