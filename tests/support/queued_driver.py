"""A test driver that first queues everything, then works in batches, then commits.

All sub-topologies are one task, as the test driver has them. What goes through a repartition topic
is queued by the commit at the end of a round, and taken in the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from millstream.runtime.task.build_task import TaskServices
from millstream.testing import TopologyTestDriver
from millstream.testing.driver_topics import Captured

#: Rounds of batches and commits; a topology that feeds itself may have no last one.
_MOST_ROUNDS = 50


class QueuedDriver(TopologyTestDriver):
    """Takes nothing before it is told to.

    Args:
        batch_size: how many records a batch has at most.
    """

    def __init__(self, topology: Any, config: Any, *, batch_size: int) -> None:
        self._batch_size = batch_size
        self._holding = True
        super().__init__(topology, config, initial_wall_clock_ms=0)
        take = self._collector.take
        # In which order a task writes to different topics is no promise, but decides which of them
        # gets its first record earlier, and so what is read first where timestamps are equal.
        self._collector.take = lambda: sorted(take(), key=lambda record: record.topic)  # type: ignore[method-assign]

    def finish(self) -> None:
        """Process what is queued, and what that leads to."""
        self._holding = False
        try:
            for _ in range(_MOST_ROUNDS):
                while self._parts.is_ready():
                    self._task.step(self._batch_size)
                self._commit()
                if not self._parts.is_ready():
                    break
        finally:
            self._holding = True

    def written(self) -> dict[str, list[Captured]]:
        """What was written to each topic, internal ones included, in the order of writing."""
        written: dict[str, list[Captured]] = defaultdict(list)
        for topic, records in self._outputs.items():
            written[topic] += records
        return dict(written)

    def _work(self, *, commit: bool = False, punctuate: bool = False) -> None:
        """Nothing now."""


@contextmanager
def topics_apart() -> Iterator[None]:
    """Drivers made in here keep no order across topics, like an application's tasks."""
    make: Callable[..., TaskServices] = TaskServices

    def without_order(**given: Any) -> TaskServices:
        return make(**{**given, "order_across_topics": False})

    with patch("millstream.testing.driver.TaskServices", partial(without_order)):
        yield
