"""Aggregations over sliding windows (Kafka Streams' KStreamSlidingWindowAggregate, KIP-450).

A window spans `[start, start + difference]`, both ends included. Of the endlessly many such windows
those are kept that differ in their records, and which these are follows from the times of a key's
records alone. Each time has
- a *left window*, which ends with it: `[time - difference, time]`; the times before `difference`
  share `[0, difference]`, as no window begins before 0,
- a *right window*, which begins 1 ms after it, as soon as a later record lies in that.

So a new time brings its own two windows, and the right window of the time before if it is the first
record in that; all other windows that it lies in are there already. What a new window holds is
known without looking at records: its own left window what the last window before it has gathered;
its own right window what the newest window around it has gathered, which begins right after the
time before and so has later records only; the right window of the time before nothing yet. The
times themselves are told by the windows: each is kept with the time of its latest record.

`changed_windows` says as plain data what a record does to the windows; the operator does it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from millstream.operators.aggregates.windowed import FinalResult, WindowedOperator
from millstream.operators.batch import Batch
from millstream.operators.operator import Output
from millstream.operators.results import Results
from millstream.record import UNKNOWN
from millstream.state.windows.window_table import WindowTable, WindowValue
from millstream.windowed import windowed

#: What a window holds that no record has been in.
EMPTY: Final = object()


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
    #: In how many windows the records of a batch were too late.
    _late_windows = 0

    def update(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        difference = self._windows.time_difference_ms
        changes = None
        if self._cache is None and not self._emit_final:
            changes = Results(batch, with_old_values=self._send_old_values)
        self._late_windows = late = 0
        for index, time in enumerate(batch.timestamps):
            if time > self._stream_time:
                self._stream_time = time
            close_time = self.close_time()
            # Its right window is the last one to close.
            is_late = time + 1 + difference <= close_time
            if is_late or time < difference:
                # Follows Kafka Streams: neither early nor late records count as a search.
                self._looks_for_closed = False
            if is_late:
                self._late_windows += 1
                late += 1
                continue
            late_before = self._late_windows
            try:
                self._place(batch, index, key_bytes[index], close_time, changes)
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

    def _place(
        self,
        batch: Batch,
        index: int,
        key_bytes: bytes,
        close_time: int,
        changes: Results | None,
    ) -> None:
        """Put a record into its windows, one after another, except for those that are closed."""
        table, difference = self._table, self._windows.time_difference_ms
        key, value, time = batch.keys[index], batch.values[index], batch.timestamps[index]
        row, origin = batch.rows[index], batch.origin
        read_at = origin.place(row), origin.offsets[row], batch.headers_of(index)
        found = table.fetch_between(key_bytes, max(0, time - 2 * difference), time + 1)
        for start, aggregate, latest in changed_windows(found, time, difference, table.own):
            old = None
            if start <= time:
                if aggregate is EMPTY:
                    aggregate = self._initializer()
                if start + difference < close_time:
                    self._late_windows += 1
                    continue
                if self._send_old_values:
                    old = table.own(aggregate)
                aggregate = self._aggregator(key, value, aggregate)
                if aggregate is value:
                    # It may be on its way elsewhere: keep another object.
                    aggregate = table.own(value)
                if latest < time:
                    latest = time
            # Follows Kafka Streams: a deletion is logged with the time of the record.
            logged = time if aggregate is None else latest
            table.put(key_bytes, start, aggregate, logged, *read_at)
            if changes is not None:
                window = windowed(key, start, start + difference)
                changes.add(index, window, aggregate, latest, old)


def changed_windows(
    found: list[WindowValue], time: int, difference: int, own: Callable[[Any], Any]
) -> list[WindowValue]:
    """The windows that a record changes or brings, in the order in which they change.

    Those that begin after the record are complete; it is to be folded into all others.

    Args:
        found: the windows of its key that begin from twice the difference before it to 1 ms after
            it, by start.
        time: of the record.
        difference: from the start of a window to its end, in milliseconds.
        own: copies an aggregate that may be changed in place.

    Returns:
        What each window holds so far, and the time of its latest record. A window that nothing has
        been in yet holds `EMPTY`, with the time of this record.
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
        # There was a record at this very time, which has brought all windows.
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

    # Follows Kafka Streams in the order, which the caller's downstream sees.
    if is_early:
        others = around if left is None else around[1:]
        return [*others, *right, *right_of_previous, new_left]
    new = right_of_previous if left is not None else [*right_of_previous, new_left]
    return [*around[::-1], *new, *right]
