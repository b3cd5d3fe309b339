"""What a stream thread tells its driver of what it restores: no more than somebody listens to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock
from millstream.record import TopicPartition
from millstream.runtime.control import Control, RestoreEvent, RestoreStep

#: How often a bar moves.
_BAR_MS: Final = 200
#: How often the driver learns how far a copy is that nobody listens to.
_STORY_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RestoreAudience:
    """Who listens in the driver. Without anybody, only starts and ends are told.

    Args:
        restore_listener: somebody wants every batch of active tasks and of global stores.
        standby_listener: somebody wants every batch of standbys.
        bars: a terminal shows how far long restorations are.
        story: the driver remembers how far all copies are, standbys included.
    """

    restore_listener: bool = False
    standby_listener: bool = False
    bars: bool = False
    story: bool = False


class RestoreReports:
    """Takes all events, and sends the driver those that it needs.

    Args:
        control: the connection to the driver.
        audience: who listens there.
        clock: for bars, which need not know of every batch.
    """

    def __init__(self, control: Control, audience: RestoreAudience, clock: Clock) -> None:
        self._control = control
        self._audience = audience
        self._clock = clock
        self._shown_ms: dict[TopicPartition, int] = {}

    def __call__(self, event: RestoreEvent) -> None:
        """Something was restored."""
        if self._is_wanted(event):
            self._control.report(event)

    def _is_wanted(self, event: RestoreEvent) -> bool:
        audience = self._audience
        if event.step is RestoreStep.STANDBY_BATCH:
            return audience.standby_listener or (audience.story and self._is_due(event, _STORY_MS))
        if event.step is not RestoreStep.BATCH:
            self._shown_ms.pop(event.place, None)
            return True
        if audience.restore_listener:
            return True
        if audience.bars:
            return self._is_due(event, _BAR_MS)
        return audience.story and self._is_due(event, _STORY_MS)

    def _is_due(self, event: RestoreEvent, every_ms: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._shown_ms.get(event.place, now_ms - every_ms) < every_ms:
            return False
        self._shown_ms[event.place] = now_ms
        return True
