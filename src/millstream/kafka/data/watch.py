"""Who decides about records that were not written."""

from __future__ import annotations

from typing import Protocol

from millstream.errors import ProductionError, StreamsError


class Watch(Protocol):
    """Decides about the records of one send that Kafka did not take."""

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        """What to raise for a record; None to go on without it.

        Args:
            index: of the record in what was sent.
            error: what became of it; `retriable` where trying again may help.
            transaction_lost: whether its transaction cannot be committed any more: there is no
                going on without the record then, nor can anything be sent.
        """
        ...
