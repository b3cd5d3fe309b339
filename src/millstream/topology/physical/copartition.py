"""Which topics must have equally many partitions, because a task reads them side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.errors import CopartitionError
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.java_order import hash_order
from millstream.topology.physical.nodes import Node, SourceNode


class PatternJoin(NamedTuple):
    """What is read side by side, some of it by patterns.

    Args:
        topics: what is read by name.
        patterns: what the names of the others match.
        joined_at: the place in the user's program.
    """

    topics: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    joined_at: str


class CopartitionedSources:
    """Which sources of a topology are read side by side.

    Args:
        nodes: those of the topology, by name; may become more.
        internal_topics: its repartition topics, by undecorated name; may become more.
    """

    def __init__(
        self, nodes: Mapping[str, Node], internal_topics: Mapping[str, RepartitionTopic]
    ) -> None:
        self._nodes = nodes
        self._internal_topics = internal_topics
        # The names of sources, those of them that Kafka Streams lists, and file and line of what
        # joins them, in the order of the program.
        self._said: list[tuple[tuple[str, ...], tuple[str, ...], str]] = []

    def add(
        self, source_names: Iterable[str], listed: Iterable[str] | None, declared_at: str
    ) -> None:
        """Say that all topics read by these sources must have equally many partitions.

        Args:
            source_names: of sources; what is no source of the topology is passed over.
            listed: the ones that Kafka Streams lists, if it loses some.
            declared_at: file and line to name in errors.
        """
        names = tuple(source_names)
        self._said.append((names, names if listed is None else tuple(listed), declared_at))

    def listed_sources(self) -> list[list[SourceNode]]:
        """The sources that Kafka Streams lists as read side by side, in the order of saying."""
        return [self._sources_named(hash_order(listed)) for _, listed, _ in self._said]

    def groups(self) -> list[frozenset[str]]:
        """Sets of (undecorated) topics that must have equally many partitions."""
        groups = (self._topics_of(names) for names, _, _ in self._said)
        return merge_overlapping(filter(None, groups))

    def pattern_joins(self) -> list[PatternJoin]:
        """What must have equally many partitions as topics whose names are not known yet."""
        joins = (
            PatternJoin(
                frozenset(self._topics_of(names)),
                tuple(s.pattern for s in self._sources_named(names) if s.pattern is not None),
                site,
            )
            for names, _, site in self._said
        )
        return [join for join in joins if join.patterns]

    def check(self) -> None:
        """Refuse partition counts that cannot agree, whatever the cluster looks like.

        Raises:
            CopartitionError: repartition topics to be joined were given different counts.
        """
        readers = {
            topic: source
            for names, _, _ in self._said
            for source in self._sources_named(names)
            for topic in source.topics
        }
        for group in self.groups():
            check_enforced_partitions(group, self._internal_topics, readers, self.joined_at(group))

    def joined_at(self, group: frozenset[str]) -> str:
        """The lines of the user's program that read the topics of a group side by side."""
        sites = (site for names, _, site in self._said if group.issuperset(self._topics_of(names)))
        return ", ".join(dict.fromkeys(filter(None, sites)))

    def _sources_named(self, names: Iterable[str]) -> list[SourceNode]:
        nodes = (self._nodes.get(name) for name in names)
        return [node for node in nodes if isinstance(node, SourceNode)]

    def _topics_of(self, names: Iterable[str]) -> list[str]:
        return [topic for source in self._sources_named(names) for topic in source.topics]


def merge_overlapping(groups: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """The groups of topics, those which have a topic in common united.

    If a must match b and b must match c, all three must match.
    """
    merged: list[set[str]] = []
    for group in groups:
        united = set(group)
        apart = []
        for earlier in merged:
            if earlier & united:
                united |= earlier
            else:
                apart.append(earlier)
        merged = [*apart, united]
    return [frozenset(group) for group in merged]


def listed_by_kafka(groups: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """The groups as Kafka Streams lists them, which unites only some of those that overlap.

    A group joins the first earlier one in which any of its topics is, in the order of a hash set,
    and takes its topics along. Whether partition counts agree is judged by `merge_overlapping`.

    Args:
        groups: topics under their real names, in the order in which the program joined them.
    """
    listed: dict[str, set[str]] = {}
    for group in groups:
        topics = hash_order(group)
        united = next((listed[topic] for topic in topics if topic in listed), set())
        united |= set(topics)
        listed |= dict.fromkeys(topics, united)
    return list({frozenset(each) for each in listed.values()})


def check_enforced_partitions(
    group: frozenset[str],
    internal: Mapping[str, RepartitionTopic],
    readers: Mapping[str, SourceNode],
    joined_at: str,
) -> None:
    """Refuse a group that cannot be co-partitioned whatever the cluster looks like.

    Only a group of nothing but repartition topics whose counts the user gave can be judged here;
    the assignor checks the others against the cluster.

    Args:
        group: the topics.
        internal: the repartition topics of the topology.
        readers: the source that reads each topic.
        joined_at: the lines of the user's program that join what is read from the topics.

    Raises:
        CopartitionError: the counts given differ.
    """
    counts = {
        topic: internal[topic].partitions if topic in internal else None for topic in sorted(group)
    }
    if None in counts.values() or len(set(counts.values())) == 1:
        return
    listed = ", ".join(
        f"{topic!r} has {count}{_declared(readers.get(topic))}" for topic, count in counts.items()
    )
    raise CopartitionError(
        "Topics that are joined by key must have equal partition counts, but of the repartition "
        f"topics {listed}. Give the same number to each repartition(partitions=...).",
        topic=min(counts),
        declared_at=joined_at,
    )


def _declared(source: SourceNode | None) -> str:
    """Where the topic of a source comes from, in brackets."""
    if source is None:
        return ""
    return f" (node {source.name}{f', {source.declared_at}' if source.declared_at else ''})"
