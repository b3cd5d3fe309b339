"""Which tasks could not be written to the topics beside that of their subscription."""

from __future__ import annotations

from millstream.errors import StreamsError
from millstream.record import TopicPartition


class Refused:
    """Tasks of one engine task that the retry or dead-letter topic did not take, by their places.

    Told by whoever hears it of the producer, heard by whoever has sent them, on one thread.
    """

    def __init__(self) -> None:
        self._errors: dict[tuple[TopicPartition, int], StreamsError] = {}

    def add(self, place: TopicPartition, offset: int, error: StreamsError) -> None:
        """The task of this record was not taken."""
        self._errors[place, offset] = error

    def take(self) -> dict[tuple[TopicPartition, int], StreamsError]:
        """Those since the last time."""
        errors, self._errors = self._errors, {}
        return errors
