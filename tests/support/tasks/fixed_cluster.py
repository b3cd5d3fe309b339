"""A healthy cluster as the assignor sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from millstream.assignment.topic_metadata import NewTopic
from millstream.record import TopicPartition


@dataclass
class FixedCluster:
    """Topics with partition counts; all partitions have the same end, and nothing is committed.

    Args:
        counts: of the topics; created topics are added.
        end: the offset after the last record of each partition.
    """

    counts: dict[str, int]
    end: int

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        return {}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        self.counts |= {topic.name: topic.partitions for topic in topics}
