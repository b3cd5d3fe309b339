"""A runner that calls plain functions on threads."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millstream.operators.concurrent.concurrent_calls import Call, CompletedCalls, CompletionSignal
from millstream.record import TaskId

#: The time after which an idle thread ends.
_IDLE_S = 10.0


class _Worker:
    """A queue of calls, and the thread that runs them while there are any."""

    __slots__ = ("calls", "has_thread", "is_running", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls: queue.SimpleQueue[Sequence[Call]] = queue.SimpleQueue()
        self.has_thread = False
        self.is_running = False


class ThreadRunner:
    """Runs calls on threads, in order within each unit. Implements `CallRunner`.

    Calls of a unit run on one thread, chosen by hash; calls without a unit run on any idle thread.
    All calls of a batch for one thread are queued with one operation, which takes 0.1 us per call;
    a queue operation for each call would take 2 us.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        max_threads: int,
        signal: CompletionSignal,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._signal = signal
        self._completed = CompletedCalls(signal)
        self._workers = [_Worker(number) for number in range(max_threads)]
        #: Calls without a unit. `start` selects idle workers, and a worker checks this queue before
        #: it becomes idle; both hold the lock, so no call is missed.
        self._without_unit: deque[Call] = deque()
        self._lock = threading.Lock()
        self._halted = False
        self._closed = False

    @property
    def task_id(self) -> TaskId | None:
        return self._signal.task_id

    @property
    def has_completed(self) -> bool:
        return bool(self._completed)

    @property
    def is_running(self) -> bool:
        return any(worker.is_running for worker in self._workers)

    def halt(self) -> None:
        self._halted = True

    def start(self, calls: Sequence[Call]) -> None:
        count = len(self._workers)
        by_worker: dict[int, list[Call]] = {}
        without_unit: list[Call] = []
        for call in calls:
            if call.unit is None:
                without_unit.append(call)
            else:
                by_worker.setdefault(hash(call.unit) % count, []).append(call)
        for number, assigned in by_worker.items():
            self._assign(self._workers[number], assigned)
        if without_unit:
            with self._lock:
                self._without_unit.extend(without_unit)
                idle = [worker for worker in self._workers if not worker.is_running][
                    : len(without_unit)
                ]
            for worker in idle:
                self._assign(worker, ())

    def _assign(self, worker: _Worker, calls: Sequence[Call]) -> None:
        """Queue calls for a worker, which then also runs calls without a unit."""
        with self._lock:
            worker.calls.put(calls)
            if worker.has_thread:
                return
            worker.has_thread = True
        threading.Thread(
            target=self._work, args=(worker,), name=f"unit-{worker.number}", daemon=True
        ).start()

    def take_completed(self) -> list[Call]:
        return self._completed.take()

    def close(self, *, cancel: bool = True) -> None:
        """Start no more calls.

        `cancel` is ignored, because running calls cannot be canceled.
        """
        self._halted = self._closed = True
        for worker in self._workers:
            worker.calls.put(())

    def _work(self, worker: _Worker) -> None:
        while not self._closed:
            try:
                calls = worker.calls.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if worker.calls.empty():
                        worker.has_thread = False
                        return
                continue
            # Set before `_halted` is read. Callers of `halt` set `_halted` before they read
            # `is_running`, so they never miss a running call.
            worker.is_running = True
            for call in calls:
                if self._halted:
                    break
                self._run_call(call)
            while (next_call := self._next_without_unit(worker)) is not None:
                self._run_call(next_call)
            if self._halted and not self._closed:
                self._signal.notify()

    def _next_without_unit(self, worker: _Worker) -> Call | None:
        """Return a call without a unit, or mark the worker as idle and return None.

        None is returned if there is no such call, if the runner is halted, or if other calls are
        queued for the worker. In the last case, an idle worker continues with the calls without a
        unit.
        """
        with self._lock:
            others: Sequence[_Worker] = ()
            if self._without_unit and not self._halted:
                if worker.calls.empty():
                    return self._without_unit.popleft()
                others = [other for other in self._workers if not other.is_running][:1]
            worker.is_running = False
        for other in others:
            self._assign(other, ())
        return None

    def _run_call(self, call: Call) -> None:
        try:
            call.result = self._function(*self._arguments(call))
        except BaseException as error:
            call.error = error
        if not self._closed:
            self._completed.add(call)
