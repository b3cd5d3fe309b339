"""What the nodes of one task share: the record at hand, time, schedules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millstream.config import StreamsConfig
from millstream.metrics.user import ContextMetrics
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.record import UNKNOWN, Headers, TopicPartition


class CurrentRecord:
    """The record that user code is working on, for the stores that it writes to.

    Attributes:
        timestamp: of the record, in milliseconds.
        place: where it was read; None in a punctuator.
        offset: its offset.
        headers: its headers.
        system_time_ms: the wall-clock time during it, once somebody has asked.
    """

    timestamp: int = UNKNOWN
    place: TopicPartition | None = None
    offset: int = UNKNOWN
    headers: Headers = ()
    system_time_ms: int | None = None


class TaskContext(Protocol):
    """The task as its nodes see it."""

    @property
    def record(self) -> CurrentRecord:
        """What the task's stores take for the record being processed."""
        ...

    @property
    def application_id(self) -> str: ...

    @property
    def state_dir(self) -> Path: ...

    @property
    def config(self) -> StreamsConfig: ...

    @property
    def metrics(self) -> ContextMetrics: ...

    @property
    def remembered(self) -> dict[str, int]:
        """Times that operators set under the names of their stores, to find them again.

        They are kept with the committed offsets of the input.
        """
        ...

    def stream_time_ms(self) -> int:
        """The highest timestamp of the task's input so far, -1 before the first."""
        ...

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
    ) -> Cancellable:
        """Let a callback be called by time; see `ProcessingContext.schedule`.

        Raises:
            UnsupportedOperationError: this is the task of a global store.
        """
        ...

    def request_commit(self) -> None:
        """Commit as soon as the batch is done."""
        ...
