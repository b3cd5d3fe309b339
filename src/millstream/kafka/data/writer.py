"""How a producer hands records to librdkafka and hears of their fate, whichever way is taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import Producer

from millstream.record import Headers


class Outgoing(Protocol):
    """The records of one send, and the progress of handing them over."""

    topic: str

    @property
    def last_tried(self) -> int:
        """The index of the record that was handed over last, or refused."""

    def partition(self, index: int) -> int | None:
        """Where a record goes; None if its key decides."""

    def write(self) -> None:
        """Hand over what is left, beginning with the record for which there was no room.

        Raises:
            BufferError: there is no room for a record.
            KafkaException: librdkafka refuses it otherwise.
            TypeError, ValueError, OverflowError: it is nothing that can be written.
        """


class Writer(Protocol):
    """Makes the clients of one producer, and hands them records."""

    @property
    def tracks_apart(self) -> bool:
        """Whether records whose acknowledged offsets are wanted need a client of their own."""

    def create(self, settings: Mapping[str, Any], *, tracked: bool) -> Producer:
        """Make a client.

        Args:
            settings: librdkafka's.
            tracked: whether acknowledged offsets are wanted of its records.

        Raises:
            ConfigError: librdkafka refuses a setting.
        """

    def outgoing(
        self,
        client: Producer,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None,
        *,
        tracked: bool,
    ) -> Outgoing:
        """Records that are to be handed to a client; the arguments are those of `send_many`."""

    def learn(self) -> None:
        """Tell of the failures that the clients have reported."""

    def learn_offsets(self, topics: Collection[str]) -> None:
        """Tell of the acknowledged offsets of tracked topics."""

    def forget(self) -> None:
        """What was acknowledged and what has failed does not count any more."""

    def release(self, client: Producer) -> None:
        """Let a client go that has come to its end; tells of its failures."""
