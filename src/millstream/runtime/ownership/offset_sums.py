"""What a stream thread tells the group's leader of the state that it has at hand (KIP-441)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.assignment.wire.protocol import LATEST_OFFSET
from millstream.record import TaskId
from millstream.runtime.states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.directories.state_directory import StateDirectory


class OffsetSums:
    """The sum of the changelog offsets that each task's state has reached.

    The stream thread publishes; the group member's thread reads when it joins. State that is left
    over on disk from tasks which nobody has open counts, too; where another thread has a task open,
    that thread knows better, and the leader takes the larger sum.

    Args:
        directory: the application's state on this host.
    """

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self._sums: Mapping[TaskId, int] = {}

    def publish(self, tasks: Iterable[StreamTask]) -> None:
        """Take down how far these tasks are: all that the thread owns."""
        sums: dict[TaskId, int] = {}
        for task in tasks:
            offsets = task.stores.changelog_offsets()
            if not offsets:
                continue
            running = task.state is TaskState.RUNNING
            # An offset is that of the last record: one less than how many there are up to it.
            sums[task.task_id] = (
                LATEST_OFFSET
                if running
                else sum(reached + 1 for reached in offsets.values() if reached is not None)
            )
        # One assignment: whoever reads meanwhile has the old ones or the new ones.
        self._sums = sums

    def __call__(self) -> Mapping[TaskId, int]:
        """What was published last, and what is left on disk besides."""
        return {**self._directory.reached(), **self._sums}
