"""Operations on tables, except aggregations and joins by a foreign key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.operators.joins.table_join import Side
from millstream.operators.tables.suppress import SuppressLimits
from millstream.operators.tables.value_getter import GetterSupplier
from millstream.topology.operations.operation import (
    MaterializableOperation,
    Operation,
    TableOperation,
    VersionAwareOperation,
)


@dataclass(frozen=True)
class TableSource(MaterializableOperation):
    """Interprets records as the changes of a table."""


@dataclass(frozen=True)
class TableFilter(MaterializableOperation, VersionAwareOperation):
    """Keeps the rows for which the predicate holds or, with `negate`, the others.

    The predicate is not called for deletions.
    """

    predicate: Callable[[Any, Any], Any]
    negate: bool = False


@dataclass(frozen=True)
class TableMapValues(MaterializableOperation):
    """Replaces the value of each row; the mapper is not called for deletions."""

    mapper: Callable[..., Any]
    with_key: bool = False


@dataclass(frozen=True)
class TableTransformValues(MaterializableOperation):
    """Replaces the value of each row with the result of a stateful transformer."""

    #: Returns a transformer, which has a method `transform(key, value)`.
    supplier: Callable[[], Any]


@dataclass(frozen=True)
class TableToStream(Operation):
    """Forwards the changes of a table as records of a stream."""


@dataclass(frozen=True)
class TableSuppress(Operation):
    """Suppresses a table's changes until their window closes or a limit is reached."""

    store: str
    limits: SuppressLimits


@dataclass(frozen=True)
class TableJoin(TableOperation, VersionAwareOperation):
    """Joins a table's changes with the rows of another table that have the same key."""

    other: GetterSupplier
    #: (left value, right value) → value.
    joiner: Callable[[Any, Any], Any]
    #: How rows without a partner are handled.
    side: Side
    #: Whether the table is the right side of the join.
    from_right: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class TableJoinMerge(MaterializableOperation):
    """Merges the results of both sides of a join."""
