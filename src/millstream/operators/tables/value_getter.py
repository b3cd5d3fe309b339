"""Access to the rows of a table from operators of other nodes.

Joins, foreign-key joins and suppress read the current value of a key in a table. If the table has a
store, this is a lookup. The values of a filtered or mapped table without a store are computed from
its parent table (Kafka Streams' `KTableValueGetter`).

A **supplier** is part of the topology: it names the stores to connect to the reading node, can be
pickled, and creates the getter of one task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from millstream.operators.operator import OperatorContext
from millstream.operators.record_batch import has_none
from millstream.record import UNKNOWN
from millstream.state.keyvalue.key_value_table import TimedValue, TimestampedTable
from millstream.state.versioned.versioned_table import VersionedTable
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.window_table import WindowTable
from millstream.windowed import Windowed


class ValueGetter:
    """Reads a table in one task."""

    #: Whether the table can return the value of a key at an earlier time.
    is_versioned = False
    #: Whether reading runs no user code, so that it may be repeated.
    is_lookup = False

    def get(self, key: Any) -> TimedValue | None:
        """Return the value and timestamp of a key; None if the table lacks the key.

        The key must not be None.
        """
        raise NotImplementedError

    def get_many(self, keys: Sequence[Any]) -> list[TimedValue | None]:
        return [self.get(key) for key in keys]

    def read_ahead(self, keys: Sequence[Any]) -> list[TimedValue | None] | None:
        """Return the value of each key in advance; None if this is not possible.

        It is possible if there are at least two keys, no key is None, reading runs no user code,
        and all values can be read. Otherwise, the caller reads each key when it processes the
        record, so that errors belong to a record. From a cached table, reading in advance takes
        0.4 us per key instead of 1.1 us.
        """
        if not self.is_lookup or len(keys) < 2 or has_none(keys):
            return None
        try:
            return self.get_many(keys)
        except Exception:
            return None

    def get_as_of(self, key: Any, timestamp_ms: int) -> TimedValue | None:
        """Return the value of a key at a time. Only available if `is_versioned`."""
        raise NotImplementedError

    def close(self) -> None: ...


class GetterSupplier(Protocol):
    """Creates the getter of a table for a node that reads it. Can be pickled."""

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores to connect to the reading node."""

    def make(self, context: OperatorContext) -> ValueGetter:
        """Create the getter of one task. The stores of the context must be open."""


@dataclass(frozen=True)
class StoreGetterSupplier:
    """Reads a table from its store, which may be of any type."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    def make(self, context: OperatorContext) -> ValueGetter:
        table = context.store(self.store)
        return _GETTERS[type(table)](table)


@dataclass(frozen=True)
class DerivedGetterSupplier:
    """Reads a table without a store, which is computed from its parent table."""

    parent: GetterSupplier

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores


@dataclass(frozen=True)
class FilteredGetterSupplier(DerivedGetterSupplier):
    """Reads a filtered table that has no store."""

    predicate: Callable[[Any, Any], Any]
    negate: bool

    def make(self, context: OperatorContext) -> ValueGetter:
        predicate, negate = self.predicate, self.negate

        def kept(key: Any, value: Any) -> Any:
            return value if bool(predicate(key, value)) is not negate else None

        return _ComputedGetter(self.parent.make(context), kept)


@dataclass(frozen=True)
class MappedGetterSupplier(DerivedGetterSupplier):
    """Reads a table of mapped values that has no store."""

    mapper: Callable[..., Any]
    with_key: bool

    def make(self, context: OperatorContext) -> ValueGetter:
        mapper = self.mapper
        if self.with_key:
            return _ComputedGetter(self.parent.make(context), mapper)
        return _ComputedGetter(self.parent.make(context), lambda key, value: mapper(value))


@dataclass(frozen=True)
class JoinedGetterSupplier:
    """Reads a joined table that has no store."""

    left: GetterSupplier
    right: GetterSupplier
    joiner: Callable[[Any, Any], Any]
    needs_left: bool
    needs_right: bool

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    def make(self, context: OperatorContext) -> ValueGetter:
        return _JoinedGetter(self.left.make(context), self.right.make(context), self)


class _TableGetter(ValueGetter):
    is_lookup = True

    def __init__(self, table: TimestampedTable) -> None:
        self._table = table

    def get(self, key: Any) -> TimedValue | None:
        table = self._table
        return table.get(table.encode_keys((key,))[0])

    def get_many(self, keys: Sequence[Any]) -> list[TimedValue | None]:
        table = self._table
        return table.read_many(table.encode_keys(keys))


class _VersionedGetter(ValueGetter):
    is_versioned = True

    def __init__(self, table: VersionedTable) -> None:
        self._table = table

    def get(self, key: Any) -> TimedValue | None:
        table = self._table
        return table.get(table.encode_keys((key,))[0])

    def get_as_of(self, key: Any, timestamp_ms: int) -> TimedValue | None:
        table = self._table
        found = table.get_as_of(table.encode_keys((key,))[0], timestamp_ms)
        return None if found is None or found[0] is None else (found[0], found[1])


class _WindowGetter(ValueGetter):
    def __init__(self, table: WindowTable) -> None:
        self._table = table

    def get(self, key: Windowed[object]) -> TimedValue | None:
        table = self._table
        return table.fetch(table.encode_keys((key.key,))[0], key.window.start_ms)


class _SessionGetter(ValueGetter):
    def __init__(self, table: SessionTable) -> None:
        self._table = table

    def get(self, key: Windowed[object]) -> TimedValue | None:
        table, window = self._table, key.window
        key_bytes = table.encode_keys((key.key,))[0]
        value = table.fetch(key_bytes, window.start_ms, window.end_ms)
        return None if value is None else (value, window.end_ms)


#: The getter for each type of store.
_GETTERS: Final[dict[type, Callable[[Any], ValueGetter]]] = {
    TimestampedTable: _TableGetter,
    VersionedTable: _VersionedGetter,
    WindowTable: _WindowGetter,
    SessionTable: _SessionGetter,
}


class _ComputedGetter(ValueGetter):
    """Computes values from those of the parent table.

    Keys without a value have no result.
    """

    def __init__(self, parent: ValueGetter, compute: Callable[[Any, Any], Any]) -> None:
        self.is_versioned = parent.is_versioned
        self._parent = parent
        self._compute = compute

    def get(self, key: Any) -> TimedValue | None:
        return self._computed(key, self._parent.get(key))

    def get_as_of(self, key: Any, timestamp_ms: int) -> TimedValue | None:
        return self._computed(key, self._parent.get_as_of(key, timestamp_ms))

    def close(self) -> None:
        self._parent.close()

    def _computed(self, key: Any, found: TimedValue | None) -> TimedValue | None:
        if found is None:
            return None
        value = self._compute(key, found[0])
        return None if value is None else (value, found[1])


class _JoinedGetter(ValueGetter):
    # Follows Kafka Streams: a join of versioned tables without a store is not versioned.
    def __init__(self, left: ValueGetter, right: ValueGetter, how: JoinedGetterSupplier) -> None:
        self._left = left
        self._right = right
        self._how = how

    def get(self, key: Any) -> TimedValue | None:
        how = self._how
        left = self._left.get(key)
        if left is None and how.needs_left:
            return None
        right = self._right.get(key)
        if right is None and (how.needs_right or left is None):
            return None
        left_value, left_time = left or (None, UNKNOWN)
        right_value, right_time = right or (None, UNKNOWN)
        value = how.joiner(left_value, right_value)
        return None if value is None else (value, max(left_time, right_time))

    def close(self) -> None:
        self._left.close()
        self._right.close()
