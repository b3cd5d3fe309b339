"""Records on their way into librdkafka by confluent-kafka's producer: columns turned into calls of
`produce`, as cheaply as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import length_hint
from typing import Any, Final

from millstream.kafka.data.delivery import DeliveryCallback
from millstream.record import Headers

#: librdkafka's partition for "hash the key".
BY_KEY: Final = -1


class OutgoingRecords:
    """Records of one topic as columns, and the progress of handing them over; see `Outgoing`.

    Args:
        produce: of the client that is to write them.
        topic: where they go.
        partitions: one for all, one for each, or None to hash each key.
        keys: serialized keys.
        values: serialized values.
        timestamps: milliseconds since the epoch.
        headers: for each record its headers or nothing; None when there are none at all.
        callback: told of the fate of each record but the last, if not None.
        last_callback: told of the last one's.
        callbacks: for each record who is told of its fate, in place of those two.
    """

    def __init__(
        self,
        produce: Callable[..., None],
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None,
        callback: DeliveryCallback | None,
        last_callback: DeliveryCallback | None,
        callbacks: Sequence[DeliveryCallback] | None = None,
    ) -> None:
        self.topic = topic
        self._produce = produce
        if partitions is None or isinstance(partitions, int):
            self._partition = BY_KEY if partitions is None else partitions
            self._partitions = None
        else:
            self._partition = BY_KEY
            self._partitions = [BY_KEY if one is None else one for one in partitions]
        self._keys = keys
        self._values = values
        self._timestamps = timestamps
        self._headers = None if headers is None else [list(one) if one else None for one in headers]
        self._callback = callback
        self._last_callback = last_callback
        self._callbacks = callbacks
        self._progress = iter(values)
        self._calls = self._begun()
        self._is_refused = False

    @property
    def last_tried(self) -> int:
        """The index of the record that was handed to `produce` last."""
        return len(self._values) - length_hint(self._progress) - 1

    def partition(self, index: int) -> int | None:
        """See `Outgoing.partition`."""
        partition = self._partition if self._partitions is None else self._partitions[index]
        return None if partition == BY_KEY else partition

    def write(self) -> None:
        """See `Outgoing.write`."""
        try:
            if self._is_refused:
                self._produce(*self._arguments(self.last_tried))
                self._is_refused = False
            deque(self._calls, maxlen=0)
        except BufferError:
            self._is_refused = True
            raise

    def _begun(self) -> Iterator[None]:
        """One call of `produce` for each record, made as the iterator is consumed.

        Positional arguments through map take 460 ns a record; a loop 630; with keywords 985, since
        parsing them costs most.
        """
        callbacks: Iterable[DeliveryCallback | None] = repeat(self._callback)
        if self._callbacks is not None:
            callbacks = self._callbacks
        elif self._callback is not self._last_callback:
            callbacks = chain(repeat(self._callback, len(self._values) - 1), (self._last_callback,))
        columns: list[Iterable[Any]] = [
            repeat(self.topic),
            self._progress,
            self._keys,
            repeat(self._partition) if self._partitions is None else self._partitions,
            callbacks,
            repeat(None),
            self._timestamps,
        ]
        if self._headers is not None:
            columns.append(self._headers)
        return map(self._produce, *columns)

    def _arguments(self, index: int) -> tuple[Any, ...]:
        """What `produce` is called with for one record."""
        callback = self._last_callback if index == len(self._values) - 1 else self._callback
        arguments = (
            self.topic,
            self._values[index],
            self._keys[index],
            self._partition if self._partitions is None else self._partitions[index],
            callback if self._callbacks is None else self._callbacks[index],
            None,
            self._timestamps[index],
        )
        return arguments if self._headers is None else (*arguments, self._headers[index])
