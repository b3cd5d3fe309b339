"""Batches of results: from a batch, a cache, a buffer or a versioned store."""

from __future__ import annotations

from typing import Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.operators.operator import Output
from millstream.operators.record_batch import Batch, Order, Origin
from millstream.state.buffers.buffer_value import BufferedContext
from millstream.state.caches.cache_entries import FlushedChanges, headers_column
from millstream.state.versioned.versions import NOT_PUT, VALID_TO_UNDEFINED


class ResultRecords:
    """The results of the records of a batch, in record order: parallel lists."""

    __slots__ = ("batch", "indices", "keys", "old_values", "timestamps", "values")

    def __init__(self, batch: Batch, *, with_old_values: bool = False) -> None:
        self.batch = batch
        #: The index of each result's record.
        self.indices: list[int] = []
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self.old_values: list[Any] | None = [] if with_old_values else None

    def add(self, index: int, key: Any, value: Any, timestamp: int, old_value: Any = None) -> None:
        self.indices.append(index)
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        if self.old_values is not None:
            self.old_values.append(old_value)

    def emit(self, output: Output, *, keeps_headers: bool = True) -> None:
        """Emit the results, each with the position of its record's input record."""
        indices, batch = self.indices, self.batch
        if not indices:
            return
        rows, headers = batch.rows, batch.headers
        new_headers = None if headers is None else [headers[index] for index in indices]
        if not keeps_headers and (headers is not None or batch.origin.headers is not None):
            new_headers = [()] * len(indices)
        output.emit(
            Batch(
                self.keys,
                self.values,
                self.timestamps,
                [rows[index] for index in indices],
                batch.origin,
                self._positions(),
                new_headers,
                self.old_values,
            )
        )

    def _positions(self) -> list[Order] | None:
        """Return depth-first positions: the record's, followed by the result's index."""
        order = self.batch.order
        if order is None:
            return None
        positions: list[Order] = []
        previous, number = -1, 0
        for index in self.indices:
            number = number + 1 if index == previous else 0
            previous = index
            positions.append((*order[index], number))
        return positions


def emit_flushed(changes: FlushedChanges | None, output: Output, after: Order = ()) -> None:
    """Emit flushed changes, each with the position of the record that caused it.

    Args:
        after: the depth-first position of the record that caused the eviction; empty for a flush.
    """
    if changes is None or not changes.keys:
        return
    size = len(changes.keys)
    output.emit(
        Batch(
            changes.keys,
            changes.new_values,
            changes.timestamps,
            range(size),
            Origin(changes.places, changes.offsets, changes.headers),
            [(*after, index) for index in range(size)] if output.ordered else None,
            None,
            changes.old_values,
        )
    )


class ReleasedRecords:
    """Collects records released from a buffer.

    Each one has the position of its own input record.
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
        """Add a record that the record with depth-first position `after` released."""
        if after is not None:
            self._number = self._number + 1 if after is self._after else 0
            self._after = after
            self._order.append((*after, self._number))
        self._keys.append(key)
        self._values.append(value)
        self._contexts.append(context)
        self._old_values.append(old_value)

    def emit(self, output: Output) -> None:
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


class StoredVersions:
    """Collects the versions that the records of a batch put into a versioned store."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._kept: list[int] = []
        self._values: list[Any] = []
        self._old_values: list[Any] = []
        self._timestamps: list[int] = []
        self._latest: list[bool] = []

    def add(self, index: int, value: Any, old_value: Any, timestamp: int, valid_to: int) -> None:
        """Add a version, unless the store has rejected it as older than its history.

        `valid_to` is the value that the `put` of the store returned.
        """
        if valid_to == NOT_PUT:
            return
        self._kept.append(index)
        self._values.append(value)
        self._old_values.append(old_value)
        self._timestamps.append(timestamp)
        self._latest.append(valid_to == VALID_TO_UNDEFINED)

    def emit(self, output: Output, send_old_values: bool) -> None:
        """Emit the changes, each with a flag for whether it is the latest of its key."""
        if not self._kept:
            return
        batch = self._batch
        kept = batch if len(self._kept) == len(batch) else batch.take(self._kept)
        changes = kept.with_changes(
            self._values, self._old_values if send_old_values else None, self._timestamps
        )
        changes.is_latest = self._latest
        output.emit(changes)


#: Internal settings of Kafka Streams: the minimum times, in milliseconds, between two searches for
#: closed windows and for unmatched records of joins. `TopologyTestDriver` sets both to 0.
WINDOW_CLOSE_INTERVAL: Final = "__emit.interval.ms.kstreams.windowed.aggregation__"
OUTER_JOIN_INTERVAL: Final = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"

_DEFAULT_MS: Final = 1_000


def emit_interval_ms(config: StreamsConfig, setting: str) -> int:
    """Return the minimum wall-clock time between searches.

    `setting` is one of the settings above.
    """
    return int(config.extra.get(setting, _DEFAULT_MS))
