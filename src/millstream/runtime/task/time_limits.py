"""Time limits for user code: batches stay short, and slow batches are stopped.

`max.poll.interval.ms` and, under exactly-once, `transaction.timeout.ms` limit the time between two
polls and between two commits. Batches are much shorter: their size adapts to their duration,
starting with one record. If a function suddenly becomes slow in the middle of a larger batch, the
batch is stopped between two records, the uncommitted work is dropped, and the next batch has one
record. A single record that exceeds the limits is not interrupted: the first time, a warning is
logged; if the record is repeated and takes too long again, the thread fails.
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
from millstream.operators.user_calls import BatchInterruptedError, UserCalls
from millstream.record import TaskId, TopicPartition

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: The maximum target duration of batches and chunks, and the size of the first one.
_BATCH_MS: Final = 200
_FIRST_RECORDS: Final = 128


class BatchSize:
    """Adapts the number of records in a batch to the time that batches take.

    Commits, rebalances and commands wait for the end of a batch. If the first batch has one record,
    no larger batch can exceed the limits of the group and the transaction before a duration has
    been measured. After a dozen batches, the initial size makes no difference: 200,000 records took
    0.6 s of CPU time with an initial size of 1 and of 128.
    """

    def __init__(self, first: int = _FIRST_RECORDS, batch_ms: int = _BATCH_MS) -> None:
        #: The maximum number of records in the next batch.
        self.limit = first
        self._batch_ms = batch_ms

    def adapt(self, count: int, limit: int, took_ms: int) -> None:
        """Adapt the limit to the last batch, to which `limit` applied."""
        if took_ms > self._batch_ms:
            self.limit = max(1, count * self._batch_ms // took_ms)
        elif count == limit and 2 * took_ms < self._batch_ms:
            self.limit = max(self.limit, 2 * limit)


class FlushSize:
    """Adapts the number of records between commits to the duration of cache flushes.

    A flush emits at most one result for each of these records, and calls the functions downstream
    of the caches with each result.
    """

    #: The maximum growth factor from one flush to the next.
    _GROWTH: Final = 8

    def __init__(self) -> None:
        #: The number of records after which the next commit is due. None while flushes are fast:
        #: then only `commit.interval.ms` applies.
        self.limit: int | None = None

    def adapt(self, count: int, took_ms: int, flush_ms: int) -> None:
        """Adapt the limit to the last flush, `count` records after the previous one."""
        if took_ms > flush_ms:
            self.limit = max(1, count * flush_ms // (2 * took_ms))
        elif self.limit is not None and count >= self.limit:
            growth = min(self._GROWTH, flush_ms // (2 * took_ms + 1))
            self.limit = max(self.limit, self.limit * growth)


#: The target duration of batches and chunks is at most this fraction of the limit.
_BATCH_DIVISOR: Final = 20
#: The time for the flushes of all tasks of a thread is at most this fraction of the limit, and at
#: most this duration.
_FLUSH_DIVISOR: Final = 4
_MAX_FLUSH_MS: Final = 5_000
#: A batch is stopped after this fraction of the limit, and at the latest after this duration.
_BUDGET_DIVISOR: Final = 2
_MAX_BUDGET_MS: Final = 30_000


@dataclass(slots=True)
class TaskPace:
    """The adaptive batch sizes of one task on this thread.

    The sizes survive a restart of the task.
    """

    batch: BatchSize
    #: The number of records that are deserialized together.
    chunk: BatchSize
    #: The number of results of concurrent calls that are emitted together.
    released: BatchSize
    #: The number of records between two flushes of the caches.
    flush: FlushSize = field(default_factory=FlushSize)
    #: The latest unit of work that exceeded the limits.
    exceeded: object = None
    #: Whether work was dropped after `exceeded` was set, so that the unit is repeated.
    repeats: bool = False
    #: Whether to commit after each batch. Several units that are each within the limits may
    #: together exceed the limit of a transaction, so this flag is set after work was dropped and
    #: reset once batches may have several records.
    commits_each: bool = False

    def committed(self) -> None:
        if self.batch.limit > 1:
            self.commits_each = False

    def restart(self) -> None:
        self.batch.limit = self.chunk.limit = self.released.limit = self.flush.limit = 1


@dataclass(slots=True)
class _Timer:
    """A timer that interrupts user functions and iterations."""

    at_ms: int
    calls: UserCalls | None
    lists: list[list[Any]] = field(default_factory=list)
    fired: bool = False


class TimeLimits:
    """The time limits of one stream thread and the pace of its tasks.

    The pace outlives the tasks, so that a batch that was stopped is not retried with the same size.

    Args:
        limit_ms: the shortest of the limits. None disables all limits, as in the test driver:
            batches start large, and no batch is stopped.
        progress: called between units of work, so that the thread stays in the group.
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
        #: The number of running tasks of the thread, which share the time for flushes.
        self.running = 0
        self._paces: dict[TaskId, TaskPace] = {}
        self._timer: _Timer | None = None
        self._lock = threading.Lock()

    @property
    def batch_ms(self) -> int:
        """The maximum target duration of a batch."""
        if self.limit_ms is None:
            return _BATCH_MS
        return max(1, min(_BATCH_MS, self.limit_ms // _BATCH_DIVISOR))

    @property
    def flush_ms(self) -> int | None:
        """The maximum target duration of a flush of one task; None for no maximum."""
        if self.limit_ms is None:
            return None
        whole_ms = min(_MAX_FLUSH_MS, self.limit_ms // _FLUSH_DIVISOR)
        return max(1, whole_ms // max(1, self.running))

    @property
    def calls_ms(self) -> int | None:
        """The time until a step yields to the loop and punctuations; None for no limit."""
        return None if self.limit_ms is None else self.batch_ms

    @property
    def budget_ms(self) -> int:
        """The time after which a batch of several records is stopped."""
        assert self.limit_ms is not None
        return max(1, min(_MAX_BUDGET_MS, self.limit_ms // _BUDGET_DIVISOR))

    def pace_of(self, task_id: TaskId) -> TaskPace:
        pace = self._paces.get(task_id)
        if pace is None:
            pace = self._paces[task_id] = TaskPace(self._size(), self._size(), self._size())
        return pace

    def _size(self) -> BatchSize:
        return BatchSize() if self.limit_ms is None else BatchSize(1, self.batch_ms)

    # --- interruption --------------------------------------------------------------------------

    @contextmanager
    def watched(self, calls: UserCalls | None, *, divisible: bool) -> Iterator[None]:
        """Interrupt the code in the block if it takes too long and the work is divisible.

        Raises:
            BatchInterruptedError: a function of `calls` raised this error, even if user code caught
                the error.
        """
        if self.limit_ms is None or not divisible:
            yield
            return
        timer = self._timer = _Timer(self._clock.monotonic_ms() + self.budget_ms, calls)
        try:
            yield
        finally:
            with self._lock:
                self._timer = None
                has_raised = timer.fired and calls is not None and calls.restore()
            if has_raised:
                # Even if user code has replaced the error, a record was not finished.
                raise BatchInterruptedError

    def interruptible(self, items: list[T]) -> list[T]:
        """Return a copy of a list whose iteration stops when the timer fires."""
        timer = self._timer
        if timer is None:
            return items
        copy = list(items)
        with self._lock:
            if timer.fired:
                copy.clear()
            timer.lists.append(copy)
        return copy

    def check_timer(self) -> None:
        """Interrupt work that has taken too long.

        Called periodically from another thread.
        """
        timer = self._timer
        if timer is None or timer.fired or self._clock.monotonic_ms() < timer.at_ms:
            return
        with self._lock:
            if self._timer is not timer:
                return
            timer.fired = True
            if timer.calls is not None:
                timer.calls.interrupt()
            for each in timer.lists:
                # The iterator ends here: the loop stops between two elements.
                each.clear()

    # --- indivisible work ----------------------------------------------------------------------

    def is_exceeded(self, took_ms: int) -> bool:
        return self.limit_ms is not None and took_ms > self.limit_ms

    def check(self, pace: TaskPace, unit: object, took_ms: int, what: str, **where: Any) -> None:
        """Check the duration of an indivisible unit of work.

        `unit` must be equal when the work is repeated. The first violation is only logged, because
        the process may have been paused. If work was dropped after that and the unit takes too long
        again, an error is raised, because the unit would otherwise be repeated forever.

        Raises:
            StreamsError: the unit has exceeded the limits for the second time.
        """
        if not self.is_exceeded(took_ms):
            if pace.exceeded == unit:
                pace.exceeded = None
            return
        if pace.exceeded == unit and pace.repeats:
            pace.exceeded, pace.repeats = None, False
            raise StreamsError(self._message(what, took_ms, again=True), **where)
        pace.exceeded, pace.repeats = unit, False
        logger.warning("%s", StreamsError(self._message(what, took_ms, again=False), **where))

    def _message(self, what: str, took_ms: int, *, again: bool) -> str:
        repeated = ", and was already repeated once for that reason" if again else ""
        return (
            f"{what} took {took_ms} ms, longer than the limit of {self.limit_ms} ms "
            f"({self.settings}){repeated}. Make the function faster (use map_async to call "
            f"services), or raise {self.settings}."
        )

    def on_work_dropped(self, pace: TaskPace) -> None:
        pace.repeats = pace.commits_each = True


@dataclass(slots=True)
class ChunkPace:
    """Limits the number of records of a partition that are deserialized together."""

    limits: TimeLimits
    pace: TaskPace
    clock: Clock
    task_id: TaskId
    source: str
    partition: TopicPartition
    _took_ms: int = 0

    @property
    def limit(self) -> int:
        return self.pace.chunk.limit

    @contextmanager
    def watch(self, count: int) -> Iterator[None]:
        began_ms = self.clock.monotonic_ms()
        with self.limits.watched(None, divisible=count > 1):
            yield
        self._took_ms = self.clock.monotonic_ms() - began_ms

    def interruptible(self, items: list[Any]) -> list[Any]:
        return self.limits.interruptible(items)

    def done(self, count: int, offset: int) -> None:
        """Report a deserialized chunk of `count` records, starting at `offset`.

        Raises StreamsError if a single record has exceeded the limits again.
        """
        took_ms = self._took_ms
        self.pace.chunk.adapt(count, count, took_ms)
        if took_ms > self.limits.batch_ms:
            self.limits.progress()
        if count == 1 and self.limits.is_exceeded(took_ms):
            self.limits.check(
                self.pace,
                ("deserialization", self.partition, offset),
                took_ms,
                f"The serdes or the timestamp extractor of source {self.source}, for one record,",
                task_id=self.task_id,
                topic=self.partition.topic,
                partition=self.partition.partition,
                offset=offset,
                node=self.source,
            )
