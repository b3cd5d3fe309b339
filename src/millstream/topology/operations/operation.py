"""What all descriptions of operations have in common."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Operation:
    """What one processor node does. Two are equal if they are of one kind with equal fields."""


@dataclass(frozen=True)
class ApartOperation(Operation):
    """An operation whose work on a record goes on beside the loop."""


@dataclass(frozen=True)
class TableOperation(Operation):
    """An operation whose results are the changes of a table.

    Args:
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    send_old_values: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class KeepableTableOperation(TableOperation):
    """An operation whose results may be kept in a store of its own.

    Args:
        store: the name of the store; None if there is none.
    """

    store: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class VersionHeedingOperation(Operation):
    """An operation that must know whether the changes it gets may be other than the newest.

    Args:
        versioned: whether they are those of a versioned table.
    """

    versioned: bool = field(default=False, kw_only=True)
