"""The topics of a topology as the assignor sees them, and what it asks of the cluster.

All names are those on the cluster: internal topics with the application id in front.
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
    """A repartition topic that a sub-topology reads.

    Args:
        partitions: how many the user asked for; None leaves it to the assignor.
        config: the topic's config, should it have to be created.
    """

    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangelogSpec:
    """The changelog of a store.

    Args:
        config: the topic's config, should it have to be created.
        is_source_topic: whether it is a topic that the sub-topology reads anyway
            (`reuse.ktable.source.topics`). Such a topic is never created.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    is_source_topic: bool = False


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """The topics of one sub-topology. Global tables' topics do not belong to any.

    Args:
        subtopology_id: the number in its tasks' ids.
        source_topics: what it reads, repartition topics included.
        source_patterns: what the names of further topics that it reads match.
        sink_topics: what it writes under fixed names, repartition topics included.
        repartition_source_topics: the repartition topics among the source topics.
        changelog_topics: the changelogs of its logged stores; with any, its tasks are stateful.
    """

    subtopology_id: int
    source_topics: tuple[str, ...] = ()
    sink_topics: tuple[str, ...] = ()
    repartition_source_topics: Mapping[str, RepartitionSpec] = field(default_factory=dict)
    changelog_topics: Mapping[str, ChangelogSpec] = field(default_factory=dict)
    source_patterns: tuple[re.Pattern[str], ...] = ()

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state to restore."""
        return bool(self.changelog_topics)


@dataclass(frozen=True, slots=True)
class TopologyTopics:
    """The topics of all sub-topologies.

    Args:
        groups: one for each sub-topology.
        copartition_groups: topics that are read side by side and so must have equally many
            partitions; no topic is in two groups.
        joined_at: the places in the user's program that read each of these groups side by side.
        pattern_joins: the same for topics that are known by a pattern only, and those beside them.
        passages: what reads internal topics without being a sub-topology with tasks, and writes
            others: queries. Their `subtopology_id` means nothing.
    """

    groups: tuple[TopicGroup, ...]
    copartition_groups: tuple[frozenset[str], ...] = ()
    joined_at: Mapping[frozenset[str], str] = field(default_factory=dict)
    pattern_joins: tuple[PatternJoin, ...] = ()
    passages: tuple[TopicGroup, ...] = ()

    @property
    def repartition_topics(self) -> dict[str, RepartitionSpec]:
        """All repartition topics, by name."""
        return {
            name: spec
            for group in (*self.groups, *self.passages)
            for name, spec in group.repartition_source_topics.items()
        }

    @property
    def external_source_topics(self) -> set[str]:
        """The topics that must be there before the application can run."""
        sources = {topic for group in self.groups for topic in group.source_topics}
        return sources - set(self.repartition_topics)

    def with_matches(self, subscribed: Iterable[str]) -> TopologyTopics:
        """This with the subscribed topics that match a pattern as source topics, which must have
        as many partitions as what they are joined with.

        Args:
            subscribed: all topics that some member of the group subscribes to.

        Raises:
            TopologyError: a topic matches the patterns of two sources.
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
                    f"{readers[1][1]!r}, but a topic can be read by one source only. "
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
        """The co-partitioned groups, and where each is joined, with what matches each pattern."""
        joins = [(group, self.joined_at.get(group, "")) for group in self.copartition_groups]
        for topics, patterns, place in self.pattern_joins:
            found = {topic for pattern in patterns for topic in matches.get(pattern, ())}
            joins.append((topics | found, place))
        united = merge_overlapping(topics for topics, _ in joins if topics)
        places = {
            group: [place for topics, place in joins if topics and place and topics <= group]
            for group in united
        }
        return {
            group: ", ".join(dict.fromkeys(", ".join(found).split(", ")))
            for group, found in places.items()
        }


class NewTopic(NamedTuple):
    """An internal topic to create."""

    name: str
    partitions: int
    config: Mapping[str, str]


class Cluster(Protocol):
    """What the assignor asks of the Kafka cluster.

    Every call has a deadline of the implementation's, all of them together well below
    `session.timeout.ms`: the rest of the group waits meanwhile. A topic that should be there is not
    told to be missing because of a single answer that lacks it.
    """

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """The partition count of each of the topics that exists.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        ...

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        """The racks of the brokers with replicas of each partition; without the partitions of
        which some broker has no rack, and topics that do not exist.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        ...

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last record of each partition.

        Raises:
            BrokerUnavailableError: no broker answered in time.
            UnknownTopicError: a partition does not exist.
        """
        ...

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offset that the group has committed of each partition; 0 where it has none.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        ...

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create topics and wait until they are there.

        A topic which someone else created meanwhile is no error, as long as its partition count is
        the one asked for.

        Raises:
            BrokerUnavailableError: they were not there in time.
            TopologyError: one is there with another partition count.
        """
        ...
