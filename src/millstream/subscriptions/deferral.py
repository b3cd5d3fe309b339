"""What the completions of one task come to."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from millstream.errors import IllegalStateError
from millstream.subscriptions.completion import Completion

#: Of what became of the parts of a task, which one counts for all of it.
_WORSE: Final = {"complete": 0, "retry": 1, "fail": 2}


class DeferredTask(Protocol):
    """A task, as far as its end is concerned."""

    outcome: str | None
    error: BaseException | None

    def describe(self) -> str:
        """Which task it is, for people."""
        ...


class Keeper(Protocol):
    """The partition at work, as far as completions need it."""

    @property
    def is_open(self) -> bool: ...
    def keep(self, completion: Completion) -> None: ...
    def leaked(self) -> None: ...


def ended() -> IllegalStateError:
    """What a task meets that is to be deferred or retried after its end."""
    return IllegalStateError("This task has ended: its processor and what was deferred are done.")


class TaskDeferral:
    """What the completions of a task have of it: it has ended when all of them have. It is
    `Deferral`.

    Keeps no completion alive: those are to be thrown away as soon as nobody else has them.

    Args:
        task: the task.
        keeper: looks after completions.
        landed: told when the task has ended after its processor has returned.
    """

    __slots__ = (
        "_error",
        "_has_returned",
        "_is_over",
        "_keeper",
        "_landed",
        "_lock",
        "_open",
        "_task",
        "_timed",
        "_worst",
    )

    def __init__(self, task: DeferredTask, keeper: Keeper, landed: Callable[[], None]) -> None:
        self._task = task
        self._keeper = keeper
        self._landed = landed
        # Entered again by a completion that is thrown away just then.
        self._lock = threading.RLock()
        #: How many completions are not done; the worst of what became of the others.
        self._open = 0
        self._worst = "complete"
        self._error: BaseException | None = None
        self._has_returned = False
        self._is_over = False
        #: Those that have a time, which runs when the processor has returned.
        self._timed: list[weakref.ref[Completion]] = []

    def add(self) -> None:
        """There is one more completion.

        Raises:
            IllegalStateError: the task has ended.
        """
        with self._lock:
            if self._is_over:
                raise ended()
            self._open += 1

    def let_run(self, completion: Completion) -> None:
        """The time of a completion runs from when the processor has returned."""
        with self._lock:
            if not self._has_returned:
                self._timed.append(weakref.ref(completion))
                return
        if completion.run_time():
            self._keeper.keep(completion)

    def describe(self) -> str:
        """Which task it is."""
        return self._task.describe()

    @property
    def is_open(self) -> bool:
        """Whether it is still to be completed by somebody."""
        return not self._is_over and self._keeper.is_open

    def land(self, outcome: str, error: BaseException | None) -> None:
        """One of the completions is done, for the first time."""
        with self._lock:
            self._open -= 1
            if _WORSE[outcome] > _WORSE[self._worst]:
                self._worst, self._error = outcome, error
            is_last = self._has_returned and not self._open and not self._is_over
            if is_last:
                self._end()
        if is_last:
            self._landed()

    @property
    def is_over(self) -> bool:
        """Whether nobody has to complete it any more."""
        return self._is_over

    def leaked(self) -> None:
        """Nobody is left who could complete it."""
        self._keeper.leaked()

    def returned(self) -> bool:
        """The processor has returned; whether the task is done."""
        with self._lock:
            self._has_returned = True
            if not self._open:
                self._end()
            is_over, timed, self._timed = self._is_over, self._timed, []
        for each in timed:
            completion = each()
            if completion is not None and completion.run_time():
                self._keeper.keep(completion)
        return is_over

    def give_up(self) -> None:
        """The processor has raised: it is done already."""
        with self._lock:
            self._is_over = True

    def _end(self) -> None:
        task = self._task
        self._is_over = True
        if task.outcome is None or _WORSE[self._worst] > _WORSE[task.outcome]:
            task.outcome, task.error = self._worst, self._error
