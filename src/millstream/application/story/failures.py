"""The errors of an application, each with what was decided and what became of it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from millstream.application.story.events import Failure, Step
from millstream.errors import StreamsError, traceback_of

_MOST: Final = 100
_MOST_STEPS: Final = 40
_MOST_LINES: Final = 60
_MOST_CHARACTERS: Final = 12_000
_MOST_MESSAGE: Final = 4_000


class Failures:
    """Takes errors, and what follows each until its thread runs again. The last 100 are kept, with
    the last 40 steps and the last 60 lines of the stack of each."""

    def __init__(self) -> None:
        self._known: deque[Failure] = deque(maxlen=_MOST)
        self._count = 0

    def heard(self, thread: str | None, error: StreamsError, answer: str, now_ms: int) -> None:
        """A thread has failed, or, if it is None, a listener; and what is done about it."""
        self._count += 1
        self._known.append(
            Failure(
                number=self._count,
                at_ms=now_ms,
                thread=thread,
                error=type(error).__name__,
                message=error.message[:_MOST_MESSAGE],
                place=error.place(),
                answer=answer,
                stack=_stack(error),
                task=None if error.task_id is None else str(error.task_id),
                node=error.node,
                topic=error.topic,
                partition=error.partition,
                offset=error.offset,
                declared_at=error.declared_at,
            )
        )

    def step(self, thread: str, text: str, now_ms: int, *, over: bool = False) -> None:
        """What becomes of a thread; nothing is noted of one that has not failed."""
        for failure in reversed(self._known):
            if failure.thread == thread:
                if not failure.over:
                    failure.steps.append(Step(now_ms, text))
                    del failure.steps[:-_MOST_STEPS]
                    failure.over = over
                return

    def all(self) -> list[Failure]:
        """Copies of what is known, the oldest first."""
        return [replace(each, steps=list(each.steps)) for each in self._known]


def _stack(error: BaseException) -> tuple[str, ...]:
    text = traceback_of(error)[-_MOST_CHARACTERS:]
    return tuple(text.rstrip().split("\n")[-_MOST_LINES:])
