"""A task as its nodes see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from millstream.config import StreamsConfig
from millstream.metrics.user import ContextMetrics
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.processor.task_context import CurrentRecord
from millstream.runtime.task.punctuations import Punctuations


class Schedules(Protocol):
    """Takes schedules, as `Punctuations` does."""

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
        stream_time_ms: int,
    ) -> Cancellable: ...


@dataclass(frozen=True)
class SchedulesBehind:
    """Takes schedules of what lies behind operators that work beside the loop. It is `Schedules`.

    Args:
        by_stream: takes those by stream time.
        by_clock: takes those by wall clock.
    """

    by_stream: Punctuations
    by_clock: Punctuations

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
        stream_time_ms: int,
    ) -> Cancellable:
        """Add a schedule."""
        by_stream = kind is PunctuationType.STREAM_TIME
        takes = self.by_stream if by_stream else self.by_clock
        return takes.schedule(callback, interval_ms, kind, start_ms, stream_time_ms)


@dataclass
class Notes:
    """What the nodes of a task tell it.

    Args:
        commit_requested: whether somebody has asked for a commit since the last one.
        remembered: times that operators find again after a restart.
    """

    commit_requested: bool = False
    remembered: dict[str, int] = field(default_factory=dict)
    _was_requested: bool = False

    def commit_begun(self) -> None:
        """Who asks from now on asks for another commit."""
        self._was_requested, self.commit_requested = self.commit_requested, False

    def commit_failed(self) -> None:
        """Who has asked for it still waits."""
        self.commit_requested = self.commit_requested or self._was_requested


class EngineTask:
    """What the nodes of one task share.

    Args:
        config: the application's settings.
        state_dir: the task's directory.
        schedules: takes schedules.
        metrics: what is measured of the task.
        record: what the task's stores take for the record being processed.
        stream_time: tells the stream time.
        notes: what they tell; shared by all views of one task.
    """

    def __init__(
        self,
        config: StreamsConfig,
        state_dir: Path,
        schedules: Schedules,
        metrics: ContextMetrics,
        record: CurrentRecord,
        stream_time: Callable[[], int],
        notes: Notes,
    ) -> None:
        self.record = record
        self.application_id = config.application_id
        self.state_dir = state_dir
        self.config = config
        self.stream_time_ms = stream_time
        self.notes = notes
        self.metrics = metrics
        self._schedules = schedules

    @property
    def remembered(self) -> dict[str, int]:
        """Times that operators find again after a restart."""
        return self.notes.remembered

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
    ) -> Cancellable:
        """Let a callback be called by time."""
        return self._schedules.schedule(
            callback, interval_ms, kind, start_ms, self.stream_time_ms()
        )

    def request_commit(self) -> None:
        """Commit as soon as the batch is done."""
        self.notes.commit_requested = True
