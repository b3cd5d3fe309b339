"""What a store must know of the record being processed."""

from __future__ import annotations

from typing import Protocol

from millstream.record import Headers, TopicPartition


class RecordAtHand(Protocol):
    """The record being processed, as the stores see it that processors write to meanwhile."""

    @property
    def timestamp(self) -> int:
        """Of the record, in milliseconds."""
        ...

    @property
    def place(self) -> TopicPartition | None:
        """Where it was read; None in a punctuator."""
        ...

    @property
    def offset(self) -> int:
        """Its offset, -1 in a punctuator."""
        ...

    @property
    def headers(self) -> Headers:
        """Its headers."""
        ...
