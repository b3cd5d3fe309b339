"""What user code may take: how long batches should be, and what happens when they are longer.

`max.poll.interval.ms` and, under exactly-once, `transaction.timeout.ms` bound how long a thread may
work between two polls and two commits. Batches are far shorter: their size adapts to the time they
take, beginning with one record. A function that suddenly becomes slow in the middle of a larger
batch is stopped between two records, the uncommitted work is given up, and the next batch has one
record. Only a single record that takes longer than the limits cannot be helped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from millstream.clock import Clock
from millstream.errors import StreamsError
from millstream.operators.interruption import BatchInterruptedError, UserCalls
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.queues.batch_size import BatchSize, FlushSize

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: How long batches and chunks should take at most, whatever the limits are, and as a part of them.
_BATCH_MS: Final = 200
_PART_OF_LIMIT: Final = 20
#: The flushes of all tasks of a thread together may take this part of the limit, and so long.
_FLUSH_PART_OF_LIMIT: Final = 4
_MOST_FLUSH_MS: Final = 5_000
#: A batch is given up after this part of the limit, and after so long at the latest.
_BUDGET_PART_OF_LIMIT: Final = 2
_MOST_BUDGET_MS: Final = 30_000


@dataclass(slots=True)
class TaskPace:
    """How fast one task has been on this thread, in this or an earlier life.

    Attributes:
        batch: the records of a batch.
        chunk: the records that are deserialized at once.
        released: the results of calls beside the loop that go on at once.
        flush: the records between two flushes of the caches.
        exceeded: the unit of work that has exceeded the limits last.
        repeats: whether work was given up since, so that the unit is done again.
        commits_each: whether each batch is committed at once. Several units that are each within
            the limits may exceed those of a transaction together, so after work was given up this
            lasts for as long as single records take as long as a batch should.
    """

    batch: BatchSize
    chunk: BatchSize
    released: BatchSize
    flush: FlushSize = field(default_factory=FlushSize)
    exceeded: object = None
    repeats: bool = False
    commits_each: bool = False

    def committed(self) -> None:
        """The work of the task is committed."""
        if self.batch.limit > 1:
            self.commits_each = False

    def restart(self) -> None:
        """Begin with single records again."""
        self.batch.restart()
        self.chunk.restart()
        self.released.restart()
        self.flush.restart()


class _Armed:
    """What is stopped when the time is over.

    Args:
        at_ms: when that is.
        calls: the user functions at work.
    """

    __slots__ = ("at_ms", "calls", "lists", "rang")

    def __init__(self, at_ms: int, calls: UserCalls | None) -> None:
        self.at_ms = at_ms
        self.calls = calls
        self.lists: list[list[Any]] = []
        self.rang = False


class TimeLimits:
    """The time limits of one stream thread and the pace of its tasks.

    The pace survives the tasks: a batch that was given up is not tried again in the same size.

    Args:
        clock: time.
        limit_ms: the shortest of the limits on work; None where there are none, as in the test
            driver: then batches begin large, and nothing is given up.
        settings: the settings behind `limit_ms`, for errors.
        progress: called between units of work, so that the group keeps the thread.
    """

    def __init__(
        self,
        clock: Clock,
        limit_ms: int | None = None,
        settings: str = "max.poll.interval.ms",
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self.limit_ms = limit_ms
        self.settings = settings
        self.progress = progress
        #: How many tasks run on the thread: they share the time for flushes.
        self.running = 0
        self._paces: dict[TaskId, TaskPace] = {}
        self._armed: _Armed | None = None
        self._lock = threading.Lock()

    @property
    def batch_ms(self) -> int:
        """How long a batch should take at most."""
        if self.limit_ms is None:
            return _BATCH_MS
        return max(1, min(_BATCH_MS, self.limit_ms // _PART_OF_LIMIT))

    @property
    def flush_ms(self) -> int | None:
        """How long the flush of one task should take at most; None for any time."""
        if self.limit_ms is None:
            return None
        whole_ms = min(_MOST_FLUSH_MS, self.limit_ms // _FLUSH_PART_OF_LIMIT)
        return max(1, whole_ms // max(1, self.running))

    @property
    def calls_ms(self) -> int | None:
        """How long a step may take before the loop goes on with the rest, for example with
        punctuators that are due; None for any time."""
        return None if self.limit_ms is None else self.batch_ms

    @property
    def budget_ms(self) -> int:
        """After how long a batch of several records is given up."""
        assert self.limit_ms is not None
        return max(1, min(_MOST_BUDGET_MS, self.limit_ms // _BUDGET_PART_OF_LIMIT))

    def pace_of(self, task_id: TaskId) -> TaskPace:
        """The pace of a task, known from before or new."""
        pace = self._paces.get(task_id)
        if pace is None:
            pace = self._paces[task_id] = TaskPace(self._size(), self._size(), self._size())
        return pace

    def _size(self) -> BatchSize:
        return BatchSize() if self.limit_ms is None else BatchSize(1, self.batch_ms)

    # --- stopping what takes too long --------------------------------------------------------

    @contextmanager
    def watched(self, calls: UserCalls | None, *, divisible: bool) -> Iterator[None]:
        """Let `look` stop what runs inside once it has taken too long.

        Args:
            calls: the user functions at work, which raise `BatchInterruptedError` then.
            divisible: whether less can be done at a time; if not, nothing is ever stopped.

        Raises:
            BatchInterruptedError: calls raised it, whether user code has caught it or not.
        """
        if self.limit_ms is None or not divisible:
            yield
            return
        armed = self._armed = _Armed(self._clock.monotonic_ms() + self.budget_ms, calls)
        try:
            yield
        finally:
            with self._lock:
                self._armed = None
                has_raised = armed.rang and calls is not None and calls.restore()
            if has_raised:
                # Also in place of what user code has made of it: a record was not finished.
                raise BatchInterruptedError

    def guarded(self, items: list[T]) -> list[T]:
        """A copy of a list to iterate over, which ends early where `look` stops it."""
        armed = self._armed
        if armed is None:
            return items
        copy = list(items)
        with self._lock:
            if armed.rang:
                copy.clear()
            armed.lists.append(copy)
        return copy

    def look(self) -> None:
        """Stop what has taken too long. Called now and then from another thread."""
        armed = self._armed
        if armed is None or armed.rang or self._clock.monotonic_ms() < armed.at_ms:
            return
        with self._lock:
            if self._armed is not armed:
                return
            armed.rang = True
            if armed.calls is not None:
                armed.calls.interrupt()
            for each in armed.lists:
                # Its iterator finds the end there: the loop stops between two elements.
                each.clear()

    # --- what cannot be divided ----------------------------------------------------------------

    def is_over(self, took_ms: int) -> bool:
        """Whether work that took so long has exceeded the limits."""
        return self.limit_ms is not None and took_ms > self.limit_ms

    def check(self, pace: TaskPace, unit: object, took_ms: int, what: str, **where: Any) -> None:
        """Look whether a unit of work that cannot be divided was longer than the limits.

        The first time this is logged: the process may have been paused. If the work was lost for
        it and the unit takes as long again, it would be repeated endlessly.

        Args:
            pace: of the task.
            unit: what was done, equal when it is done again.
            took_ms: how long it took.
            what: the unit in words.
            where: the place, as `StreamsError` takes it.

        Raises:
            StreamsError: it is the second time.
        """
        if not self.is_over(took_ms):
            if pace.exceeded == unit:
                pace.exceeded = None
            return
        if pace.exceeded == unit and pace.repeats:
            pace.exceeded, pace.repeats = None, False
            raise StreamsError(self._told(what, took_ms, again=True), **where)
        pace.exceeded, pace.repeats = unit, False
        logger.warning("%s", StreamsError(self._told(what, took_ms, again=False), **where))

    def _told(self, what: str, took_ms: int, *, again: bool) -> str:
        repeated = ", and its work was given up and repeated for that before" if again else ""
        return (
            f"{what} took {took_ms} ms, longer than {self.settings} allow "
            f"({self.limit_ms} ms){repeated}. Make the function faster (use map_async for calls "
            f"of services), or raise {self.settings}."
        )

    def given_up(self, pace: TaskPace) -> None:
        """Uncommitted work of a task was given up: it is done again."""
        pace.repeats = pace.commits_each = True


class ChunkPace:
    """Bounds how many records of a partition are deserialized at once.

    Args:
        limits: of the thread.
        pace: of the task.
        clock: time.
        task_id: the task, for errors.
        source: the source node, for errors.
        place: the partition.
    """

    def __init__(
        self,
        limits: TimeLimits,
        pace: TaskPace,
        clock: Clock,
        task_id: TaskId,
        source: str,
        place: TopicPartition,
    ) -> None:
        self._limits = limits
        self._pace = pace
        self._clock = clock
        self._task_id = task_id
        self._source = source
        self._place = place
        self._took_ms = 0

    @property
    def limit(self) -> int:
        """How many records the next chunk may have."""
        return self._pace.chunk.limit

    @contextmanager
    def watch(self, count: int) -> Iterator[None]:
        """Measure the deserialization of so many records."""
        began_ms = self._clock.monotonic_ms()
        with self._limits.watched(None, divisible=count > 1):
            yield
        self._took_ms = self._clock.monotonic_ms() - began_ms

    def guarded(self, items: list[Any]) -> list[Any]:
        """A list to iterate over that ends early when the time is over."""
        return self._limits.guarded(items)

    def done(self, count: int, offset: int) -> None:
        """A chunk of so many records, the first one at that offset, is deserialized.

        Raises:
            StreamsError: a single record took longer than the limits, again.
        """
        took_ms = self._took_ms
        self._pace.chunk.fit(count, count, took_ms)
        if took_ms > self._limits.batch_ms:
            self._limits.progress()
        if count == 1 and self._limits.is_over(took_ms):
            self._limits.check(
                self._pace,
                ("deserialization", self._place, offset),
                took_ms,
                f"The serdes or the timestamp extractor of source {self._source}, for one record,",
                task_id=self._task_id,
                topic=self._place.topic,
                partition=self._place.partition,
                offset=offset,
                node=self._source,
            )
