"""The topics of a topology, and the assignor's access to the cluster.

All names are those on the cluster: the names of internal topics begin with the application id.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from millstream.errors import TopologyError
from millstream.record import TopicPartition
from millstream.topology.physical.copartition import PatternJoin, merge_overlapping


@dataclass(frozen=True, slots=True)
class RepartitionSpec:
    """A repartition topic that a sub-topology reads."""

    #: The user's partition count; None leaves it to the assignor.
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangelogSpec:
    config: Mapping[str, str] = field(default_factory=dict)
    #: Whether the changelog is also a source topic of the sub-topology
    #: (`reuse.ktable.source.topics`). Such a topic is never created.
    is_source_topic: bool = False


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """The topics of one sub-topology. The topics of global tables belong to no group."""

    subtopology_id: int
    #: Including repartition topics.
    source_topics: tuple[str, ...] = ()
    #: The sink topics with fixed names, including repartition topics.
    sink_topics: tuple[str, ...] = ()
    repartition_source_topics: Mapping[str, RepartitionSpec] = field(default_factory=dict)
    changelog_topics: Mapping[str, ChangelogSpec] = field(default_factory=dict)
    #: The patterns of further source topics.
    source_patterns: tuple[re.Pattern[str], ...] = ()

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelog_topics)


@dataclass(frozen=True, slots=True)
class TopologyTopics:
    """The topics of all sub-topologies."""

    groups: tuple[TopicGroup, ...]
    #: Topics that must have equal partition counts; the groups are disjoint.
    copartition_groups: tuple[frozenset[str], ...] = ()
    #: For each co-partitioned group, the locations of its joins in the user's program.
    joined_at: Mapping[frozenset[str], str] = field(default_factory=dict)
    #: Joins in which some topics are matched by patterns.
    pattern_joins: tuple[PatternJoin, ...] = ()
    #: The topics of DataFrame queries, which read internal topics and write other topics, without
    #: tasks. Their `subtopology_id` is meaningless.
    stage_groups: tuple[TopicGroup, ...] = ()

    @property
    def repartition_topics(self) -> dict[str, RepartitionSpec]:
        return {
            name: spec
            for group in (*self.groups, *self.stage_groups)
            for name, spec in group.repartition_source_topics.items()
        }

    @property
    def external_source_topics(self) -> set[str]:
        """The topics that must exist before the application can run."""
        sources = {topic for group in self.groups for topic in group.source_topics}
        return sources - set(self.repartition_topics)

    def with_matches(self, subscribed: Iterable[str]) -> TopologyTopics:
        """Return a copy in which the topics that match a pattern are source topics.

        They are co-partitioned with the topics that they are joined with. `subscribed` contains all
        topics to which members of the group subscribe. Raises TopologyError if a topic matches the
        patterns of two sources.
        """
        if not any(group.source_patterns for group in self.groups):
            return self
        known = {topic for group in self.groups for topic in group.source_topics}
        matches: dict[int, list[str]] = {}
        for topic in sorted(set(subscribed) - known):
            readers = [
                (group.subtopology_id, pattern.pattern)
                for group in self.groups
                for pattern in group.source_patterns
                # Follows Kafka Streams: the pattern must match the whole name.
                if pattern.fullmatch(topic)
            ]
            if len(readers) > 1:
                raise TopologyError(
                    f"Topic {topic!r} matches the patterns of two sources, {readers[0][1]!r} and "
                    f"{readers[1][1]!r}, but a topic can be read by only one source. "
                    "Make the patterns exclude each other.",
                    topic=topic,
                )
            for subtopology_id, _ in readers:
                matches.setdefault(subtopology_id, []).append(topic)
        groups = tuple(
            replace(
                group, source_topics=(*group.source_topics, *matches.get(group.subtopology_id, ()))
            )
            for group in self.groups
        )
        joined_at = self._joined_with(
            {
                pattern: tuple(filter(pattern.fullmatch, matched))
                for group in self.groups
                for pattern in group.source_patterns
                if (matched := matches.get(group.subtopology_id))
            }
        )
        return replace(
            self, groups=groups, copartition_groups=tuple(joined_at), joined_at=joined_at
        )

    def _joined_with(
        self, matches: Mapping[re.Pattern[str], Iterable[str]]
    ) -> dict[frozenset[str], str]:
        """Return the co-partitioned groups and the locations of their joins.

        The groups include topics that match patterns.
        """
        joins = [(group, self.joined_at.get(group, "")) for group in self.copartition_groups]
        for topics, patterns, location in self.pattern_joins:
            found = {topic for pattern in patterns for topic in matches.get(pattern, ())}
            joins.append((topics | found, location))
        united = merge_overlapping(topics for topics, _ in joins if topics)
        locations = {
            group: [
                location for topics, location in joins if topics and location and topics <= group
            ]
            for group in united
        }
        return {
            group: ", ".join(dict.fromkeys(", ".join(found).split(", ")))
            for group, found in locations.items()
        }


class NewTopic(NamedTuple):
    name: str
    partitions: int
    config: Mapping[str, str]


class Cluster(Protocol):
    """The assignor's requests to the Kafka cluster.

    The implementation must set a timeout for every call. The sum of these timeouts must be well
    below `session.timeout.ms`, because the rest of the group is waiting. A single response without
    an expected topic must not be sufficient to report the topic as missing. All methods raise
    BrokerUnavailableError if no broker responded in time.
    """

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the partition counts of the topics that exist."""

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        """Return the racks of the brokers with replicas of each partition.

        Partitions with a replica on a broker without a rack, and topics that do not exist, are left
        out.
        """

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record of each partition.

        Raises UnknownTopicError if a partition does not exist.
        """

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the group's committed offset of each partition; 0 if there is none."""

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create topics and wait until they exist.

        A topic that was created concurrently is accepted if it has the requested partition count.
        Raises TopologyError if a topic exists with another partition count.
        """
