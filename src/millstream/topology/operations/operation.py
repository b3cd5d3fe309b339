"""The base classes of operation descriptions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Operation:
    """The operation of a processor node.

    Operations of the same class are compared by field.
    """


@dataclass(frozen=True)
class ConcurrentOperation(Operation):
    """An operation that finishes records outside of the loop."""


@dataclass(frozen=True)
class TableOperation(Operation):
    """An operation that produces the changes of a table."""

    #: Whether a downstream operation needs the old values of changes.
    send_old_values: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class MaterializableOperation(TableOperation):
    """A table operation that may have its own store for its results."""

    #: None if the results are not stored.
    store: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class VersionAwareOperation(Operation):
    """An operation that depends on whether its input may have out-of-order changes."""

    #: Whether the input is a versioned table, whose changes may be out of order.
    versioned: bool = field(default=False, kw_only=True)
