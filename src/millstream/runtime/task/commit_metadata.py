"""Metadata of committed offsets: partition time and processor metadata.

The format is Base64 of a version byte (2), the partition time (int64) and, if there is processor
metadata, the number of entries (int32) followed by each entry as a length-prefixed UTF-8 key and an
int64 value. It is the format of Kafka Streams' `TopicPartitionMetadata`, so Java and Python
applications can read each other's metadata.
"""

from __future__ import annotations

import base64
import binascii
import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

_VERSION = 2
_HEAD = struct.Struct(">bq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
#: Prefix of the entry for the topic id in the processor metadata. No processor uses this prefix.
_TOPIC_ID = "topic-id:"


@dataclass(frozen=True)
class CommitMetadata:
    """The metadata that is committed with the offset of a partition.

    Args:
        partition_time: the highest timestamp read from the partition, -1 if unknown.
        processors: values by name, for example the close time of the last emitted window.
        topic_ids: the id of the topic that the offset belongs to; empty if unknown. There may be
            several, because Kafka Streams treats topic ids as processor metadata and writes the
            ids of all topics of a task.
    """

    partition_time: int = -1
    processors: Mapping[str, int] = field(default_factory=dict)
    topic_ids: frozenset[str] = frozenset()

    def encode(self) -> str:
        """Return the metadata string of the committed offset."""
        parts = [_HEAD.pack(_VERSION, self.partition_time)]
        values = {
            **self.processors,
            **{f"{_TOPIC_ID}{topic_id}": 0 for topic_id in sorted(self.topic_ids)},
        }
        if values:
            parts.append(_INT.pack(len(values)))
        for name, value in values.items():
            encoded = name.encode()
            parts += [_INT.pack(len(encoded)), encoded, _LONG.pack(value)]
        return base64.b64encode(b"".join(parts)).decode("ascii")

    @classmethod
    def decode(cls, text: str | None) -> CommitMetadata:
        """Parse committed metadata; return defaults for empty, invalid or newer metadata."""
        if not text:
            return cls()
        try:
            # confluent-kafka appends a zero byte to the metadata of transactional offsets.
            data = base64.b64decode(text.rstrip("\0"), validate=True)
            version, partition_time = _HEAD.unpack_from(data)
            if version == 1:
                return cls(partition_time)
            if version != _VERSION:
                raise ValueError(f"unknown version {version}")
            values = _decode_processors(data)
            topic_ids = [name for name in values if name.startswith(_TOPIC_ID)]
            return cls(
                partition_time,
                {name: value for name, value in values.items() if name not in topic_ids},
                frozenset(name.removeprefix(_TOPIC_ID) for name in topic_ids),
            )
        except (binascii.Error, struct.error, ValueError) as error:
            logger.warning("ignoring invalid committed metadata %r (%s)", text, error)
            return cls()


def _decode_processors(data: bytes) -> dict[str, int]:
    position = _HEAD.size
    if len(data) == position:
        return {}
    (count,) = _INT.unpack_from(data, position)
    position += _INT.size
    processors: dict[str, int] = {}
    for _ in range(count):
        (length,) = _INT.unpack_from(data, position)
        position += _INT.size
        name = data[position : position + length].decode()
        position += length
        (processors[name],) = _LONG.unpack_from(data, position)
        position += _LONG.size
    return processors
