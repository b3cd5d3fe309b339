"""A task as its nodes see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from millstream.config import StreamsConfig
from millstream.processor.metrics import MetricName
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.processor.task_context import CurrentRecord
from millstream.record import TaskId
from millstream.runtime.task.node_context import Dropped
from millstream.runtime.task.punctuations import Punctuations


class EngineTask:
    """What the nodes of one task share.

    Args:
        task_id: the task.
        config: the application's settings.
        state_dir: the task's directory.
        punctuations: takes schedules.
        drops: counts the records that are left out.
        record: what the task's stores take for the record being processed.
        stream_time: tells the stream time.

    Attributes:
        commit_requested: whether somebody has asked for a commit since the last one.
        remembered: times that operators find again after a restart.
    """

    def __init__(
        self,
        task_id: TaskId,
        config: StreamsConfig,
        state_dir: Path,
        punctuations: Punctuations,
        drops: Dropped,
        record: CurrentRecord,
        stream_time: Callable[[], int],
    ) -> None:
        self.record = record
        self.application_id = config.application_id
        self.state_dir = state_dir
        self.config = config
        self.stream_time_ms = stream_time
        self.commit_requested = False
        self.remembered: dict[str, int] = {}
        self._task_id = task_id
        self._punctuations = punctuations
        self._drops = drops

    @property
    def metrics(self) -> Mapping[MetricName, float]:
        """What was counted for this task so far."""
        return task_metrics(self._task_id, self._drops.total)

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
    ) -> Cancellable:
        """Let a callback be called by time."""
        return self._punctuations.schedule(
            callback, interval_ms, kind, start_ms, self.stream_time_ms()
        )

    def request_commit(self) -> None:
        """Commit as soon as the batch is done."""
        self.commit_requested = True


def task_metrics(task_id: TaskId, dropped_total: int) -> dict[MetricName, float]:
    """The metrics of a task: what it left out on purpose."""
    name = MetricName("dropped-records-total", "stream-task-metrics", (("task-id", str(task_id)),))
    return {name: float(dropped_total)}
