"""What the contexts and completions of tasks ask of their partition."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from millstream.clock import Clock
from millstream.operators.apart.subscription.deadlines import Deadlines
from millstream.serdes import Serde
from millstream.subscriptions.completion import Completion
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.metrics import PartitionMetrics


class PartitionHost:
    """The partition at work, as far as contexts need it, on any thread. It is `Host`.

    Args:
        subscription_id: the name of the subscription.
        key_serde: what decodes keys; None where they stay bytes.
        clock: for the age of what is deferred.
        can_retry: whether there is a retry topic.
        timeout_ms: gives the time of tasks that are deferred without one; -1 for none.
        deadlines: looks after deadlines.
        metrics: of the partition.
        tell: lets the loop look at what has changed.

    Attributes:
        ended: deferred tasks that are completed.
        is_halted: whether nothing more may begin.
        is_closed: whether what ends counts for nothing.
    """

    def __init__(
        self,
        subscription_id: str,
        key_serde: Serde[Any] | None,
        clock: Clock,
        can_retry: bool,
        timeout_ms: Callable[[], int],
        deadlines: Deadlines,
        metrics: PartitionMetrics,
        tell: Callable[[], None],
    ) -> None:
        self.ended: deque[ProcessingContext] = deque()
        self.is_halted = False
        self.is_closed = False
        self._subscription_id = subscription_id
        self._key_serde = key_serde
        self._clock = clock
        self._can_retry = can_retry
        self._timeout_ms = timeout_ms
        self._deadlines = deadlines
        self._metrics = metrics
        self._tell = tell
        #: How many deferred tasks are being processed further.
        self._entered = 0
        self._entering = threading.Lock()

    @property
    def subscription_id(self) -> str:
        """The name of the subscription."""
        return self._subscription_id

    @property
    def key_serde(self) -> Serde[Any] | None:
        """What decodes keys; None where they stay bytes."""
        return self._key_serde

    @property
    def clock(self) -> Clock:
        """For the age of what is deferred."""
        return self._clock

    @property
    def can_retry(self) -> bool:
        """Whether there is a retry topic."""
        return self._can_retry

    @property
    def deferred_timeout_ms(self) -> int | None:
        """After how long a deferred task has to be completed, unless its processor says so."""
        timeout_ms = self._timeout_ms()
        return None if timeout_ms < 0 else timeout_ms

    def keep(self, completion: Completion) -> None:
        """Look after a deadline."""
        self._deadlines.keep(completion)

    def landed(self, context: ProcessingContext) -> None:
        """A deferred task whose processor has returned is done."""
        if not self.is_closed:
            self.ended.append(context)
            self._tell()

    def leaked(self) -> None:
        """A completion was thrown away."""
        self._metrics.count("tasks.leaked")

    @property
    def is_open(self) -> bool:
        """Whether tasks are still to be completed."""
        return not self.is_halted

    @property
    def is_entered(self) -> bool:
        """Whether deferred tasks are being processed further."""
        return self._entered > 0

    def enter(self) -> bool:
        """A deferred task is about to be processed further; whether it still may."""
        with self._entering:
            if self.is_halted:
                return False
            self._entered += 1
            return True

    def halt(self) -> None:
        """Nothing more may begin."""
        # Whoever is just about to enter has entered after this, or does not.
        with self._entering:
            self.is_halted = True

    def leave(self) -> None:
        """That has returned."""
        with self._entering:
            self._entered -= 1
        if self.is_halted:
            self._tell()

    def count(self, name: str, by: int) -> None:
        """Add to a counter."""
        self._metrics.count(name, by)
