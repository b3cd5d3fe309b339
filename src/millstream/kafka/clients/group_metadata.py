"""Group metadata for transactional offsets, in librdkafka's internal format.

With the metadata, the broker rejects the transaction of a member that lost its membership
(KIP-447). librdkafka returns the encoded metadata only for consumers that joined a group
themselves. Here, kafka-python joins the group, so this module encodes the metadata. The format is
an implementation detail of librdkafka, so `verify_format` checks it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from confluent_kafka import Consumer, libversion

from millstream.errors import ConfigError

_MAGIC: Final = b"CGMDv2:"
_NO_GENERATION: Final = -1


class GroupMetadata(NamedTuple):
    """A member's group metadata, which is sent with the offsets of a transaction."""

    generation: int
    group_id: str
    member_id: str
    instance_id: str | None = None

    def encoded(self) -> bytes:
        instance = b"\1"
        if self.instance_id is not None:
            instance = b"\0" + self.instance_id.encode() + b"\0"
        return b"".join(
            (
                _MAGIC,
                # Native byte order: librdkafka copies the number from memory.
                struct.pack("=i", self.generation),
                self.group_id.encode() + b"\0",
                self.member_id.encode() + b"\0",
                instance,
            )
        )


def verify_format() -> None:
    """Raise ConfigError if librdkafka encodes group metadata differently.

    Takes about 3 ms.
    """
    for instance_id in (None, "instance"):
        settings = {"group.id": "group"}
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        probe = Consumer(settings)
        try:
            actual = probe.consumer_group_metadata()
        finally:
            probe.close()
        if actual != GroupMetadata(_NO_GENERATION, "group", "", instance_id).encoded():
            raise ConfigError(
                f"librdkafka {libversion()[0]} encodes group metadata in an unknown format "
                f"({actual!r}), so exactly-once could not be guaranteed. Install a version of "
                "confluent-kafka that this version of Millstream was tested with."
            )
