"""The group membership that goes into a transaction with its offsets, in librdkafka's own form.

With it the broker refuses the transaction of a member that lost its place in the group (KIP-447).
librdkafka hands the form out only for consumers that joined a group themselves; ours is joined by
kafka-python, so it is written here. It is librdkafka's private matter, hence `verify_format`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from confluent_kafka import Consumer, libversion

from millstream.errors import ConfigError

_MAGIC: Final = b"CGMDv2:"
_NO_GENERATION: Final = -1


class GroupMetadata(NamedTuple):
    """A member's place in its group, which goes into a transaction with its offsets.

    Args:
        generation: of the group, when this member last joined.
        group_id: the application id.
        member_id: which the coordinator gave to this member.
        instance_id: `group.instance.id` of a static member.
    """

    generation: int
    group_id: str
    member_id: str
    instance_id: str | None = None

    def encoded(self) -> bytes:
        """In librdkafka's form."""
        instance = b"\1"
        if self.instance_id is not None:
            instance = b"\0" + self.instance_id.encode() + b"\0"
        return b"".join(
            (
                _MAGIC,
                # Native byte order: librdkafka copies the number as it lies in memory.
                struct.pack("=i", self.generation),
                self.group_id.encode() + b"\0",
                self.member_id.encode() + b"\0",
                instance,
            )
        )


def verify_format() -> None:
    """Check that this librdkafka still writes group metadata as `GroupMetadata` does. Takes about
    3 ms.

    Raises:
        ConfigError: it does not; exactly-once would not be fenced.
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
                f"librdkafka {libversion()[0]} writes group metadata in an unknown form "
                f"({actual!r}), so exactly-once could not be guaranteed. Install a version of "
                "confluent-kafka that this Millstream was tested with."
            )
