"""The steps of a join of two tables by a foreign key (KIP-213).

`millstream.operators.joins.foreign_key_send` tells how they work together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.operators.joins.foreign_key_send import ForeignKeySerdes
from millstream.operators.tables.value_getter import GetterSupplier
from millstream.topology.operations.operation import Operation, VersionHeedingOperation


@dataclass(frozen=True)
class SubscriptionSend(VersionHeedingOperation):
    """Tells the tasks of right rows which left rows refer to them.

    Args:
        foreign_key: value → the key of the right row, or (key, value) → …; None for none.
        with_key: which of the two.
        serdes: serialize keys, and left rows to hash them.
        left_join: whether left rows without a right row have a result.
    """

    foreign_key: Callable[..., Any]
    with_key: bool
    serdes: ForeignKeySerdes
    left_join: bool


@dataclass(frozen=True)
class SubscriptionReceive(Operation):
    """Keeps the subscriptions of left rows.

    Args:
        store: the name of the store of subscriptions.
        serdes: serialize the foreign keys.
    """

    store: str
    serdes: ForeignKeySerdes


@dataclass(frozen=True)
class SubscriptionJoin(Operation):
    """Answers a subscription with the right row.

    Args:
        right: reads the right table.
    """

    right: GetterSupplier


@dataclass(frozen=True)
class ForeignTableJoin(VersionHeedingOperation):
    """Tells all subscribers that a right row has changed.

    Args:
        store: the name of the store of subscriptions.
        serdes: serialize the keys of right rows.
    """

    store: str
    serdes: ForeignKeySerdes


@dataclass(frozen=True)
class ResponseResolver(Operation):
    """Joins responses with the left rows that they are for.

    Args:
        left: reads the left table.
        serdes: serialize left rows, to hash them.
        joiner: (left value, right value) → result.
        left_join: whether left rows without a right row have a result.
    """

    left: GetterSupplier
    serdes: ForeignKeySerdes
    joiner: Callable[[Any, Any], Any]
    left_join: bool
