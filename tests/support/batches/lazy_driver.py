"""A test driver that commits only now and then, so that record caches have something to hold."""

from __future__ import annotations

from typing import Any

from millstream.clock import ManualClock
from millstream.record import Headers
from millstream.testing.driver_topics import Captured
from millstream.testing.stepping import SteppingDriver


class LazyDriver(SteppingDriver):
    """Takes one record at a time, but does not commit after each.

    Args:
        commit_every: after how many records it does.
    """

    def __init__(self, topology: Any, config: Any, *, commit_every: int) -> None:
        self._commit_every = commit_every
        self._uncommitted = 0
        super().__init__(topology, config, ManualClock(0))

    def feed(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
    ) -> None:
        super().feed(topic, key, value, timestamp, headers)
        self._work()

    def finish(self) -> None:
        """Commit until nothing comes of it any more."""
        self._commit_every = 1
        # What a commit writes to a repartition topic is processed, which may change caches again.
        for _ in range(10):
            self.commit()
            self._work()

    @property
    def has_just_committed(self) -> bool:
        """Whether nothing was processed since the last commit."""
        return self._uncommitted == 0

    def written(self) -> dict[str, list[Captured]]:
        """What was written to each topic, internal ones included, in the order of writing."""
        return {topic: list(records) for topic, records in self.outputs.items()}

    def commit(self) -> None:
        super().commit()
        self._uncommitted = 0

    def _work(self) -> None:
        while self.is_ready:
            self.step()
            self._uncommitted += 1
            if self._uncommitted >= self._commit_every:
                self.commit()
            else:
                self.deliver()
