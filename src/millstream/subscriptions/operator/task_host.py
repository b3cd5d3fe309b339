"""The host of the tasks of one partition."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

from millstream.clock import Clock
from millstream.serdes import Serde
from millstream.subscriptions.processing_context import ProcessingContext
from millstream.subscriptions.subscription_metrics import PartitionMetrics
from millstream.subscriptions.task_completion import Completion

#: Finished completions are removed before their deadlines only if more than this number of
#: completions is tracked.
_MIN_CLEANUP_SIZE: Final = 1_000


class CompletionDeadlines:
    """Tracks the deadlines of deferred tasks.

    Their completions are referenced weakly.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sequence = count()
        self._waiting: list[tuple[int, int, weakref.ref[Completion]]] = []
        self._cleanup_size = _MIN_CLEANUP_SIZE
        #: New completions, which any thread may append.
        self._new: deque[weakref.ref[Completion]] = deque()

    def track(self, completion: Completion) -> None:
        self._new.append(weakref.ref(completion))

    @property
    def are_due(self) -> bool:
        """Whether `expire` may have work to do."""
        if self._new:
            return True
        return bool(self._waiting) and self._waiting[0][0] <= self._clock.monotonic_ms()

    def expire(self) -> int:
        """Time out overdue completions. Returns how many expired."""
        while self._new:
            self._push(self._new.popleft())
        now_ms, expired = self._clock.monotonic_ms(), 0
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, _, reference = heappop(self._waiting)
            completion = reference()
            if completion is None or completion.is_done:
                continue
            completion.time_out()
            if completion.is_done:
                expired += 1
            else:
                # `on_timeout` extended the deadline.
                self._push(reference)
        if len(self._waiting) > self._cleanup_size:
            self._remove_done()
        return expired

    def _remove_done(self) -> None:
        """Remove finished completions.

        Most finish long before their deadline, and 100,000 of them take 18 MB.
        """
        waiting = [each for each in self._waiting if _is_open(each[2]())]
        heapify(waiting)
        self._waiting = waiting
        self._cleanup_size = max(_MIN_CLEANUP_SIZE, 2 * len(waiting))

    def _push(self, reference: weakref.ref[Completion]) -> None:
        completion = reference()
        if _is_open(completion):
            assert completion is not None
            assert completion.deadline_ms is not None
            heappush(self._waiting, (completion.deadline_ms, next(self._sequence), reference))


def _is_open(completion: Completion | None) -> bool:
    return completion is not None and not completion.is_done


@dataclass(eq=False)
class PartitionHost:
    """The `TaskHost` of one partition.

    Contexts and completions call it from any thread.
    """

    subscription_id: str
    key_serde: Serde[Any] | None
    clock: Clock
    can_retry: bool
    #: Returns the default timeout of deferred tasks; -1 for none.
    timeout_ms: Callable[[], int]
    deadlines: CompletionDeadlines
    metrics: PartitionMetrics
    wake_loop: Callable[[], None]

    def __post_init__(self) -> None:
        #: Completed deferred tasks that the operator has not processed yet.
        self.completed: deque[ProcessingContext] = deque()
        self.is_halted = False
        #: Whether completions are ignored.
        self.is_closed = False
        #: The number of deferred tasks being processed.
        self._processing = 0
        self._lock = threading.Lock()

    @property
    def deferred_timeout_ms(self) -> int | None:
        timeout_ms = self.timeout_ms()
        return None if timeout_ms < 0 else timeout_ms

    def track_deadline(self, completion: Completion) -> None:
        self.deadlines.track(completion)

    def task_completed(self, context: ProcessingContext) -> None:
        if not self.is_closed:
            self.completed.append(context)
            self.wake_loop()

    def report_leak(self) -> None:
        self.metrics.count("tasks.leaked")

    @property
    def is_open(self) -> bool:
        return not self.is_halted

    @property
    def is_processing(self) -> bool:
        return self._processing > 0

    def enter(self) -> bool:
        with self._lock:
            if self.is_halted:
                return False
            self._processing += 1
            return True

    def halt(self) -> None:
        # The lock orders the assignment before or after a concurrent `enter`.
        with self._lock:
            self.is_halted = True

    def leave(self) -> None:
        with self._lock:
            self._processing -= 1
        if self.is_halted:
            self.wake_loop()

    def count(self, name: str, by: int) -> None:
        self.metrics.count(name, by)
