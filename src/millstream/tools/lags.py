"""How far a consumer group is behind the ends of what it reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.record import TopicPartition


class PartitionLag(NamedTuple):
    """A partition: what the group has committed, what it has, and who reads it.

    Args:
        place: the partition.
        committed: by the group; None for nothing.
        begin: the offset of its first record.
        end: the offset after its last record.
        reader: the client that reads it at present; None for nobody.
    """

    place: TopicPartition
    committed: int | None
    begin: int
    end: int
    reader: str | None

    @property
    def lag(self) -> int:
        """The offsets between what is committed and the end; all of them where nothing is."""
        start = self.begin if self.committed is None else max(self.committed, self.begin)
        return max(0, self.end - start)


def lags_of_group(
    admin: GroupAdmin, group: str, topics: Iterable[str] | None = None
) -> list[PartitionLag]:
    """The lag of each partition that a group reads.

    Args:
        admin: of the cluster.
        group: its id.
        topics: what it reads, those that do not exist left out; None for what it has committed
            offsets of, or is reading now.

    Raises:
        BrokerUnavailableError: the cluster does not answer.
        AccessDeniedError: the user may not see the group or a topic.
    """
    readers = {
        place: member.client_id for member in admin.members(group) for place in member.partitions
    }
    counts = admin.partition_counts(admin.topics_matching(".*") if topics is None else topics)
    places = [
        TopicPartition(topic, partition)
        for topic, count in sorted(counts.items())
        for partition in range(count)
    ]
    committed = admin.committed_offsets(group, places)
    if topics is None:
        places = [place for place in places if committed.get(place) is not None or place in readers]
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    return [
        PartitionLag(place, committed.get(place), begins[place], ends[place], readers.get(place))
        for place in places
    ]
