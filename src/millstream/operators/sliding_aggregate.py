"""Aggregations over sliding windows (Kafka Streams' KStreamSlidingWindowAggregate, KIP-450).

A window spans `[start, start + difference]`, both ends included. Of the endlessly many such windows
those are kept that differ in their records: each record has a *left window*, which ends with it,
and a *right window*, which begins 1 ms after it, if later records lie in that. So a record
- changes each window there is that its time lies in,
- makes its left window, starting from what the records before it have left behind,
- makes the right window of the record before, which now holds a record,
- makes its own right window if there are later records already: a copy of another window.

A window's timestamp is that of its latest record, which tells where the record before was. Records
closer to time 0 than the difference share the window `[0, difference]` in place of left windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from millstream.operators.batch import Batch
from millstream.operators.fold import Aggregator, Initializer
from millstream.operators.operator import Output
from millstream.operators.results import Results
from millstream.operators.windowed import FinalResult, WindowedOperator
from millstream.record import UNKNOWN
from millstream.state.keyvalue.table import TimedValue
from millstream.state.windows.window_table import WindowTable
from millstream.windowed import windowed


class WindowsByRecords(Protocol):
    """Windows of a fixed size that begin and end at records."""

    @property
    def time_difference_ms(self) -> int: ...

    @property
    def grace_ms(self) -> int: ...


class SlidingAggregateOperator(WindowedOperator[WindowsByRecords]):
    """Folds the values of each key in each sliding window into one.

    Args:
        store: the name of the store with the windows.
        windows: how far apart the records of a window are at most.
        initializer: gives the aggregate that a window starts from.
        aggregator: (key, value, aggregate) → the next aggregate; None deletes it.
        emit_final: whether only final results are sent, when their windows are closed.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    needs_value = True

    _table: WindowTable

    def update(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        difference = self._windows.time_difference_ms
        changes = None
        if self._cache is None and not self._emit_final:
            changes = Results(batch, with_old_values=self._send_old_values)
        fold = _Fold(
            self._table,
            difference,
            self._initializer,
            self._aggregator,
            changes,
            self._send_old_values,
        )
        late = 0
        for index, timestamp in enumerate(batch.timestamps):
            if timestamp > self._stream_time:
                self._stream_time = timestamp
            close_time = self.close_time()
            is_early, is_late = timestamp < difference, timestamp + 1 + difference <= close_time
            if is_early or is_late:
                # Follows Kafka Streams: neither early nor late records count as a search.
                self._looks_for_closed = False
            if is_late:
                late += 1
                continue
            record = _Record(batch, index, key_bytes[index], close_time, fold)
            try:
                if is_early:
                    record.place_early()
                else:
                    record.place()
            except Exception as error:
                self.failed(batch, index, error)
            late += record.late_windows
        self.dropped(late)
        if changes is not None:
            changes.emit(output)

    def final_results(self, close_time: int) -> Sequence[FinalResult] | None:
        difference = self._windows.time_difference_ms
        last = close_time - difference - 1
        if last < 0:
            return None
        emitted = self._emitted_until
        first = 0 if emitted == UNKNOWN else max(0, emitted - difference)
        return [FinalResult(*found) for found in self._table.fetch_all(first, last)]


class _Fold(NamedTuple):
    """What all records of a batch share.

    Args:
        table: the windows.
        difference: from the start of a window to its end, in milliseconds.
        initializer: as for `SlidingAggregateOperator`.
        aggregator: as for `SlidingAggregateOperator`.
        changes: takes what goes downstream; None if nothing does by now.
        wants_old_values: whether changes go with what they replace.
    """

    table: WindowTable
    difference: int
    initializer: Initializer
    aggregator: Aggregator
    changes: Results | None
    wants_old_values: bool


class _Record:
    """One record on its way into its windows.

    Args:
        batch: the batch of the record.
        index: the record in the batch.
        key_bytes: its serialized key.
        close_time: windows that end before are closed.
        fold: what all records of the aggregation share.
    """

    __slots__ = (
        "_close_time",
        "_difference",
        "_fold",
        "_index",
        "_key",
        "_key_bytes",
        "_read_at",
        "_table",
        "_time",
        "_value",
        "late_windows",
    )

    def __init__(
        self, batch: Batch, index: int, key_bytes: bytes, close_time: int, fold: _Fold
    ) -> None:
        row = batch.rows[index]
        self._fold = fold
        self._table = fold.table
        self._difference = fold.difference
        self._index = index
        self._key = batch.keys[index]
        self._value = batch.values[index]
        self._time = batch.timestamps[index]
        self._read_at = batch.origin.place(row), batch.origin.offsets[row], batch.headers_of(index)
        self._key_bytes = key_bytes
        self._close_time = close_time
        #: How many of its windows were closed already.
        self.late_windows = 0

    def place(self) -> None:
        """Put a record into its windows whose left window begins at 0 or later.

        The windows there are are changed from the newest to the oldest: follows Kafka Streams.
        """
        time, difference = self._time, self._difference
        starts: set[int] = set()
        left: TimedValue | None = None
        right: TimedValue | None = None
        has_left = has_right = False
        previous_time: int | None = None
        found = self._table.fetch_between(self._key_bytes, max(0, time - 2 * difference), time + 1)
        for start, value, latest in reversed(found):
            starts.add(start)
            end = start + difference
            if start == time + 1:
                has_right = True
            elif end > time:
                if right is None:
                    right = (self._table.own(value), latest)
                self._update(start, value, latest)
            elif end == time:
                has_left = True
                self._update(start, value, latest)
                if latest >= time:
                    # There was a record at this very time, which has made all windows.
                    return
                previous_time = latest
            else:
                left = (value, latest)
                previous_time = latest
                break
        if previous_time is not None:
            self._make_right_of_previous(previous_time, starts)
        if not has_left:
            if left is not None and left[1] >= time - difference:
                self._update(time - difference, left[0], time)
            else:
                self._update(time - difference, self._fold.initializer(), time)
        if not has_right:
            self._make_right(right)

    def place_early(self) -> None:
        """Put a record into its windows that is closer to time 0 than the difference."""
        time = self._time
        starts: set[int] = set()
        common: TimedValue | None = None
        right: TimedValue | None = None
        has_right = False
        previous_time: int | None = None
        for start, value, latest in self._table.fetch_between(self._key_bytes, 0, time + 1):
            starts.add(start)
            if start == 0:
                common = (value, latest)
                if latest < time:
                    previous_time = latest
            elif start <= time:
                right = (self._table.own(value), latest)
                self._update(start, value, latest)
            else:
                has_right = True
        if right is None and common is not None and common[1] > time:
            # Only later records so far: what holds them all is what this record's window holds.
            right = (self._table.own(common[0]), common[1])
        if not has_right:
            self._make_right(right)
        if previous_time is not None and previous_time + 1 not in starts:
            self._update(previous_time + 1, self._fold.initializer(), time)
        if common is None:
            self._update(0, self._fold.initializer(), time)
        else:
            self._update(0, *common)

    def _make_right_of_previous(self, previous_time: int, starts: set[int]) -> None:
        start = previous_time + 1
        if start not in starts and start + self._difference >= self._time:
            self._update(start, self._fold.initializer(), self._time)

    def _make_right(self, content: TimedValue | None) -> None:
        """Make the window that begins after this record, if it holds later ones."""
        if content is not None and content[1] > self._time:
            self._put(self._time + 1, *content, None)

    def _update(self, start: int, aggregate: Any, latest: int) -> None:
        """Let a window take the record, unless it is closed.

        Args:
            start: of the window.
            aggregate: of the window, or what it begins with.
            latest: the time of its latest record; for a new one that of this record.
        """
        if start + self._difference < self._close_time:
            self.late_windows += 1
            return
        fold = self._fold
        old = self._table.own(aggregate) if fold.wants_old_values else None
        value = fold.aggregator(self._key, self._value, aggregate)
        if value is self._value:
            # It may be on its way elsewhere: keep another object.
            value = self._table.own(value)
        self._put(start, value, latest if latest > self._time else self._time, old)

    def _put(self, start: int, value: Any, latest: int, old: Any) -> None:
        # Follows Kafka Streams: a deletion is logged with the time of the record.
        logged = self._time if value is None else latest
        self._table.put(self._key_bytes, start, value, logged, *self._read_at)
        changes = self._fold.changes
        if changes is not None:
            window = windowed(self._key, start, start + self._difference)
            changes.add(self._index, window, value, latest, old)
