"""Completing a task later than its processor returns, so that it cannot be forgotten."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from millstream.clock import Clock
from millstream.errors import StreamsError
from millstream.operators.apart.coroutines import as_failure

logger = logging.getLogger(__name__)

#: What becomes of a task that was deferred for too long: it counts as done, goes to the retry
#: topic, fails, or gets the same time once more.
TimeoutAnswer = Literal["complete", "retry", "fail", "extend"]
_ANSWERS: Final = ("complete", "retry", "fail", "extend")


class Deferral(Protocol):
    """The task behind a completion."""

    def describe(self) -> str:
        """Which task it is, for people."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it is still to be completed by somebody."""
        ...

    def land(self, outcome: str, error: BaseException | None) -> None:
        """It is done: "complete", "retry" or "fail"."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nobody has to complete it any more, since its processor has raised."""
        ...

    def leaked(self) -> None:
        """Nobody is left who could complete it."""
        ...


class Completion:
    """Completes a task whose processor has returned. Usable from any thread, and as a context
    manager that completes it at the end, or lets it fail with what was raised.

    If it is thrown away without being completed, that is noticed at once, told in the log with the
    task, its offset and its age, counted, and the task fails like one whose processor raises.

    Semantics: Decaton's `DeferredCompletion`, which does not notice.

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
        deferral: Deferral,
        clock: Clock,
        timeout_ms: int | None,
        on_timeout: Callable[[Completion], TimeoutAnswer] | None,
    ) -> None:
        self._is_done = False
        self._deferral = deferral
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_timeout = on_timeout
        # Entered again by the completion of what it was pushed to, when that is thrown away.
        self._lock = threading.RLock()
        self._since_ms = clock.monotonic_ms()
        #: By when it has to be done; None for whenever, and before its time runs.
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
                "%s was deferred %d ms ago, and nobody can complete it any more: a Completion was "
                "thrown away. Keep it until complete() is called, or use it in a with block.",
                self._deferral.describe(),
                self.age_ms,
            )
            self._deferral.leaked()
            self.land("fail", StreamsError("The completion of a deferred task was thrown away."))

    @property
    def is_done(self) -> bool:
        """Whether it was completed, in whatever way."""
        return self._is_done

    @property
    def age_ms(self) -> int:
        """For how long it has been deferred."""
        return self._clock.monotonic_ms() - self._since_ms

    def complete(self) -> None:
        """The task is done: its offset may be committed. The second call does nothing."""
        self.land("complete", None)

    def retry(self) -> None:
        """The task goes to the retry topic."""
        self.land("retry", None)

    def fail(self, error: BaseException) -> None:
        """The task failed, as if its processor had raised this."""
        self.land("fail", error)

    def time_out(self) -> None:
        """Its time is over; called by the subscription."""
        answer: TimeoutAnswer = "fail"
        if self._on_timeout is not None:
            try:
                answer = self._on_timeout(self)
            except Exception:
                logger.exception("on_timeout failed for %s", self._deferral.describe())
        if answer not in _ANSWERS:
            logger.error(
                "on_timeout answered %r for %s, which fails: the answers are %s",
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
        """From now on its time runs; whether it is bounded, and not over already. Called by the
        subscription."""
        if self._timeout_ms is None or self._is_done:
            return False
        self.deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        return True

    def land(self, outcome: str, error: BaseException | None) -> None:
        """It is done: "complete", "retry" or "fail"; called by the subscription."""
        with self._lock:
            if self._is_done:
                return
            self._is_done = True
        # A block that is left since a coroutine was cancelled is no reason to end the thread.
        self._deferral.land(outcome, None if error is None else as_failure(error))
