"""How an operator reads a table of windows or sessions (`KStreamWindowAggregateValueGetter`)."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.operators.operator import OperatorContext
from millstream.operators.value_getter import ValueGetter
from millstream.state.session_table import SessionTable
from millstream.state.table import TimedValue
from millstream.state.window_table import WindowTable
from millstream.windowed import Windowed


@dataclass(frozen=True)
class WindowStoreGetter:
    """Reads a table of windows of a fixed size from its store.

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
        return _FromWindows(context.store(self.store))


@dataclass(frozen=True)
class SessionStoreGetter:
    """Reads a table of sessions from its store.

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
        return _FromSessions(context.store(self.store))


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
