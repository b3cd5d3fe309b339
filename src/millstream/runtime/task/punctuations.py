"""The punctuation schedules of a task (Kafka Streams' `PunctuationQueue`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.java_priority_queue import JavaPriorityQueue
from millstream.processor.punctuation import PunctuationType

#: Calls a punctuator with the time, and processes the records that it forwards.
Run = Callable[[Callable[[int], None], int], None]


class EarliestPunctuation:
    """The earliest time at which a task of the thread may have a punctuation due.

    This time is never later than the next punctuation, but may be earlier. Each check sets the time
    of the next one, so the loop does not check every task in every round.
    """

    def __init__(self) -> None:
        #: The wall-clock time of the next check; None for never.
        self.due_ms: int | None = None

    def include(self, due_ms: int | None) -> None:
        """Schedule the next check for this time at the latest."""
        if due_ms is not None and (self.due_ms is None or due_ms < self.due_ms):
            self.due_ms = due_ms


#: The due time for a check in the next round.
IMMEDIATELY: Final = 0


@dataclass(eq=False, slots=True)
class Schedule:
    """A scheduled punctuator with its next time and interval, which can be canceled."""

    callback: Callable[[int], None]
    interval_ms: int
    next_ms: int
    cancelled: bool = False

    def cancel(self) -> None:
        """Stop the calls."""
        self.cancelled = True

    def advance(self, now_ms: int) -> None:
        """Compute the next time. Missed calls are skipped."""
        self.next_ms += self.interval_ms
        if now_ms >= self.next_ms:
            missed = (now_ms - self.next_ms) // self.interval_ms
            self.next_ms += (missed + 1) * self.interval_ms


class Punctuations:
    """The schedules of a task: one queue by stream time and one by wall clock.

    Schedules that are due at the same time run in the order of Java's priority queue.
    """

    def __init__(self, clock: Clock, record_ms: Callable[[int], None] | None = None) -> None:
        self._record_ms = record_ms
        self._clock = clock
        self._queues = {kind: _queue() for kind in PunctuationType}
        self._earliest_punctuation = EarliestPunctuation()

    def report_to(self, earliest_punctuation: EarliestPunctuation) -> None:
        """Report the due times of future schedules to `earliest_punctuation`."""
        self._earliest_punctuation = earliest_punctuation

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
        stream_time_ms: int,
    ) -> Schedule:
        """Add a schedule.

        By default, the first call is due at the first record (stream time) or one interval from now
        (wall clock).
        """
        by_stream = kind is PunctuationType.STREAM_TIME
        now_ms = stream_time_ms if by_stream else self._clock.now_ms()
        if start_ms is None:
            start_ms = 0 if by_stream else now_ms + interval_ms
        elif start_ms < now_ms:
            start_ms += ((now_ms - start_ms) // interval_ms + 1) * interval_ms
        schedule = Schedule(callback, interval_ms, start_ms)
        self._queues[kind].offer(schedule)
        # If stream time is already past the start, no batch ends at the start.
        self._earliest_punctuation.include(IMMEDIATELY if by_stream else start_ms)
        return schedule

    def next_ms(self, kind: PunctuationType) -> int | None:
        """Return the time of the next call; None if there is none."""
        queue = self._queues[kind]
        # A canceled schedule stays queued until its time: removing it would change the order of
        # schedules that are due at the same time.
        return queue.peek().next_ms if len(queue) else None

    def run_due(
        self, kind: PunctuationType, now_ms: int, run: Run, deadline: Deadline | None = None
    ) -> bool:
        """Make the calls that are due, one per schedule; return whether there were any.

        At least one due call is made. After the deadline, the remaining calls stay due.
        """
        queue = self._queues[kind]
        called = False
        while len(queue) and queue.peek().next_ms <= now_ms:
            schedule = queue.poll()
            if schedule.cancelled:
                continue
            began_ms = self._clock.monotonic_ms()
            run(schedule.callback, now_ms)
            if self._record_ms is not None:
                self._record_ms(self._clock.monotonic_ms() - began_ms)
            called = True
            if not schedule.cancelled:
                schedule.advance(now_ms)
                queue.offer(schedule)
            if deadline is not None and deadline.passed:
                break
        return called


def _queue() -> JavaPriorityQueue[Schedule]:
    return JavaPriorityQueue(key=lambda schedule: schedule.next_ms)
