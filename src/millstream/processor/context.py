"""What a processor may ask of the task it works in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from millstream.processor.metrics import MetricName
from millstream.processor.punctuation import Cancellable, PunctuationType, Punctuator
from millstream.record import FixedKeyRecord, Record, RecordMetadata, TaskId

if TYPE_CHECKING:
    from millstream.config import StreamsConfig

KForward = TypeVar("KForward")
VForward = TypeVar("VForward")


class ProcessingContext(Protocol):
    """What every kind of user code in a task may ask (Kafka Streams' `ProcessingContext`)."""

    @property
    def application_id(self) -> str:
        """The application's id."""
        ...

    @property
    def task_id(self) -> TaskId:
        """The task; -1_-1 for the processor of a global store."""
        ...

    @property
    def state_dir(self) -> Path:
        """The directory of the task on this machine. It may not exist."""
        ...

    @property
    def config(self) -> StreamsConfig:
        """The application's settings."""
        ...

    @property
    def metrics(self) -> Mapping[MetricName, float]:
        """What was counted for this task so far."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Where the record being processed was read: that of the source, all the way down.

        Where a cache is flushed it is the place of the record that made the change. In a punctuator
        the topic is None and partition and offset are -1.

        Returns:
            None while nothing is processed, as in `init`.
        """
        ...

    def current_stream_time_ms(self) -> int:
        """The highest timestamp of the task's input up to this record; -1 before the first."""
        ...

    def current_system_time_ms(self) -> int:
        """Wall-clock time, in milliseconds since the epoch: the same during one record."""
        ...

    def get_state_store(self, name: str) -> Any:
        """A store by its name, to be used by this processor alone, and in this task only.

        A global store need not be connected, but can be read only.

        Args:
            name: of a store that is connected to the processor, or of a global one.

        Raises:
            StreamsError: the store is not connected, or there is none of that name.
        """
        ...

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Punctuator,
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Ask to be called again and again.

        By stream time the first call comes with the first record and then whenever stream time has
        reached a multiple of the interval; by wall clock, one interval from now. However much time
        has passed, a schedule is called once at a time; what was missed is not made up for.
        Schedules end with the task: make them in `init`.

        Args:
            interval: the time between two calls, at least a millisecond.
            kind: which clock to follow.
            callback: `callback(time_ms)`, called with the stream time or wall-clock time of that
                moment. Records it forwards need a timestamp of their own.
            start_ms: the time of the first call, from which the later ones are counted, in
                milliseconds since the epoch (KIP-1146).

        Raises:
            ValueError: the interval is too short, or the start is negative.
        """
        ...

    def commit(self) -> None:
        """Ask for a commit as soon as the batch that is processed now is done."""
        ...


class ProcessorContext(ProcessingContext, Protocol[KForward, VForward]):
    """What a `Processor` may ask (Kafka Streams' `ProcessorContext`)."""

    def forward(self, record: Record[KForward, VForward], child: str | None = None) -> None:
        """Hand a record on, from `process` or a punctuator.

        Args:
            record: the record, with a timestamp of its own.
            child: the name of the only node to get it; by default all children do, in the order in
                which they were added.

        Raises:
            StreamsError: there is no child of that name, or nothing is processed just now.
        """
        ...


class FixedKeyProcessorContext(ProcessingContext, Protocol[KForward, VForward]):
    """What a `FixedKeyProcessor` may ask (Kafka Streams' `FixedKeyProcessorContext`)."""

    def forward(self, record: FixedKeyRecord[KForward, VForward], child: str | None = None) -> None:
        """Hand a record on, under the key it came with.

        Args:
            record: made from the one being processed, by its `with_` methods.
            child: the name of the only node to get it; by default all children do, in the order in
                which they were added.

        Raises:
            TypeError: it is no `FixedKeyRecord`.
            StreamsError: there is no child of that name, or nothing is processed just now.
        """
        ...
