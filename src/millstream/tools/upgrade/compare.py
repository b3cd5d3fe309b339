"""Two versions of a program compared: what stays, what changes, what breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from millstream.assignment.topics import (
    ChangelogSpec,
    RepartitionSpec,
    TopicGroup,
    TopologyTopics,
)
from millstream.errors import CopartitionError, TaskAssignmentError
from millstream.tools.facts import SubtopologyFacts, TopologyFacts, external_topics
from millstream.tools.topics import internal_counts
from millstream.tools.upgrade.findings import Finding, Level
from millstream.tools.upgrade.stores import compare_stores
from millstream.tools.upgrade.topics import compare_topics, may_roll
from millstream.topology.physical.internal_topics import decorated


class Comparison(NamedTuple):
    """What was found, what breaks first, and whether instances of both may run side by side."""

    findings: tuple[Finding, ...]
    may_roll: bool

    @property
    def breaks(self) -> bool:
        """Whether anything does."""
        return any(each.level is Level.BREAKS for each in self.findings)

    @property
    def is_sure(self) -> bool:
        """Whether all could be compared."""
        return not any(each.level is Level.UNKNOWN for each in self.findings)


def compare(
    old: TopologyFacts,
    new: TopologyFacts,
    counts: Mapping[str, int] | None = None,
    application_id: str | None = None,
) -> Comparison:
    """Compare two versions of a program.

    Args:
        old: what runs at present.
        new: what is to run instead.
        counts: the partition counts of the cluster's topics; None if it was not asked.
        application_id: which the topics of the cluster are called after.
    """
    findings = [*_settings(old, new), *compare_stores(old, new), *compare_topics(old, new)]
    if counts is not None and application_id is not None:
        findings += _on_cluster(new, counts, application_id)
    order = [Level.BREAKS, Level.UNKNOWN, Level.CHANGES, Level.STAYS]
    findings.sort(key=lambda each: order.index(each.level))
    return Comparison(tuple(findings), may_roll(old, new))


def _settings(old: TopologyFacts, new: TopologyFacts) -> Iterator[Finding]:
    was, is_ = old.application_id, new.application_id
    if was is not None and is_ is not None:
        if was == is_:
            yield Finding(Level.STAYS, "application", is_)
        else:
            what = f"was {was} and is {is_}: it begins with nothing of what {was} has"
            remedy = f"Leave the application_id as it was, {was!r}, unless that is the aim."
            yield Finding(Level.BREAKS, "application", is_, what, remedy)
    guarantees = (old.processing_guarantee, new.processing_guarantee)
    if None not in guarantees and guarantees[0] != guarantees[1]:
        what = f"works {guarantees[1]} instead of {guarantees[0]}"
        remedy = (
            "Who reads its outputs sees uncommitted records unless isolation.level says not to."
        )
        yield Finding(Level.CHANGES, "application", is_ or "", what, remedy)


def _on_cluster(
    new: TopologyFacts, counts: Mapping[str, int], application_id: str
) -> Iterator[Finding]:
    """Whether the new version finds the topics that it needs, with the partitions that it needs."""
    missing = [topic for topic in external_topics(new) if topic not in counts]
    for topic in missing:
        what = "the cluster does not have it: the new version does not start"
        yield Finding(Level.BREAKS, "cluster", topic, what, "millstream topics NEW --create")
    topics = _topics(new, application_id)
    if topics.external_source_topics - counts.keys() or any(
        part.patterns for part in new.subtopologies
    ):
        return
    try:
        internal = internal_counts(topics, counts)
    except (CopartitionError, TaskAssignmentError) as error:
        yield Finding(Level.BREAKS, "cluster", application_id, error.message)
        return
    for topic, needed in internal.items():
        there = counts.get(topic)
        if there is None:
            continue
        if there == needed:
            yield Finding(Level.STAYS, "cluster", topic, f"has the {needed} partitions it needs")
        else:
            what = f"has {there} partitions and needs {needed}: the new version does not start"
            remedy = "Reset the application, or give what stands behind the topic another name."
            yield Finding(Level.BREAKS, "cluster", topic, what, remedy)


def _topics(facts: TopologyFacts, application_id: str) -> TopologyTopics:
    """The topics under their names on the cluster, as the assignor knows them."""
    specs = {topic.name: topic for topic in facts.repartition_topics}
    stores = {store.name: store for store in facts.stores}

    def real(topic: str) -> str:
        return decorated(topic, application_id) if topic in specs else topic

    def group(part: SubtopologyFacts) -> TopicGroup:
        changelogs = {
            store.changelog
            if store.source_changelog
            else decorated(store.changelog, application_id): ChangelogSpec(
                {}, store.source_changelog
            )
            for store in map(stores.__getitem__, part.stores)
            if store.changelog is not None
        }
        return TopicGroup(
            part.id,
            tuple(map(real, part.sources)),
            tuple(map(real, part.sinks)),
            {
                real(topic): RepartitionSpec(specs[topic].partitions)
                for topic in part.sources
                if topic in specs
            },
            changelogs,
        )

    copartitioned = tuple(frozenset(map(real, each)) for each in facts.copartitioned)
    return TopologyTopics(tuple(map(group, facts.subtopologies)), copartitioned)
