"""What a stream thread that has failed still does in the group before it leaves it."""

from __future__ import annotations

import logging
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import ShutdownRequestedError, StreamsError
from millstream.runtime.control import AskForShutdown, Close, Control, ThreadFailed
from millstream.runtime.loop.rebalances import Rebalances

logger = logging.getLogger(__name__)

#: How long the driver may take to say what follows from the failure: a handler of the user's says.
_VERDICT_MS: Final = 2_000
#: How long the group may take to be told, before another thread has to.
_TELL_MS: Final = 10_000
_PAUSE_MS: Final = 20


class LastWords:
    """Hears what the driver makes of the failure, and asks the group to shut down if it says so.

    The thread keeps its place meanwhile. If it left first, its tasks would go to other instances,
    with the very record that it has died of.

    Args:
        control: the connection to the driver, which knows of the failure.
        rebalances: the place in the group.
        clock: for patience.
    """

    def __init__(self, control: Control, rebalances: Rebalances, clock: Clock) -> None:
        self._control = control
        self._rebalances = rebalances
        self._clock = clock

    def say(self) -> None:
        """Wait for the verdict, and do what it says. Nothing of the thread's may work any more."""
        why = self._verdict()
        if why is None:
            return
        try:
            self._rebalances.ask_for_shutdown(why)
            self._await_answer()
        except ShutdownRequestedError as answer:
            self._control.report(ThreadFailed(answer))
        except StreamsError as error:
            logger.warning("could not ask the group to shut down: %s", error)

    def _verdict(self) -> str | None:
        deadline = Deadline(self._clock, _VERDICT_MS)
        while not (deadline.passed or self._control.lost):
            for asked in self._control.commands():
                match asked.command:
                    case AskForShutdown(why):
                        return why
                    case Close():
                        return None
            self._pause()
        return None

    def _await_answer(self) -> None:
        deadline = Deadline(self._clock, _TELL_MS)
        while not deadline.passed:
            if self._rebalances.next_change() is None:
                self._pause()

    def _pause(self) -> None:
        self._rebalances.progress()
        self._clock.sleep_ms(_PAUSE_MS)
