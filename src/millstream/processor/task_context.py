"""The context that a task's nodes share: the current record, time and schedules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millstream.config.streams_config import StreamsConfig
from millstream.metrics.user import ContextMetrics
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.record import UNKNOWN, Headers, TopicPartition


class CurrentRecord:
    """The record that user code is processing. Stores read it when they are changed."""

    timestamp: int = UNKNOWN
    #: The topic partition of the input record; None in a punctuator.
    place: TopicPartition | None = None
    offset: int = UNKNOWN
    headers: Headers = ()
    #: The wall-clock time of the record, set on the first access.
    system_time_ms: int | None = None


class TaskContext(Protocol):
    """The context that the nodes of one task share."""

    @property
    def record(self) -> CurrentRecord:
        """The current record, which the task's stores read."""

    @property
    def application_id(self) -> str: ...

    @property
    def state_dir(self) -> Path: ...

    @property
    def config(self) -> StreamsConfig: ...

    @property
    def metrics(self) -> ContextMetrics: ...

    @property
    def processor_metadata(self) -> dict[str, int]:
        """Timestamps that operators store under the names of their stores.

        They are committed with the offsets of the input, and are available after a restart.
        """

    def stream_time_ms(self) -> int:
        """Return the highest timestamp of the task's input so far.

        Returns -1 before the first record.
        """

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
    ) -> Cancellable:
        """Schedule a punctuation; see `ProcessingContext.schedule`.

        Raises:
            UnsupportedOperationError: the task belongs to a global store.
        """

    def request_commit(self) -> None:
        """Request a commit after the current batch."""
