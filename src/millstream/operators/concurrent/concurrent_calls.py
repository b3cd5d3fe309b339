"""Concurrent calls of user code, their runner interfaces, and their completion."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.clock import Waker
from millstream.operators.record_batch import Batch
from millstream.record import TaskId


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One call of user code for one record.

    Takes about 150 bytes in addition to the record.
    """

    batch: Batch
    #: The index of the record in the batch.
    index: int
    #: Calls of one unit run one after the other, in the order in which they were started. A call
    #: without a unit (None) does not wait for others.
    unit: Any
    #: Data that the operator needs when the call has completed.
    context: Any = None
    result: Any = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)
    done: bool = field(default=False, init=False)


class CallRunner(Protocol):
    """Runs calls outside of the loop."""

    def start(self, calls: Sequence[Call]) -> None:
        """Run calls as soon as there is capacity.

        Calls of one unit run in the order of `calls`.
        """

    def take_completed(self) -> list[Call]:
        """Remove and return the completed calls, in order of completion."""

    @property
    def has_completed(self) -> bool:
        """Whether `take_completed` would return any calls."""

    def halt(self) -> None:
        """Start no more calls. Running calls still complete; queued calls are dropped."""

    @property
    def is_running(self) -> bool:
        """Whether any call is running.

        A call counts as running until `take_completed` can return it.
        """

    def close(self, *, cancel: bool = True) -> None:
        """Start no more calls, and cancel running coroutines if `cancel` is True.

        Does not wait; later completions are not reported.
        """


class CallRunners(Protocol):
    """Creates the call runners of a task.

    Simulations provide their own implementation.
    """

    def make_coroutine_runner(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        max_concurrent: int,
        timeout_ms: int | None,
    ) -> CallRunner:
        """Create a runner that awaits a coroutine function on the process's event loop.

        The runner cancels each call after `timeout_ms`.
        """

    def make_thread_runner(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        max_concurrent: int,
    ) -> CallRunner:
        """Create a runner that calls a plain function on threads."""

    def notify(self) -> None:
        """Wake the loop so that it checks for completions. Can be called from any thread."""

    def clear(self) -> None:
        """Clear the signal that `notify` sets.

        Called before the loop checks for completions.
        """

    def wait(self, timeout_ms: int) -> bool:
        """Wait for a completion. Returns whether any has occurred since the last `clear`."""


class CompletionSignal:
    """An event that any thread sets when a call completes, and that wakes the loop.

    Args:
        wake: interrupts a wait of the loop.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        #: The task of the calls, for log lines.
        self.task_id: TaskId | None = None
        self._wake = wake
        # Also set by the finalizer of a discarded completion, which may run at any moment and on
        # any thread, including a thread that is just clearing the signal.
        self._waker = Waker()

    def notify(self) -> None:
        """Report a completed call. Takes 0.1 us if the signal is already set."""
        if not self._waker.is_set:
            self._waker.wake()
            self._wake()

    def clear(self) -> None:
        self._waker.clear()

    def wait(self, timeout_ms: int) -> bool:
        """Wait for a completion. Returns whether any has occurred since the last `clear`."""
        return self._waker.wait(timeout_ms)


class CompletedCalls:
    """A thread-safe queue of the completed calls of one runner."""

    def __init__(self, signal: CompletionSignal) -> None:
        self._signal = signal
        self._calls: deque[Call] = deque()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: Call) -> None:
        self._calls.append(call)
        self._signal.notify()

    def take(self) -> list[Call]:
        calls = self._calls
        return [calls.popleft() for _ in range(len(calls))]
