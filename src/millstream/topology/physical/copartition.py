"""Co-partitioning of the topics that a task reads together.

Such topics must have equal partition counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.errors import CopartitionError
from millstream.topology.physical.internal_topic_configs import RepartitionTopic
from millstream.topology.physical.java_order import hash_order
from millstream.topology.physical.nodes import Node, SourceNode


class PatternJoin(NamedTuple):
    """Co-partitioned topics, some of which are matched by patterns."""

    topics: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    joined_at: str


class CopartitionedSources:
    """The groups of co-partitioned sources of a topology."""

    def __init__(
        self, nodes: Mapping[str, Node], internal_topics: Mapping[str, RepartitionTopic]
    ) -> None:
        self._nodes = nodes
        self._internal_topics = internal_topics
        # For each join, in the order of the program: the names of the sources, the names that Kafka
        # Streams lists, and the file and line of the join.
        self._declarations: list[tuple[tuple[str, ...], tuple[str, ...], str]] = []

    def add(
        self,
        source_names: Iterable[str],
        listed: Iterable[str] | None = None,
        declared_at: str = "",
    ) -> None:
        """Require that all topics of these sources have the same number of partitions.

        Args:
            source_names: the names of sources; names that are not sources of the topology are
                ignored.
            listed: the names of the sources that Kafka Streams lists; by default `source_names`.
        """
        names = tuple(source_names)
        self._declarations.append((names, names if listed is None else tuple(listed), declared_at))

    def listed_sources(self) -> list[list[SourceNode]]:
        """Return the groups of sources that Kafka Streams lists, in declaration order."""
        return [self._sources_named(hash_order(listed)) for _, listed, _ in self._declarations]

    def groups(self) -> list[frozenset[str]]:
        """Return the groups of topics that must have equal partition counts.

        The topics are undecorated.
        """
        groups = (self._topics_of(names) for names, _, _ in self._declarations)
        return merge_overlapping(filter(None, groups))

    def pattern_joins(self) -> list[PatternJoin]:
        """Return the groups that contain patterns, whose topics are not known yet."""
        joins = (
            PatternJoin(
                frozenset(self._topics_of(names)),
                tuple(s.pattern for s in self._sources_named(names) if s.pattern is not None),
                site,
            )
            for names, _, site in self._declarations
        )
        return [join for join in joins if join.patterns]

    def check(self) -> None:
        """Reject partition counts that would conflict on every cluster.

        Raises:
            CopartitionError: co-partitioned repartition topics have different counts.
        """
        readers = {
            topic: source
            for names, _, _ in self._declarations
            for source in self._sources_named(names)
            for topic in source.topics
        }
        for group in self.groups():
            check_enforced_partitions(group, self._internal_topics, readers, self.joined_at(group))

    def joined_at(self, group: frozenset[str]) -> str:
        """Return the files and lines of the program that join the topics of a group."""
        sites = (
            site
            for names, _, site in self._declarations
            if group.issuperset(self._topics_of(names))
        )
        return ", ".join(dict.fromkeys(filter(None, sites)))

    def _sources_named(self, names: Iterable[str]) -> list[SourceNode]:
        nodes = (self._nodes.get(name) for name in names)
        return [node for node in nodes if isinstance(node, SourceNode)]

    def _topics_of(self, names: Iterable[str]) -> list[str]:
        return [topic for source in self._sources_named(names) for topic in source.topics]


def merge_overlapping(groups: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """Return the groups of topics, with groups that share a topic merged.

    If a must match b and b must match c, all three must match.
    """
    merged: list[set[str]] = []
    for group in groups:
        union = set(group)
        disjoint = []
        for earlier in merged:
            if earlier & union:
                union |= earlier
            else:
                disjoint.append(earlier)
        merged = [*disjoint, union]
    return [frozenset(group) for group in merged]


def kafka_streams_groups(groups: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """Return the groups as Kafka Streams lists them.

    Kafka Streams merges only some overlapping groups: a group is merged into the first earlier
    group that contains one of its topics, in the order of a hash set. The check of partition counts
    uses `merge_overlapping` instead.

    Args:
        groups: decorated topic names, in the order of the joins in the program.
    """
    listed: dict[str, set[str]] = {}
    for group in groups:
        topics = hash_order(group)
        union = next((listed[topic] for topic in topics if topic in listed), set())
        union |= set(topics)
        listed |= dict.fromkeys(topics, union)
    return list({frozenset(each) for each in listed.values()})


def check_enforced_partitions(
    group: frozenset[str],
    internal: Mapping[str, RepartitionTopic],
    readers: Mapping[str, SourceNode],
    joined_at: str,
) -> None:
    """Reject a group whose partition counts would conflict on every cluster.

    This check covers groups that consist only of repartition topics with counts set by the user.
    The assignor checks the other groups against the cluster.

    Raises:
        CopartitionError: the counts differ.
    """
    counts = {
        topic: internal[topic].partitions if topic in internal else None for topic in sorted(group)
    }
    if None in counts.values() or len(set(counts.values())) == 1:
        return
    listed = ", ".join(
        f"{topic!r} has {count}{_declared_suffix(readers.get(topic))}"
        for topic, count in counts.items()
    )
    raise CopartitionError(
        "Topics that are joined by key must have equal partition counts, but these repartition "
        f"topics differ: {listed}. Use the same number in each repartition(partitions=...).",
        topic=min(counts),
        declared_at=joined_at,
    )


def _declared_suffix(source: SourceNode | None) -> str:
    """Return the source of a topic and its declaration, in parentheses."""
    if source is None:
        return ""
    return f" (node {source.name}{f', {source.declared_at}' if source.declared_at else ''})"
