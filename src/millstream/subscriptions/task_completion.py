"""Deferred completion of tasks, with detection of lost completions."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from millstream.clock import Clock
from millstream.errors import IllegalStateError, StreamsError
from millstream.operators.concurrent.coroutine_runner import as_failure

logger = logging.getLogger(__name__)

#: The result of `on_timeout`: the task is completed, is sent to the retry topic, fails, or gets the
#: same timeout again.
TimeoutAnswer = Literal["complete", "retry", "fail", "extend"]
_ANSWERS: Final = ("complete", "retry", "fail", "extend")


class Completion:
    """Completes a task after its processor has returned.

    Thread-safe. As a context manager, it completes the task at the end of the block, or fails it
    with the exception that the block raised.

    If a completion is garbage-collected before it is completed, this is detected immediately: the
    task fails as if its processor had raised, the loss is counted, and a log line contains the
    task, its offset and its age.

    Semantics: Decaton's `DeferredCompletion`, which does not detect losses.

    Example:
        >>> def send(context, task):
        ...     completion = context.defer_completion(timeout=timedelta(seconds=30))
        ...     pool.submit(deliver, task).add_done_callback(lambda _: completion.complete())
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_deferral",
        "_is_done",
        "_lock",
        "_on_timeout",
        "_since_ms",
        "_timeout_ms",
        "deadline_ms",
    )

    def __init__(
        self,
        deferral: TaskDeferral,
        clock: Clock,
        timeout_ms: int | None,
        on_timeout: Callable[[Completion], TimeoutAnswer] | None,
    ) -> None:
        self._is_done = False
        self._deferral = deferral
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_timeout = on_timeout
        # Reentrant: the completion of a pushed task may be garbage-collected while the lock is
        # held.
        self._lock = threading.RLock()
        self._since_ms = clock.monotonic_ms()
        #: The deadline; None without a timeout, and before the timeout starts.
        self.deadline_ms: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.land("complete" if error is None else "fail", error)

    def __del__(self) -> None:
        if not self._is_done and self._deferral.is_open:
            logger.error(
                "%s was deferred %d ms ago and can no longer be completed: its Completion was "
                "garbage-collected. Keep a reference until complete() is called, or use a with "
                "block.",
                self._deferral.describe(),
                self.age_ms,
            )
            self._deferral.report_leak()
            self.land("fail", StreamsError("The completion of a deferred task was lost."))

    @property
    def is_done(self) -> bool:
        """Whether this completion has an outcome."""
        return self._is_done

    @property
    def age_ms(self) -> int:
        """The time since the task was deferred."""
        return self._clock.monotonic_ms() - self._since_ms

    def complete(self) -> None:
        """Complete the task, so that its offset can be committed.

        Further calls do nothing.
        """
        self.land("complete", None)

    def retry(self) -> None:
        """Send the task to the retry topic."""
        self.land("retry", None)

    def fail(self, error: BaseException) -> None:
        """Fail the task as if its processor had raised this error."""
        self.land("fail", error)

    def time_out(self) -> None:
        """Handle the timeout. Called by the subscription."""
        answer: TimeoutAnswer = "fail"
        if self._on_timeout is not None:
            try:
                answer = self._on_timeout(self)
            except Exception:
                logger.exception("on_timeout failed for %s", self._deferral.describe())
        if answer not in _ANSWERS:
            logger.error(
                "on_timeout returned %r for %s, so the task fails: valid results are %s",
                answer,
                self._deferral.describe(),
                ", ".join(map(repr, _ANSWERS)),
            )
            answer = "fail"
        if answer == "extend":
            self.run_time()
        else:
            error = None
            if answer == "fail":
                error = TimeoutError(f"not completed within {self._timeout_ms} ms")
            self.land(answer, error)

    def run_time(self) -> bool:
        """Start the timeout. Called by the subscription.

        Returns False without a timeout, or if the task is already completed.
        """
        if self._timeout_ms is None or self._is_done:
            return False
        self.deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        return True

    def land(self, outcome: str, error: BaseException | None) -> None:
        """Set the outcome: "complete", "retry" or "fail". Further calls do nothing."""
        with self._lock:
            if self._is_done:
                return
            self._is_done = True
        # Cancellation of a coroutine inside a with block must not end the thread.
        self._deferral.complete_part(outcome, None if error is None else as_failure(error))


#: The severity of outcomes: the worst outcome of the parts of a task is the outcome of the task.
_SEVERITY: Final = {"complete": 0, "retry": 1, "fail": 2}


class CompletableTask(Protocol):
    outcome: str | None
    error: BaseException | None

    def describe(self) -> str: ...


class DeferralHost(Protocol):
    """The operations of a partition that completions need."""

    @property
    def is_open(self) -> bool: ...
    def track_deadline(self, completion: Completion) -> None: ...
    def report_leak(self) -> None: ...


def already_completed() -> IllegalStateError:
    """Return the error for deferring or retrying a task that is already completed."""
    return IllegalStateError("This task is already completed.")


class TaskDeferral:
    """Completes a task when all of its completions are done.

    Holds no strong references to completions, so that an abandoned completion is garbage-collected
    (and detected) immediately.
    """

    __slots__ = (
        "_error",
        "_has_returned",
        "_host",
        "_lock",
        "_on_completed",
        "_open",
        "_task",
        "_with_timeout",
        "_worst",
        "is_finished",
    )

    def __init__(
        self, task: CompletableTask, host: DeferralHost, on_completed: Callable[[], None]
    ) -> None:
        self._task = task
        self._host = host
        #: Called when the task is completed after its processor has returned.
        self._on_completed = on_completed
        # Reentrant: a completion may be garbage-collected while the lock is held.
        self._lock = threading.RLock()
        #: The number of open completions, and the worst outcome of the others.
        self._open = 0
        self._worst = "complete"
        self._error: BaseException | None = None
        self._has_returned = False
        #: Whether the task is completed or its processor has raised.
        self.is_finished = False
        #: Completions with a timeout, which starts when the processor has returned.
        self._with_timeout: list[weakref.ref[Completion]] = []

    def add(self) -> None:
        with self._lock:
            if self.is_finished:
                raise already_completed()
            self._open += 1

    def start_timeout(self, completion: Completion) -> None:
        """Start the timeout of a completion, at the earliest when the processor returns."""
        with self._lock:
            if not self._has_returned:
                self._with_timeout.append(weakref.ref(completion))
                return
        if completion.run_time():
            self._host.track_deadline(completion)

    def describe(self) -> str:
        return self._task.describe()

    @property
    def is_open(self) -> bool:
        return not self.is_finished and self._host.is_open

    def complete_part(self, outcome: str, error: BaseException | None) -> None:
        """Handle the first outcome of one of the completions."""
        with self._lock:
            self._open -= 1
            if _SEVERITY[outcome] > _SEVERITY[self._worst]:
                self._worst, self._error = outcome, error
            is_last = self._has_returned and not self._open and not self.is_finished
            if is_last:
                self._end()
        if is_last:
            self._on_completed()

    def report_leak(self) -> None:
        self._host.report_leak()

    def processor_returned(self) -> bool:
        """Handle the return of the processor. Returns whether the task is completed."""
        with self._lock:
            self._has_returned = True
            if not self._open:
                self._end()
            is_finished = self.is_finished
            with_timeout, self._with_timeout = self._with_timeout, []
        for each in with_timeout:
            completion = each()
            if completion is not None and completion.run_time():
                self._host.track_deadline(completion)
        return is_finished

    def processor_raised(self) -> None:
        """Handle an exception of the processor: the task is already completed."""
        with self._lock:
            self.is_finished = True

    def _end(self) -> None:
        task = self._task
        self.is_finished = True
        if task.outcome is None or _SEVERITY[self._worst] > _SEVERITY[task.outcome]:
            task.outcome, task.error = self._worst, self._error
