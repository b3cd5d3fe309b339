"""Comparing two versions of a program: topics, sub-topologies and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from millstream.assignment.topic_metadata import (
    ChangelogSpec,
    RepartitionSpec,
    TopicGroup,
    TopologyTopics,
)
from millstream.errors import CopartitionError, TaskAssignmentError
from millstream.tools.application_topics import internal_counts
from millstream.tools.topology_facts import (
    RepartitionFacts,
    SubtopologyFacts,
    TopologyFacts,
    external_only,
    external_topics,
)
from millstream.tools.upgrade.findings import (
    FindingLevel,
    UpgradeFinding,
    breaks,
    changes,
    compare_formats,
    compare_origins,
    stays,
)
from millstream.tools.upgrade.store_compatibility import compare_stores
from millstream.topology.physical.internal_topic_configs import decorated


class UpgradeComparison(NamedTuple):
    """The findings, most severe first, and whether a rolling upgrade is possible."""

    findings: tuple[UpgradeFinding, ...]
    can_roll: bool

    @property
    def breaks(self) -> bool:
        return any(each.level is FindingLevel.BREAKS for each in self.findings)

    @property
    def is_sure(self) -> bool:
        """Whether everything could be compared."""
        return not any(each.level is FindingLevel.UNKNOWN for each in self.findings)


def compare(
    old: TopologyFacts,
    new: TopologyFacts,
    counts: Mapping[str, int] | None = None,
    application_id: str | None = None,
) -> UpgradeComparison:
    """Compare two versions of a program.

    `counts` are the partition counts of the cluster's topics, or None; `application_id` is the
    prefix of internal topics on the cluster.
    """
    findings = [*_settings(old, new), *compare_stores(old, new), *compare_topics(old, new)]
    if counts is not None and application_id is not None:
        findings += _on_cluster(new, counts, application_id)
    order = [FindingLevel.BREAKS, FindingLevel.UNKNOWN, FindingLevel.CHANGES, FindingLevel.STAYS]
    findings.sort(key=lambda each: order.index(each.level))
    return UpgradeComparison(tuple(findings), can_roll(old, new))


def _settings(old: TopologyFacts, new: TopologyFacts) -> Iterator[UpgradeFinding]:
    was, is_ = old.application_id, new.application_id
    if was is not None and is_ is not None:
        if was == is_:
            yield stays("application", is_)
        else:
            what = f"was {was} and is {is_}: it starts without the state and offsets of {was}"
            remedy = f"Keep the application_id {was!r}, unless this is intended."
            yield breaks("application", is_, what, remedy)
    guarantees = (old.processing_guarantee, new.processing_guarantee)
    if None not in guarantees and guarantees[0] != guarantees[1]:
        what = f"the guarantee is {guarantees[1]} instead of {guarantees[0]}"
        remedy = (
            "Consumers of its outputs read uncommitted records unless they set isolation.level to "
            "read_committed."
        )
        yield changes("application", is_ or "", what, remedy)


def _on_cluster(
    new: TopologyFacts, counts: Mapping[str, int], application_id: str
) -> Iterator[UpgradeFinding]:
    """Check that the new version's topics exist and have the required partitions."""
    missing = [topic for topic in external_topics(new) if topic not in counts]
    for topic in missing:
        what = "does not exist on the cluster: the new version will not start"
        yield breaks("cluster", topic, what, "millstream topics NEW --create")
    topics = _topics(new, application_id)
    if topics.external_source_topics - counts.keys() or any(
        part.patterns for part in new.subtopologies
    ):
        return
    try:
        internal = internal_counts(topics, counts)
    except (CopartitionError, TaskAssignmentError) as error:
        yield breaks("cluster", application_id, error.message)
        return
    for topic, needed in internal.items():
        actual = counts.get(topic)
        if actual is None:
            continue
        if actual == needed:
            yield stays("cluster", topic, f"has the required {needed} partitions")
        else:
            what = f"has {actual} partitions but needs {needed}: the new version will not start"
            remedy = "Reset the application, or rename the operator or store of the topic."
            yield breaks("cluster", topic, what, remedy)


def _topics(facts: TopologyFacts, application_id: str) -> TopologyTopics:
    """Return the topics under their names on the cluster, for the assignor."""
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


_REPARTITION: Final = "repartition topic"
_DRAIN: Final = (
    "Let the old version finish first: stop the producers of its input, wait until `millstream "
    "lag` shows 0 everywhere, close all instances, and then start the new version."
)


def compare_topics(old: TopologyFacts, new: TopologyFacts) -> Iterator[UpgradeFinding]:
    """Yield findings about repartition topics, inputs, outputs and sub-topologies."""
    yield from _repartition_topics(old, new)
    removed = "is no longer read; Kafka keeps the group's offsets until they expire", ""
    added = "is new: reading starts according to auto.offset.reset, by default at the beginning"
    yield from _external("input", _read(old), _read(new), removed, added)
    removed = "is no longer written", "Check its consumers."
    yield from _external("output", _written(old), _written(new), removed, "is new")
    yield from _subtopologies(old, new)


def can_roll(old: TopologyFacts, new: TopologyFacts) -> bool:
    """Return whether instances of both versions can run side by side.

    They must read the same topics in the same sub-topologies, and write the same internal topics
    with the same partition counts.
    """
    return _group_view(old) == _group_view(new)


def _group_view(facts: TopologyFacts) -> object:
    internal = {topic.name for topic in facts.repartition_topics}
    partitions = {topic.name: topic.partitions for topic in facts.repartition_topics}
    changelogs = {store.name: store.changelog for store in facts.stores}
    return partitions, [
        (
            part.id,
            frozenset(part.sources),
            frozenset(part.patterns),
            internal.intersection(part.sinks),
            frozenset(changelogs.get(store) for store in part.stores),
        )
        for part in facts.subtopologies
    ]


def _repartition_topics(old: TopologyFacts, new: TopologyFacts) -> Iterator[UpgradeFinding]:
    before = {topic.name: topic for topic in old.repartition_topics}
    after = {topic.name: topic for topic in new.repartition_topics}
    for name, topic in before.items():
        if name in after:
            yield from _same_topic(topic, after[name])
        else:
            hint = "" if not topic.generated else " Its name was generated: set one (name=...)."
            what = "was removed: its unprocessed records are lost"
            yield breaks(_REPARTITION, name, what, _DRAIN + hint)
    for name in after.keys() - before.keys():
        what = "is new: the application creates it"
        yield changes(_REPARTITION, name, what)


def _same_topic(old: RepartitionFacts, new: RepartitionFacts) -> Iterator[UpgradeFinding]:
    found = [
        *compare_formats(_REPARTITION, old, new, _DRAIN),
        *compare_origins(_REPARTITION, old, new),
    ]
    if old.partitions != new.partitions:
        was_count, is_count = (each.partitions or "as many as the input" for each in (old, new))
        what = (
            f"has {was_count} partitions and would have {is_count}: the new version will not start"
        )
        remedy = f"{_DRAIN} Delete the topic before that, or rename it."
        # If one of the counts follows from the input, the two may be equal.
        both_set = old.partitions is not None and new.partitions is not None
        level = FindingLevel.BREAKS if both_set else FindingLevel.UNKNOWN
        if not both_set:
            what = f"has {was_count} partitions and would have {is_count}, which must be equal"
        found.append(UpgradeFinding(level, _REPARTITION, old.name, what, remedy))
    yield from found or [stays(_REPARTITION, old.name)]


def _external(
    kind: str, before: list[str], after: list[str], removed: tuple[str, str], added: str
) -> Iterator[UpgradeFinding]:
    for topic in before:
        yield stays(kind, topic) if topic in after else changes(kind, topic, *removed)
    for topic in after:
        if topic not in before:
            yield changes(kind, topic, added, "Create it before the start.")


def _read(facts: TopologyFacts) -> list[str]:
    read = [topic for part in facts.subtopologies for topic in (*part.sources, *part.patterns)]
    return external_only(facts, [*read, *facts.global_topics])


def _written(facts: TopologyFacts) -> list[str]:
    return external_only(facts, [topic for part in facts.subtopologies for topic in part.sinks])


def _subtopologies(old: TopologyFacts, new: TopologyFacts) -> Iterator[UpgradeFinding]:
    """Compare the numbers of sub-topologies, which are part of the names of tasks."""
    after = {topic: part.id for part in new.subtopologies for topic in part.sources}
    numbers = {part.id for part in new.subtopologies}
    for part in old.subtopologies:
        now = {after[topic] for topic in part.sources if topic in after}
        if now == {part.id} or (not part.sources and part.id in numbers):
            yield stays("sub-topology", str(part.id))
        elif now:
            numbers_now = " and ".join(map(str, sorted(now)))
            what = f"is now {numbers_now}: its tasks have other names"
            yield changes("sub-topology", _describe(part), what)
        else:
            yield changes("sub-topology", _describe(part), "was removed")


def _describe(part: SubtopologyFacts) -> str:
    sources = ", ".join((*part.sources, *part.patterns))
    return f"{part.id} ({sources})" if sources else str(part.id)
