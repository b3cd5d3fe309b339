"""What is kept beside a committed offset: the partition's time, as Kafka Streams encodes it.

Base64 of: one byte version (2), the partition time (int64) and, if there is any processor metadata,
the number of its entries (int32), and each as length-prefixed UTF-8 key and int64 value. Class:
`TopicPartitionMetadata`. A Java application reads what we write, and the reverse.
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
#: Where the id of the topic is among the values of processors, of which none has such a name.
_TOPIC_ID = "topic-id:"


@dataclass(frozen=True)
class CommitMetadata:
    """The time of a partition, and what processors asked to remember.

    Args:
        partition_time: the highest time read from the partition, -1 if unknown.
        processors: values by name, for example the last window close that was emitted.
        topic_ids: the id of the topic that the offset is of; none if unknown. Kafka Streams takes
            them for values of a processor, and writes back those of all topics of a task.
    """

    partition_time: int = -1
    processors: Mapping[str, int] = field(default_factory=dict)
    topic_ids: frozenset[str] = frozenset()

    def encode(self) -> str:
        """The text that goes into the committed offset's metadata."""
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
        """Read committed metadata; what is empty, unreadable or of a later version is unknown."""
        if not text:
            return cls()
        try:
            # confluent-kafka puts a zero byte behind the metadata of a transaction's offsets.
            data = base64.b64decode(text.rstrip("\0"), validate=True)
            version, partition_time = _HEAD.unpack_from(data)
            if version == 1:
                return cls(partition_time)
            if version != _VERSION:
                raise ValueError(f"version {version}")
            values = _decode_processors(data)
            topic_ids = [name for name in values if name.startswith(_TOPIC_ID)]
            return cls(
                partition_time,
                {name: value for name, value in values.items() if name not in topic_ids},
                frozenset(name.removeprefix(_TOPIC_ID) for name in topic_ids),
            )
        except (binascii.Error, struct.error, ValueError) as error:
            logger.warning("committed metadata %r is not readable (%s): ignored", text, error)
            return cls()


def _decode_processors(data: bytes) -> dict[str, int]:
    place = _HEAD.size
    if len(data) == place:
        return {}
    (count,) = _INT.unpack_from(data, place)
    place += _INT.size
    processors: dict[str, int] = {}
    for _ in range(count):
        (length,) = _INT.unpack_from(data, place)
        place += _INT.size
        name = data[place : place + length].decode()
        place += length
        (processors[name],) = _LONG.unpack_from(data, place)
        place += _LONG.size
    return processors
