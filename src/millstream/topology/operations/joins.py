"""Joins of a stream: with another stream, itself, a table, a global table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.operators.joins.stream_join import JoinSide, StreamJoiner
from millstream.operators.tables.value_getter import GetterSupplier
from millstream.topology.operations.operation import Operation


@dataclass(frozen=True)
class StreamJoinWindow(Operation):
    """Keeps the records of one side of a join of streams.

    Args:
        store: the name of the store of that side.
    """

    store: str


@dataclass(frozen=True)
class StreamStreamJoin(Operation):
    """Joins the records of one side with what is kept of the other one.

    Args:
        side: which side, and its windows and stores.
        joiner: the user's.
    """

    side: JoinSide
    joiner: StreamJoiner


@dataclass(frozen=True)
class StreamSelfJoin(Operation):
    """Joins a stream with itself.

    Args:
        store: the name of the store with its records.
        before_ms: how much earlier than a record its partner may be.
        after_ms: how much later.
        retention_ms: for how long records are kept.
        joiner: the user's.
    """

    store: str
    before_ms: int
    after_ms: int
    retention_ms: int
    joiner: StreamJoiner


@dataclass(frozen=True)
class StreamTableJoin(Operation):
    """Joins each record with the row of a table that has its key.

    Args:
        table: reads the table.
        joiner: (value, row) → value, or (key, value, row) → value.
        left: whether records without a row stay, joined with None.
        with_key: whether the joiner wants to see the key.
        buffer: the name of the store in which records wait for late changes of the table; None if
            they do not wait.
    """

    table: GetterSupplier
    joiner: Callable[..., Any]
    left: bool
    with_key: bool
    buffer: str | None = None


@dataclass(frozen=True)
class StreamGlobalJoin(Operation):
    """Joins each record with a row of a global table.

    Args:
        table: reads the table.
        joiner: (value, row) → value, or (key, value, row) → value.
        key_selector: (key, value) → the key of the row; None for none.
        left: whether records without a row stay, joined with None.
        with_key: whether the joiner wants to see the key.
    """

    table: GetterSupplier
    joiner: Callable[..., Any]
    key_selector: Callable[[Any, Any], Any]
    left: bool
    with_key: bool
