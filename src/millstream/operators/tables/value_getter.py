"""How an operator reads a table that another node keeps, or could keep.

A join, a foreign-key join or suppress wants the current value of a key in a table. If the table has
a store, that is a look-up. A filtered or mapped table without one is computed from the table it
comes from, as the value is read (Kafka Streams' `KTableValueGetter`).

A **supplier** is what a topology holds: it knows the stores to connect to the reading node, can be
pickled, and makes the getter of one task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from millstream.operators.batch import has_none
from millstream.operators.operator import OperatorContext
from millstream.record import UNKNOWN
from millstream.state.keyvalue.table import TimedValue, TimestampedTable
from millstream.state.versioned.table import VersionedTable
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.window_table import WindowTable
from millstream.windowed import Windowed


class ValueGetter:
    """Reads a table, in one task.

    Attributes:
        is_versioned: whether the table can be read as of an earlier time.
        is_lookup: whether reading runs no code of the user's, so that it may be tried twice.
    """

    is_versioned = False
    is_lookup = False

    def get(self, key: Any) -> TimedValue | None:
        """The value of a key and its timestamp; None if the table has no such key.

        Args:
            key: not None.
        """
        raise NotImplementedError

    def get_many(self, keys: Sequence[Any]) -> list[TimedValue | None]:
        """The value of each key, in their order."""
        return [self.get(key) for key in keys]

    def read_ahead(self, keys: Sequence[Any]) -> list[TimedValue | None] | None:
        """The value of each key, where it can be read before its turn; None where it cannot.

        It can where no code of the user's runs, all keys are there, and each can be read: else it
        is told by its own turn what is wrong. 0.4 us a key instead of 1.1 us from a cached table.

        Args:
            keys: some of them perhaps None.
        """
        if not self.is_lookup or len(keys) < 2 or has_none(keys):
            return None
        try:
            return self.get_many(keys)
        except Exception:
            return None

    def get_as_of(self, key: Any, timestamp_ms: int) -> TimedValue | None:
        """The value that a key had at a time; only if `is_versioned`.

        Args:
            key: not None.
            timestamp_ms: milliseconds since the epoch.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task is suspended or closed."""


class GetterSupplier(Protocol):
    """Makes the getter of a table, for a node that reads it. Can be pickled."""

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores that are read, to be connected to the node."""
        ...

    def make(self, context: OperatorContext) -> ValueGetter:
        """The getter of one task.

        Args:
            context: that of the operator which reads; its stores must be open.
        """
        ...


@dataclass(frozen=True)
class StoreGetter:
    """Reads a table from its store, of whatever kind that is.

    Args:
        store: its name.
    """

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """The store itself."""
        return (self.store,)

    def make(self, context: OperatorContext) -> ValueGetter:
        """The getter of one task."""
        table = context.store(self.store)
        return _GETTERS[type(table)](table)


@dataclass(frozen=True)
class FilteredGetter:
    """Reads a filtered table that has no store.

    Args:
        parent: reads the table that is filtered.
        predicate: (key, value) → whether the key stays.
        negate: whether it stays otherwise.
    """

    parent: GetterSupplier
    predicate: Callable[[Any, Any], Any]
    negate: bool

    @property
    def stores(self) -> tuple[str, ...]:
        """Those of the filtered table."""
        return self.parent.stores

    def make(self, context: OperatorContext) -> ValueGetter:
        """The getter of one task."""
        predicate, negate = self.predicate, self.negate

        def kept(key: Any, value: Any) -> Any:
            return value if bool(predicate(key, value)) is not negate else None

        return _Computed(self.parent.make(context), kept)


@dataclass(frozen=True)
class MappedGetter:
    """Reads a table of mapped values that has no store.

    Args:
        parent: reads the table that is mapped.
        mapper: (key, value) → value, or value → value.
        with_key: which of the two.
    """

    parent: GetterSupplier
    mapper: Callable[..., Any]
    with_key: bool

    @property
    def stores(self) -> tuple[str, ...]:
        """Those of the mapped table."""
        return self.parent.stores

    def make(self, context: OperatorContext) -> ValueGetter:
        """The getter of one task."""
        mapper = self.mapper
        if self.with_key:
            return _Computed(self.parent.make(context), mapper)
        return _Computed(self.parent.make(context), lambda key, value: mapper(value))


@dataclass(frozen=True)
class JoinedGetter:
    """Reads a joined table that has no store.

    Args:
        left: reads the left table.
        right: reads the right table.
        joiner: (left value, right value) → value.
        needs_left: whether there is no result without a left value.
        needs_right: whether there is no result without a right value.
    """

    left: GetterSupplier
    right: GetterSupplier
    joiner: Callable[[Any, Any], Any]
    needs_left: bool
    needs_right: bool

    @property
    def stores(self) -> tuple[str, ...]:
        """Those of both tables."""
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    def make(self, context: OperatorContext) -> ValueGetter:
        """The getter of one task."""
        return _Joined(self.left.make(context), self.right.make(context), self)


class _FromTable(ValueGetter):
    is_lookup = True

    def __init__(self, table: TimestampedTable) -> None:
        self._table = table

    def get(self, key: Any) -> TimedValue | None:
        table = self._table
        return table.get(table.encode_keys((key,))[0])

    def get_many(self, keys: Sequence[Any]) -> list[TimedValue | None]:
        table = self._table
        return table.read_many(table.encode_keys(keys))


class _FromVersions(ValueGetter):
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


class _FromWindows(ValueGetter):
    def __init__(self, table: WindowTable) -> None:
        self._table = table

    def get(self, key: Windowed[object]) -> TimedValue | None:
        table = self._table
        return table.fetch(table.encode_keys((key.key,))[0], key.window.start_ms)


class _FromSessions(ValueGetter):
    def __init__(self, table: SessionTable) -> None:
        self._table = table

    def get(self, key: Windowed[object]) -> TimedValue | None:
        table, window = self._table, key.window
        key_bytes = table.encode_keys((key.key,))[0]
        value = table.fetch(key_bytes, window.start_ms, window.end_ms)
        return None if value is None else (value, window.end_ms)


#: What reads which kind of store.
_GETTERS: Final[dict[type, Callable[[Any], ValueGetter]]] = {
    TimestampedTable: _FromTable,
    VersionedTable: _FromVersions,
    WindowTable: _FromWindows,
    SessionTable: _FromSessions,
}


class _Computed(ValueGetter):
    """A value computed from that of another table; there is none where that has none."""

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


class _Joined(ValueGetter):
    # Follows Kafka Streams: a join of versioned tables without a store is not versioned.
    def __init__(self, left: ValueGetter, right: ValueGetter, how: JoinedGetter) -> None:
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
