"""What comes out of a buffer, as a batch that goes downstream."""

from __future__ import annotations

from typing import Any

from millstream.operators.batch import Batch, Order, Origin
from millstream.operators.operator import Output
from millstream.state.buffers.buffer_value import BufferedContext
from millstream.state.caches.cache_entries import headers_column


class Released:
    """Collects records that have waited, each with where it was read itself.

    Args:
        with_old_values: whether they are changes that go with what they replace.
    """

    def __init__(self, *, with_old_values: bool = False) -> None:
        self._with_old_values = with_old_values
        self._after: Order | None = None
        self._number = 0
        self._clear()

    def add(
        self,
        key: Any,
        value: Any,
        context: BufferedContext,
        after: Order | None,
        old_value: Any = None,
    ) -> None:
        """Add a record.

        Args:
            key: its key.
            value: its value.
            context: what it came with.
            after: the place in depth-first order of the record that has released it; None where
                there are no places.
            old_value: what the value replaces.
        """
        if after is not None:
            self._number = self._number + 1 if after is self._after else 0
            self._after = after
            self._order.append((*after, self._number))
        self._keys.append(key)
        self._values.append(value)
        self._contexts.append(context)
        self._old_values.append(old_value)

    def emit(self, output: Output) -> None:
        """Hand on what was added since the last time."""
        contexts = self._contexts
        if not contexts:
            return
        batch = Batch(
            self._keys,
            self._values,
            [context.timestamp for context in contexts],
            range(len(contexts)),
            Origin(
                [context.place for context in contexts],
                [context.offset for context in contexts],
                headers_column([context.headers for context in contexts]),
            ),
            self._order or None,
            None,
            self._old_values if self._with_old_values else None,
        )
        self._clear()
        output.emit(batch)

    def _clear(self) -> None:
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._contexts: list[BufferedContext] = []
        self._old_values: list[Any] = []
        self._order: list[Order] = []
