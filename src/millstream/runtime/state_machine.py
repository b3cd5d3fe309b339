"""State machines as tables: which state may follow which, and how a thing came where it is."""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from millstream.clock import Clock
from millstream.errors import IllegalStateError

S = TypeVar("S", bound=enum.Enum)

#: How many changes of state a story keeps.
_STORY_LENGTH = 20


class StateMachine(Generic[S]):
    """A state, the table of what may follow, and the story of how it came about.

    Args:
        subject: whose state it is, for messages.
        start: the first state.
        following: the states that may follow each state.
        clock: dates the story.
        listener: called with (new, old, why) after each change.
    """

    def __init__(
        self,
        subject: str,
        start: S,
        following: Mapping[S, frozenset[S]],
        clock: Clock,
        listener: Callable[[S, S, str], None] | None = None,
    ) -> None:
        self.subject = subject
        self.state = start
        self._following = following
        self._clock = clock
        self._listener = listener
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)

    @property
    def story(self) -> list[str]:
        """The last changes of state, oldest first."""
        return list(self._story)

    def may_become(self, state: S) -> bool:
        """Whether the table allows that change."""
        return state in self._following[self.state]

    def transition_to(self, state: S, why: str) -> None:
        """Change the state.

        Raises:
            IllegalStateError: the table does not allow it; the message tells the story.
        """
        old = self.state
        if not self.may_become(state):
            raise IllegalStateError(
                f"{self.subject} cannot go from {old.name} to {state.name} ({why}). "
                f"Its story: {'; '.join(self._story) or 'nothing happened yet'}."
            )
        self._story.append(f"{_local_time(self._clock.now_ms())} {old.name} to {state.name}: {why}")
        self.state = state
        if self._listener is not None:
            self._listener(state, old, why)


def _local_time(now_ms: int) -> str:
    """The time of day where this runs, as people's clocks there show it: `14:31:07.042`."""
    return f"{time.strftime('%H:%M:%S', time.localtime(now_ms // 1_000))}.{now_ms % 1_000:03}"
