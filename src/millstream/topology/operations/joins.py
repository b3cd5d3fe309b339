"""Joins of streams with streams, tables and global tables, and foreign-key joins.

`millstream.operators.joins.foreign_key_join` describes how the steps of a foreign-key join of two
tables (KIP-213) work together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.operators.joins.foreign_key_join import ForeignKeySerdes
from millstream.operators.joins.stream_join import JoinSide, StreamJoiner
from millstream.operators.tables.value_getter import GetterSupplier
from millstream.topology.operations.operation import Operation, VersionAwareOperation


@dataclass(frozen=True)
class StreamJoinWindow(Operation):
    """Stores the records of one side of a stream-stream join in its window store."""

    store: str


@dataclass(frozen=True)
class StreamStreamJoin(Operation):
    """Joins the records of one side with the stored records of the other."""

    side: JoinSide
    joiner: StreamJoiner


@dataclass(frozen=True)
class StreamSelfJoin(Operation):
    """Joins a stream with itself."""

    store: str
    #: How much earlier and later than a record its partner may be.
    before_ms: int
    after_ms: int
    retention_ms: int
    joiner: StreamJoiner


@dataclass(frozen=True)
class StreamTableJoin(Operation):
    """Joins each record with the table row of the same key."""

    table: GetterSupplier
    #: (value, row) → value, or (key, value, row) → value.
    joiner: Callable[..., Any]
    #: Whether records without a matching row are joined with None; otherwise they are dropped.
    left: bool
    with_key: bool
    #: The store in which records wait for late changes of the table; None if they do not wait.
    buffer: str | None = None


@dataclass(frozen=True)
class StreamGlobalJoin(Operation):
    """Joins each record with a row of a global table."""

    table: GetterSupplier
    #: (value, row) → value, or (key, value, row) → value.
    joiner: Callable[..., Any]
    #: (key, value) → the key of the row; None for no row.
    key_selector: Callable[[Any, Any], Any]
    #: Whether records without a matching row are joined with None; otherwise they are dropped.
    left: bool
    with_key: bool


@dataclass(frozen=True)
class SubscriptionSend(VersionAwareOperation):
    """Sends subscriptions of left rows to the tasks of the right rows."""

    #: value → the key of the right row, or (key, value) → the key; None for no right row.
    foreign_key: Callable[..., Any]
    with_key: bool
    serdes: ForeignKeySerdes
    #: Whether left rows without a right row have a result.
    left_join: bool


@dataclass(frozen=True)
class SubscriptionReceive(Operation):
    """Stores the subscriptions of left rows."""

    store: str
    serdes: ForeignKeySerdes


@dataclass(frozen=True)
class SubscriptionJoin(Operation):
    """Responds to a subscription with the right row."""

    right: GetterSupplier


@dataclass(frozen=True)
class ForeignTableJoin(VersionAwareOperation):
    """Sends a changed right row to all of its subscribers.

    The subscribers are listed in a store.
    """

    store: str
    serdes: ForeignKeySerdes


@dataclass(frozen=True)
class ResponseResolver(Operation):
    """Joins responses with their left rows."""

    left: GetterSupplier
    serdes: ForeignKeySerdes
    #: (left value, right value) → result.
    joiner: Callable[[Any, Any], Any]
    #: Whether left rows without a right row have a result.
    left_join: bool
