"""The tasks that have begun and are not completed, and the oldest of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from millstream.clock import Clock
from millstream.subscriptions.complaints import Complaints
from millstream.subscriptions.context import ProcessingContext

logger = logging.getLogger(__name__)

#: How old a task may be before it is told in the log, and how often that is done: as long as
#: Kafka's members may be silent, by default.
OLD_MS: Final = 300_000
TOLD_EVERY_MS: Final = 60_000
#: How often it is looked at.
_LOOK_EVERY_MS: Final = 10_000


class Pending:
    """The tasks that have begun and are not completed, and the oldest of them: a task that nobody
    ever completes holds up the commits of its partition.

    Args:
        clock: the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[ProcessingContext, int] = {}
        self._complaints = Complaints(logger, clock, every_ms=TOLD_EVERY_MS)
        self._next_look_ms = clock.monotonic_ms() + _LOOK_EVERY_MS

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, contexts: Iterable[ProcessingContext]) -> None:
        """These have begun. 0.05 us each."""
        self._since_ms.update(dict.fromkeys(contexts, self._clock.monotonic_ms()))

    def remove(self, contexts: Iterable[ProcessingContext]) -> None:
        """These are completed, or have not begun after all."""
        for context in contexts:
            del self._since_ms[context]

    @property
    def oldest_age_ms(self) -> int:
        """For how long the oldest has not been completed; 0 if there is none."""
        oldest = self._oldest()
        return 0 if oldest is None else self._clock.monotonic_ms() - oldest[1]

    @property
    def wants_a_look(self) -> bool:
        """Whether `look` may have something to do."""
        return bool(self._since_ms) and self._next_look_ms <= self._clock.monotonic_ms()

    def look(self) -> None:
        """Tell in the log of the oldest, if it is older than it should be."""
        if not self.wants_a_look:
            return
        now_ms = self._clock.monotonic_ms()
        self._next_look_ms = now_ms + _LOOK_EVERY_MS
        oldest = self._oldest()
        if oldest is None or now_ms - oldest[1] < OLD_MS:
            return
        context, since_ms = oldest
        self._complaints.tell(
            f"{context.describe()} began {now_ms - since_ms} ms ago and is not completed: nothing "
            "behind it is committed. Its processor has not returned, or its completion is kept by "
            "somebody who does not complete it; deferred_complete_timeout_ms would end the latter"
        )

    def _oldest(self) -> tuple[ProcessingContext, int] | None:
        # They are in the order in which they have begun.
        return next(iter(self._since_ms.items()), None)
