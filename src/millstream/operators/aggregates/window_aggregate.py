"""Aggregations over tumbling, hopping and unlimited windows (`KStreamWindowAggregate`).

A record goes into every window that its time lies in. The batch is first spread out, one line for
each window of each record, and then aggregated as without windows, under the stored keys of the
windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from millstream.operators.aggregates.cached_loops import count_entries
from millstream.operators.aggregates.fold import Fold, Folded, count_one, updates_of
from millstream.operators.aggregates.windowed import FinalResult, WindowedOperator
from millstream.operators.batch import Batch, repeated
from millstream.operators.operator import OperatorContext, Output
from millstream.operators.results import Results
from millstream.record import UNKNOWN
from millstream.state.windows.window_cache import WindowCache
from millstream.state.windows.window_keys import WINDOWS, window_key
from millstream.state.windows.window_table import WindowTable
from millstream.windowed import end_of_window, windowed

#: How many windows are remembered. Few are open at a time.
_REMEMBERED = 10_000


class WindowsByStart(Protocol):
    """Windows of a fixed size, which a record's time alone decides on."""

    @property
    def size_ms(self) -> int: ...

    @property
    def grace_ms(self) -> int: ...

    @property
    def tumbles(self) -> bool:
        """Whether each time lies in exactly one window, which starts at a multiple of the size."""
        ...

    @property
    def step_ms(self) -> int | None:
        """Times that give the same number when divided by this lie in the same windows."""
        ...

    def starts_at(self, timestamp: int) -> Sequence[int]:
        """When the windows start that a time lies in, ascending."""
        ...


class Spread(NamedTuple):
    """Records spread over their windows: parallel lists, one element for each pair of the two.

    Args:
        indices: of each pair, the index of its record in the batch; None where each has one window.
        stored_keys: under which key the window is stored.
    """

    indices: list[int] | None
    stored_keys: list[bytes]


class WindowAggregateOperator(WindowedOperator[WindowsByStart]):
    """Folds the values of each key in each window into one.

    Args:
        store: the name of the store with the windows.
        windows: which windows there are.
        initializer: gives the aggregate that a window starts from.
        aggregator: (key, value, aggregate) → the next aggregate; None deletes it.
        emit_final: whether only final results are sent, when their windows are closed.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    _table: WindowTable
    _cache: WindowCache | None

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._size_ms = self._windows.size_ms
        self._suffixes = _Suffixes()
        self._suffixes_at = _SuffixesAt(self._windows, self._suffixes)
        self._fold = Fold(
            self._table,
            self._initializer,
            self._aggregator,
            guarded=context.may_continue,
            send_old_values=self._send_old_values,
        )

    def update(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        spread = self._spread(batch, key_bytes)
        if not spread.stored_keys:
            return
        if self._cache is not None:
            self.update_cache(self._cache, batch, spread)
            return
        folded = self._fold.into_table(
            batch, spread.stored_keys, spread.indices, partial(self.failed, batch)
        )
        if not self._emit_final:
            self._changes(batch, spread, folded).emit(output)

    def final_results(self, close_time: int) -> Sequence[FinalResult] | None:
        last = close_time - self._size_ms
        if last < 0:
            return None
        emitted = self._emitted_until
        first = 0 if emitted == UNKNOWN else max(0, emitted - self._size_ms) + 1
        if first > last:
            return []
        return [FinalResult(*found) for found in self._table.fetch_all(first, last)]

    # ---- which windows

    def _spread(self, batch: Batch, key_bytes: Sequence[bytes]) -> Spread:
        timestamps, size, step = batch.timestamps, self._size_ms, self._windows.step_ms
        earliest, latest = min(timestamps), max(timestamps)
        newest = max(self._stream_time, latest)
        open_from = newest - self._grace_ms - size
        is_open = step is not None and self._windows.starts_at(earliest)[0] > open_from
        if step is None or not (is_open or self._are_in_order(timestamps)):
            return self._spread_each(batch, key_bytes)
        # No record is late.
        self._stream_time = newest
        if self._windows.tumbles:
            suffix_of = self._suffixes.ready()
            start = earliest - earliest % size
            if latest < start + size:
                # All in one window: 0.05 us a record, else 0.2 us.
                suffix = suffix_of[start]
                stored_keys = [key + suffix for key in key_bytes]
                return Spread(None, stored_keys)
            stored_keys = [
                key + suffix_of[timestamp - timestamp % size]
                for key, timestamp in zip(key_bytes, timestamps, strict=True)
            ]
            return Spread(None, stored_keys)
        # 0.2 us a window, a fifth of what looking at each takes.
        suffixes_at = self._suffixes_at.ready()
        windows = [suffixes_at[timestamp // step] for timestamp in timestamps]
        stored_keys = [
            key + suffix
            for key, suffixes in zip(key_bytes, windows, strict=True)
            for suffix in suffixes
        ]
        return Spread(repeated(range(len(windows)), map(len, windows)), stored_keys)

    def _are_in_order(self, timestamps: list[int]) -> bool:
        """Whether stream time is never ahead of a record: then it is not late, without grace too,
        since its windows have not ended at its own time. 0.02 us a record."""
        return timestamps[0] >= self._stream_time and timestamps == sorted(timestamps)

    def _spread_each(self, batch: Batch, key_bytes: Sequence[bytes]) -> Spread:
        stream_time, grace, size = self._stream_time, self._grace_ms, self._size_ms
        starts_at, suffixes = self._windows.starts_at, self._suffixes.ready()
        indices: list[int] = []
        stored_keys: list[bytes] = []
        late = late_windows = 0
        for index, timestamp in enumerate(batch.timestamps):
            if timestamp > stream_time:
                stream_time = timestamp
            first_open = stream_time - grace - size
            key, late_before = key_bytes[index], late_windows
            for start in starts_at(timestamp):
                if start > first_open:
                    indices.append(index)
                    stored_keys.append(key + suffixes[start])
                else:
                    late_windows += 1
            if late_windows > late_before:
                late += 1
        self._stream_time = stream_time
        self.dropped(late, late_windows)
        return Spread(indices, stored_keys)

    # ---- aggregating

    def update_cache(self, cache: WindowCache, batch: Batch, spread: Spread) -> None:
        """Change the aggregates of the records of a batch in the cache."""
        self._fold.into_cache(
            cache, batch, spread.stored_keys, spread.indices, partial(self.failed, batch)
        )

    def _changes(self, batch: Batch, spread: Spread, folded: Folded) -> Results:
        positions, indices, size = folded.positions, spread.indices, self._size_ms
        keys, stored_keys, time_of = batch.keys, spread.stored_keys, WINDOWS.time_of
        starts = [time_of(stored_keys[each]) for each in positions]
        changes = Results(batch)
        changes.indices = positions if indices is None else [indices[each] for each in positions]
        changes.keys = [
            windowed(keys[index], start, end_of_window(start, size))
            for index, start in zip(changes.indices, starts, strict=True)
        ]
        changes.values, changes.timestamps = folded.values, folded.timestamps
        changes.old_values = folded.old_values
        return changes


class WindowCountOperator(WindowAggregateOperator):
    """Counts the records of each key in each window.

    Args:
        store: the name of the store with the counts.
        windows: which windows there are.
        emit_final: whether only final results are sent, when their windows are closed.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self,
        store: str,
        windows: WindowsByStart,
        *,
        emit_final: bool = False,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(
            store,
            windows,
            int,
            count_one,
            emit_final=emit_final,
            send_old_values=send_old_values,
        )

    def update_cache(self, cache: WindowCache, batch: Batch, spread: Spread) -> None:
        """Count the records of a batch in the cache."""
        count_entries(cache, updates_of(batch, spread.stored_keys, spread.indices))


class _Suffixes(dict[int, bytes]):
    """What stored keys have behind the key, by the start of the window: 0.05 us each."""

    def __missing__(self, start: int) -> bytes:
        suffix = self[start] = window_key(b"", start)
        return suffix

    def ready(self) -> _Suffixes:
        """Itself, after forgetting what has become too much."""
        if len(self) > _REMEMBERED:
            self.clear()
        return self


class _SuffixesAt(dict[int, tuple[bytes, ...]]):
    """The suffixes of the windows of a time, by the time divided by the step."""

    def __init__(self, windows: WindowsByStart, suffixes: _Suffixes) -> None:
        super().__init__()
        self._windows = windows
        self._suffixes = suffixes

    def __missing__(self, number: int) -> tuple[bytes, ...]:
        starts = self._windows.starts_at(number * (self._windows.step_ms or 1))
        found = self[number] = tuple(self._suffixes[start] for start in starts)
        return found

    def ready(self) -> _SuffixesAt:
        """Itself, after forgetting what has become too much."""
        if len(self) > _REMEMBERED:
            self.clear()
            self._suffixes.ready()
        return self
