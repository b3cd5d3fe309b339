"""The calls that the processors of one task have asked for, by time (`PunctuationQueue`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.java_priority_queue import JavaPriorityQueue
from millstream.processor.punctuation import PunctuationType

#: Calls a punctuator with the time, and works on what it forwards.
Run = Callable[[Callable[[int], None], int], None]


class Agenda:
    """When the tasks of one thread want to be looked at for calls by time.

    Never later than any of their calls is due, perhaps earlier: who looks says when to look next.
    So with many tasks nobody has to ask all of them all the time.

    Attributes:
        due_ms: by wall clock; None for not at all.
    """

    def __init__(self) -> None:
        self.due_ms: int | None = None

    def by(self, due_ms: int | None) -> None:
        """Look by then, or earlier."""
        if due_ms is not None and (self.due_ms is None or due_ms < self.due_ms):
            self.due_ms = due_ms


#: As a time by which to look: the next time anybody asks.
AT_ONCE: Final = 0


@dataclass(eq=False, slots=True)
class Schedule:
    """One schedule: whom to call, when next, and how often. Its owner can cancel it."""

    callback: Callable[[int], None]
    interval_ms: int
    next_ms: int
    cancelled: bool = False

    def cancel(self) -> None:
        """Call no more."""
        self.cancelled = True

    def called_at(self, now_ms: int) -> None:
        """Find the next time. What has been missed meanwhile is left out."""
        self.next_ms += self.interval_ms
        if now_ms >= self.next_ms:
            missed = (now_ms - self.next_ms) // self.interval_ms
            self.next_ms += (missed + 1) * self.interval_ms


class Punctuations:
    """The schedules of a task: a queue by stream time and one by wall clock.

    Among schedules that are due at once, Java's priority queue decides whose turn it is.

    Args:
        clock: tells wall-clock time.
        told: how many milliseconds each call took; None if nobody measures.
    """

    def __init__(self, clock: Clock, told: Callable[[int], None] | None = None) -> None:
        self._told = told
        self._clock = clock
        self._queues = {kind: _queue() for kind in PunctuationType}
        self._agenda = Agenda()

    def note_in(self, agenda: Agenda) -> None:
        """Note in this agenda what is scheduled from now on."""
        self._agenda = agenda

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
        stream_time_ms: int,
    ) -> Schedule:
        """Add a schedule.

        Args:
            callback: whom to call.
            interval_ms: how often.
            kind: by which clock.
            start_ms: when first. By default with the first record by stream time, and one interval
                from now by wall clock.
            stream_time_ms: the present stream time.
        """
        by_stream = kind is PunctuationType.STREAM_TIME
        now_ms = stream_time_ms if by_stream else self._clock.now_ms()
        if start_ms is None:
            start_ms = 0 if by_stream else now_ms + interval_ms
        elif start_ms < now_ms:
            start_ms += ((now_ms - start_ms) // interval_ms + 1) * interval_ms
        schedule = Schedule(callback, interval_ms, start_ms)
        self._queues[kind].offer(schedule)
        # Stream time may be past it already, and then there is no batch that ends there.
        self._agenda.by(AT_ONCE if by_stream else start_ms)
        return schedule

    def next_ms(self, kind: PunctuationType) -> int | None:
        """When the next call is due; None if there is none."""
        queue = self._queues[kind]
        # One that was cancelled stays till its time: taking it out would change whose turn it is
        # among those that are due at once.
        return queue.peek().next_ms if len(queue) else None

    def run_due(
        self, kind: PunctuationType, now_ms: int, run: Run, deadline: Deadline | None = None
    ) -> bool:
        """Make the calls that are due, each schedule's once; whether there were any.

        Args:
            kind: by which clock.
            now_ms: its time, which the punctuators are told.
            run: makes a call.
            deadline: the rest of the calls stay due after it. One is made in any case.
        """
        queue = self._queues[kind]
        called = False
        while len(queue) and queue.peek().next_ms <= now_ms:
            schedule = queue.poll()
            if schedule.cancelled:
                continue
            began_ms = self._clock.monotonic_ms()
            run(schedule.callback, now_ms)
            if self._told is not None:
                self._told(self._clock.monotonic_ms() - began_ms)
            called = True
            if not schedule.cancelled:
                schedule.called_at(now_ms)
                queue.offer(schedule)
            if deadline is not None and deadline.passed:
                break
        return called


def _queue() -> JavaPriorityQueue[Schedule]:
    return JavaPriorityQueue(key=lambda schedule: schedule.next_ms)
