"""Aggregations over sliding windows (KIP-450).

Corresponds to Kafka Streams' `KStreamSlidingWindowAggregate`.

A window spans `[start, start + difference]`, both ends included. Of the infinitely many windows,
only those with distinct sets of records are stored. They are determined by the timestamps of a
key's records. Each timestamp has
- a *left window*, which ends at the timestamp: `[time - difference, time]`; the timestamps before
  `difference` share `[0, difference]`, because no window starts before 0,
- a *right window*, which starts 1 ms after the timestamp and exists once it contains a record.

A new timestamp adds its own two windows. It also adds the right window of the previous timestamp,
if the new record is the first in that window. All other windows that contain the new timestamp
already exist. The initial aggregate of a new window is determined without reading records. A left
window starts with the aggregate of the last window before it. A right window starts with the
aggregate of the newest window that contains the new timestamp: that window starts right after the
previous timestamp, so all of its records are later than the new one. The right window of the
previous timestamp starts empty. The timestamps are not stored separately: each window is stored
with the timestamp of its latest record.

`changed_windows` computes the window changes that a record causes as plain data, and the operator
applies the changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from millstream.operators.aggregates.windowed_aggregation import FinalResult, WindowedOperator
from millstream.operators.operator import Output
from millstream.operators.record_batch import Batch
from millstream.operators.result_records import ResultRecords
from millstream.record import UNKNOWN
from millstream.state.windows.window_table import WindowTable, WindowValue
from millstream.windowed import unchecked_windowed

#: The aggregate of a window without records.
EMPTY: Final = object()


class RecordAlignedWindows(Protocol):
    """Windows of a fixed size that start and end at records."""

    @property
    def time_difference_ms(self) -> int: ...

    @property
    def grace_ms(self) -> int: ...


class SlidingAggregateOperator(WindowedOperator[RecordAlignedWindows]):
    """Folds the values of each key in each sliding window into one aggregate."""

    needs_value = True

    _table: WindowTable
    #: The number of windows for which records of the batch were late.
    _late_windows = 0

    def update(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        difference = self._windows.time_difference_ms
        changes = None
        if self._cache is None and not self._emit_final:
            changes = ResultRecords(batch, with_old_values=self._send_old_values)
        self._late_windows = late = 0
        for index, time in enumerate(batch.timestamps):
            if time > self._stream_time:
                self._stream_time = time
            close_time = self.close_time()
            # The right window of a record is its last window to close.
            is_late = time + 1 + difference <= close_time
            if is_late or time < difference:
                # Follows Kafka Streams, which does not search for closed windows after early and
                # late records.
                self._checks_closed_windows = False
            if is_late:
                self._late_windows += 1
                late += 1
                continue
            late_before = self._late_windows
            try:
                self._aggregate_record(batch, index, key_bytes[index], close_time, changes)
            except Exception as error:
                self.failed(batch, index, error)
            if self._late_windows > late_before:
                late += 1
        self.dropped(late, self._late_windows)
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

    def _aggregate_record(
        self,
        batch: Batch,
        index: int,
        key_bytes: bytes,
        close_time: int,
        changes: ResultRecords | None,
    ) -> None:
        """Add a record to each of its open windows."""
        table, difference = self._table, self._windows.time_difference_ms
        key, value, time = batch.keys[index], batch.values[index], batch.timestamps[index]
        row, origin = batch.rows[index], batch.origin
        input_positions = origin.place(row), origin.offsets[row], batch.headers_of(index)
        found = table.fetch_between(key_bytes, max(0, time - 2 * difference), time + 1)
        for start, aggregate, latest in changed_windows(
            found, time, difference, table.private_copy
        ):
            old = None
            if start <= time:
                if aggregate is EMPTY:
                    aggregate = self._initializer()
                if start + difference < close_time:
                    self._late_windows += 1
                    continue
                if self._send_old_values:
                    old = table.private_copy(aggregate)
                aggregate = self._aggregator(key, value, aggregate)
                if aggregate is value:
                    # The value may also be used elsewhere: store a copy.
                    aggregate = table.private_copy(value)
                if latest < time:
                    latest = time
            # Follows Kafka Streams: a deletion is logged with the timestamp of the record.
            logged = time if aggregate is None else latest
            table.put(key_bytes, start, aggregate, logged, *input_positions)
            if changes is not None:
                window = unchecked_windowed(key, start, start + difference)
                changes.add(index, window, aggregate, latest, old)


def changed_windows(
    found: list[WindowValue], time: int, difference: int, own: Callable[[Any], Any]
) -> list[WindowValue]:
    """Return the windows that a record changes or adds, in order of the changes.

    Windows that start after the record are complete; the record must still be folded into the
    others. `found` contains the windows of the record's key that start between twice the difference
    before the record and 1 ms after it, ordered by start. `own` copies an aggregate, because
    aggregates may be modified in place.

    Returns:
        The start of each window, its current aggregate, and the timestamp of its latest record. An
            empty window has the aggregate `EMPTY` and the timestamp of this record.
    """
    starts = [window[0] for window in found]
    left_start = max(0, time - difference)
    first = bisect_left(starts, left_start)
    end = bisect_right(starts, time)
    around = found[first:end]
    ended = found[first - 1] if first else None
    left = around[0] if around and around[0][0] == left_start else None
    is_early = time < difference
    if left is not None and left[2] >= time and not is_early:
        # An earlier record with the same timestamp has added all windows.
        return around[::-1]

    right_of_previous: list[WindowValue] = []
    previous = ended or left
    if previous is not None:
        start = previous[2] + 1
        if left_start <= start <= time and start not in starts:
            right_of_previous = [(start, EMPTY, time)]
    right: list[WindowValue] = []
    if around and end == len(found) and around[-1][2] > time:
        right = [(time + 1, own(around[-1][1]), around[-1][2])]
    if left is not None:
        new_left = left
    elif ended is not None and ended[2] >= left_start:
        new_left = (left_start, *ended[1:])
    else:
        new_left = (left_start, EMPTY, time)

    # The order is that of Kafka Streams, because downstream nodes can observe it.
    if is_early:
        others = around if left is None else around[1:]
        return [*others, *right, *right_of_previous, new_left]
    new = right_of_previous if left is not None else [*right_of_previous, new_left]
    return [*around[::-1], *new, *right]
