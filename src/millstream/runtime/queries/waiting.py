"""Questions about stores that wait for their answers, which are worked out between batches, and in
the pauses of a commit."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from millstream.clock import Clock
from millstream.errors import ThreadUnavailableError
from millstream.runtime.control import Asked, Control
from millstream.runtime.queries.pace import Pace
from millstream.runtime.queries.questions import StoreQuestion

logger = logging.getLogger(__name__)

#: For how long questions are answered before the thread looks after everything else.
ROUND_MS: Final = 10


class WaitingQuestions:
    """Answers questions in the order in which they come, a few at a time.

    In Kafka Streams a question costs its asker's thread only. Here it costs the stream thread, so
    no crowd of askers may keep that from its work. Nor is anything worked out that nobody waits
    for any more: after a long stop a thread would answer all that was given up meanwhile, and hold
    the rest of those answers open.

    Not for several threads.

    Args:
        answer: finds the answer.
        control: brings questions among other commands, and takes answers away.
        clock: time.
        pace: told of each question that comes.
    """

    def __init__(
        self,
        answer: Callable[[StoreQuestion[Any]], Any],
        control: Control,
        clock: Clock,
        pace: Pace,
    ) -> None:
        self._answer = answer
        self._control = control
        self._clock = clock
        self._pace = pace
        self._waiting: deque[tuple[Asked, StoreQuestion[Any], int]] = deque()
        #: Commands that came while only questions were looked for.
        self._put_off: list[Asked] = []

    @property
    def are_left(self) -> bool:
        """Whether some wait."""
        return bool(self._waiting)

    def attend(self) -> None:
        """Let questions come and answers go now, if somebody has asked a moment ago."""
        if self._pace.is_asked:
            self._control.attend()

    def commands(self) -> list[Asked]:
        """The other commands that have come, oldest first. Questions join those that wait."""
        self.attend()
        self.hear()
        found, self._put_off = self._put_off, []
        return found

    def hear(self) -> None:
        """Let questions that have come join those that wait, and leave other commands for later."""
        for asked in self._control.commands():
            if isinstance(asked.command, StoreQuestion):
                self.add(asked, asked.command)
            else:
                self._put_off.append(asked)

    def add(self, asked: Asked, question: StoreQuestion[Any]) -> None:
        """One has come."""
        self._pace.asked()
        arrived_ms = asked.arrived_ms
        if arrived_ms is None:
            arrived_ms = self._clock.monotonic_ms()
        self._waiting.append((asked, question, arrived_ms + question.within_ms))

    def end(self, thread: str) -> None:
        """Let nobody wait for an answer any more: the thread closes, which may take long.

        Args:
            thread: its name.
        """
        error = ThreadUnavailableError(
            f"Stream thread {thread} closes and answers no questions any more. Ask again in a "
            "moment, when others have its tasks."
        )
        while self._waiting:
            self._control.reply(self._waiting.popleft()[0], error)
        for asked in self._put_off:
            self._control.reply(asked, error)
        self._control.refuse_questions(error)

    def answer_some(self) -> None:
        """Answer for a while: at least one question, if there are any."""
        if not self._waiting:
            return
        until_ms = self._clock.monotonic_ms() + ROUND_MS
        given_up = 0
        while self._waiting:
            now_ms = self._clock.monotonic_ms()
            if now_ms > until_ms:
                break
            asked, question, latest_ms = self._waiting.popleft()
            if now_ms > latest_ms:
                given_up += 1
            else:
                self._control.reply(asked, self._answer(question))
        self.attend()
        if given_up:
            logger.info("%d questions about stores are not answered: nobody waits", given_up)
