"""Which topics must have equally many partitions, because a task reads them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.errors import CopartitionError
from millstream.topology.internal_topics import RepartitionTopic


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


def check_enforced_partitions(
    groups: Iterable[frozenset[str]], internal: Mapping[str, RepartitionTopic]
) -> None:
    """Refuse groups that cannot be co-partitioned whatever the cluster looks like.

    Only a group of nothing but repartition topics whose counts the user gave can be judged here;
    the assignor checks the others against the cluster.

    Raises:
        CopartitionError: the counts given differ.
    """
    for group in groups:
        counts = {
            topic: internal[topic].partitions if topic in internal else None
            for topic in sorted(group)
        }
        if None not in counts.values() and len(set(counts.values())) > 1:
            listed = ", ".join(f"{topic!r} has {count}" for topic, count in counts.items())
            raise CopartitionError(
                "Topics that are joined by key must have equal partition counts, "
                f"but of the repartition topics {listed}. "
                "Give the same number to each repartition(partitions=...)."
            )
