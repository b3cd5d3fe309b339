"""The serialized form of a buffered record: its context and its values.

Kafka Streams' `BufferValue` and `ProcessorRecordContext`, in version 3 of their format, which all
releases since 2.6 write.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from millstream.errors import StreamsError
from millstream.record import UNKNOWN, Header, Headers, TopicPartition

_TIMES: Final = struct.Struct(">qqi")
_INT: Final = struct.Struct(">i")
_TWO_INTS: Final = struct.Struct(">ii")
_NULL: Final = _INT.pack(-1)
#: Marks an old value that equals the prior value.
_SAME_AS_PRIOR: Final = _INT.pack(-2)
#: The size that Kafka Streams counts for timestamp, offset and partition.
_CONTEXT_BYTES: Final = 20


class BufferedContext(NamedTuple):
    """The record context of a buffered value.

    Args:
        place: the input partition; None in a punctuator.
    """

    timestamp: int
    offset: int
    place: TopicPartition | None
    headers: Headers


class BufferValue(NamedTuple):
    """The serialized values of a buffered record.

    Args:
        prior: the value downstream when the key was first buffered.
        new: the new value; None for a deletion.
    """

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    context: BufferedContext

    def size_bytes(self) -> int:
        """Return the size that Kafka Streams counts against the limit of a buffer."""
        _, _, place, headers = self.context
        size = _CONTEXT_BYTES + (0 if place is None else len(place.topic))
        for name, value in headers:
            size += len(name) + len(value or b"")
        if self.prior is not None:
            size += len(self.prior)
        if self.old is not None and self.old != self.prior:
            size += len(self.old)
        if self.new is not None:
            size += len(self.new)
        return size

    def encode(self) -> bytes:
        """Encode the record in version 3 of the format."""
        timestamp, offset, place, headers = self.context
        topic, partition = (b"", UNKNOWN) if place is None else (place.topic.encode(), place[1])
        parts = [_TIMES.pack(timestamp, offset, len(topic)), topic]
        parts.append(_TWO_INTS.pack(partition, len(headers)))
        for name, value in headers:
            parts.append(_sized(name.encode()))
            parts.append(_sized(value))
        parts.append(_sized(self.prior))
        same = self.old is not None and self.old == self.prior
        parts.append(_SAME_AS_PRIOR if same else _sized(self.old))
        parts.append(_sized(self.new))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> tuple[BufferValue, bytes]:
        """Decode a value; return it and the remaining bytes.

        Raises:
            StreamsError: the bytes have another format.
        """
        try:
            return _decoded(data)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise StreamsError(
                f"A buffered record of {len(data)} bytes does not have the format used since "
                "Kafka Streams 2.6. Drain the buffer with the application that wrote it, or "
                "reset the application."
            ) from error


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else _INT.pack(len(data)) + data


def _decoded(data: bytes) -> tuple[BufferValue, bytes]:
    timestamp, offset, topic_size = _TIMES.unpack_from(data)
    at = _TIMES.size + topic_size
    topic = data[_TIMES.size : at].decode()
    partition, header_count = _TWO_INTS.unpack_from(data, at)
    at += _TWO_INTS.size
    headers: list[Header] = []
    for _ in range(header_count):
        name, at = _read(data, at)
        value, at = _read(data, at)
        headers.append(((name or b"").decode(), value))
    prior, at = _read(data, at)
    if data[at : at + _INT.size] == _SAME_AS_PRIOR:
        old, at = prior, at + _INT.size
    else:
        old, at = _read(data, at)
    new, at = _read(data, at)
    place = None if partition == UNKNOWN else TopicPartition(topic, partition)
    context = BufferedContext(timestamp, offset, place, tuple(headers))
    return BufferValue(prior, old, new, context), data[at:]


def _read(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = _INT.unpack_from(data, at)
    at += _INT.size
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError(size)
    return data[at : at + size], at + size
