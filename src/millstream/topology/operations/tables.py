"""Operations on tables, but for aggregations and joins by a foreign key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.operators.joins.table_join import Side
from millstream.operators.tables.suppress import SuppressLimits
from millstream.operators.tables.value_getter import GetterSupplier
from millstream.topology.operations.operation import (
    KeepableTableOperation,
    Operation,
    TableOperation,
    VersionHeedingOperation,
)


@dataclass(frozen=True)
class TableSource(KeepableTableOperation):
    """Takes records for the changes of a table."""


@dataclass(frozen=True)
class TableFilter(KeepableTableOperation, VersionHeedingOperation):
    """Keeps the rows for which the predicate holds.

    Args:
        predicate: (key, value) → whether a row stays; not asked for deletions.
        negate: whether it stays otherwise.
    """

    predicate: Callable[[Any, Any], Any]
    negate: bool = False


@dataclass(frozen=True)
class TableMapValues(KeepableTableOperation):
    """Replaces the value of each row.

    Args:
        mapper: value → value, or (key, value) → value; not asked for deletions.
        with_key: which of the two.
    """

    mapper: Callable[..., Any]
    with_key: bool = False


@dataclass(frozen=True)
class TableTransformValues(KeepableTableOperation):
    """Replaces the value of each row by what an object with state gives.

    Args:
        supplier: gives the object, which has `transform(key, value)`.
    """

    supplier: Callable[[], Any]


@dataclass(frozen=True)
class TableToStream(Operation):
    """Takes the changes of a table for records of a stream."""


@dataclass(frozen=True)
class TableSuppress(Operation):
    """Holds the changes of a table back.

    Args:
        store: the name of the buffer.
        limits: how long and how much.
    """

    store: str
    limits: SuppressLimits


@dataclass(frozen=True)
class TableJoin(TableOperation, VersionHeedingOperation):
    """Joins the changes of a table with the rows of another one that have their keys.

    Args:
        other: reads the other table.
        joiner: (left value, right value) → value.
        side: what to do without a partner.
        from_right: whether the table is the right one of the two.
    """

    other: GetterSupplier
    joiner: Callable[[Any, Any], Any]
    side: Side
    from_right: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class TableJoinMerge(KeepableTableOperation):
    """Brings the results of both sides of a join together."""
