"""Topics and sub-topologies of two versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millstream.tools.facts import RepartitionFacts, SubtopologyFacts, TopologyFacts, outside
from millstream.tools.upgrade.findings import Finding, Level
from millstream.tools.upgrade.formats import compare_formats, same_origin

_REPARTITION: Final = "repartition topic"
_DRAIN: Final = (
    "Let the old version finish first: stop what writes its input, wait until `millstream lag` "
    "shows 0 everywhere, close all instances, and then start the new one."
)


def compare_topics(old: TopologyFacts, new: TopologyFacts) -> Iterator[Finding]:
    """What becomes of repartition topics, inputs and outputs."""
    yield from _repartition_topics(old, new)
    yield from _inputs(old, new)
    yield from _outputs(old, new)
    yield from _subtopologies(old, new)


def may_roll(old: TopologyFacts, new: TopologyFacts) -> bool:
    """Whether instances of both may run side by side: whether they read the same topics in the
    same sub-topologies, and write to the same internal ones, of as many partitions."""
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


def _repartition_topics(old: TopologyFacts, new: TopologyFacts) -> Iterator[Finding]:
    before = {topic.name: topic for topic in old.repartition_topics}
    after = {topic.name: topic for topic in new.repartition_topics}
    for name, topic in before.items():
        if name in after:
            yield from _same_topic(topic, after[name])
        else:
            hint = "" if not topic.generated else " Its name was generated: give it one (name=...)."
            what = "is not there any more: what is in it and not processed yet never is"
            yield Finding(Level.BREAKS, _REPARTITION, name, what, _DRAIN + hint)
    for name in after.keys() - before.keys():
        what = "is new: the application creates it"
        yield Finding(Level.CHANGES, _REPARTITION, name, what)


def _same_topic(old: RepartitionFacts, new: RepartitionFacts) -> Iterator[Finding]:
    found = [*compare_formats(_REPARTITION, old, new, _DRAIN), *same_origin(_REPARTITION, old, new)]
    if old.partitions != new.partitions:
        was_count, is_count = (each.partitions or "as many as the input" for each in (old, new))
        what = f"has {was_count} partitions and would have {is_count}: the new one does not start"
        remedy = f"{_DRAIN} Delete the topic in between, or give it another name."
        # What follows from the input may be the same number.
        surely = old.partitions is not None and new.partitions is not None
        level = Level.BREAKS if surely else Level.UNKNOWN
        if not surely:
            what = f"has {was_count} partitions and would have {is_count}, which must be equal"
        found.append(Finding(level, _REPARTITION, old.name, what, remedy))
    yield from found or [Finding(Level.STAYS, _REPARTITION, old.name)]


def _inputs(old: TopologyFacts, new: TopologyFacts) -> Iterator[Finding]:
    before, after = _read(old), _read(new)
    for topic in before:
        if topic in after:
            yield Finding(Level.STAYS, "input", topic)
        else:
            what = "is not read any more; the group's offsets of it stay for as long as Kafka keeps"
            yield Finding(Level.CHANGES, "input", topic, what)
    for topic in after:
        if topic not in before:
            what = "is new: it is read from where auto.offset.reset says, the beginning by default"
            yield Finding(Level.CHANGES, "input", topic, what, "It must be there at the start.")


def _read(facts: TopologyFacts) -> list[str]:
    read = [topic for part in facts.subtopologies for topic in (*part.sources, *part.patterns)]
    return outside(facts, [*read, *facts.global_topics])


def _outputs(old: TopologyFacts, new: TopologyFacts) -> Iterator[Finding]:
    before, after = _written(old), _written(new)
    for topic in before:
        if topic in after:
            yield Finding(Level.STAYS, "output", topic)
        else:
            what = "is not written any more"
            yield Finding(Level.CHANGES, "output", topic, what, "Look who reads it.")
    for topic in after:
        if topic not in before:
            what, remedy = "is new", "It must be there at the start."
            yield Finding(Level.CHANGES, "output", topic, what, remedy)


def _written(facts: TopologyFacts) -> list[str]:
    return outside(facts, [topic for part in facts.subtopologies for topic in part.sinks])


def _subtopologies(old: TopologyFacts, new: TopologyFacts) -> Iterator[Finding]:
    """The numbers, which are the first part of the names of tasks."""
    after = {topic: part.id for part in new.subtopologies for topic in part.sources}
    numbers = {part.id for part in new.subtopologies}
    for part in old.subtopologies:
        now = {after[topic] for topic in part.sources if topic in after}
        if now == {part.id} or (not part.sources and part.id in numbers):
            yield Finding(Level.STAYS, "sub-topology", str(part.id))
        elif now:
            numbers_now = " and ".join(map(str, sorted(now)))
            what = f"is {numbers_now} now: its tasks have other names"
            yield Finding(Level.CHANGES, "sub-topology", _told(part), what)
        else:
            what = "is not there any more"
            yield Finding(Level.CHANGES, "sub-topology", _told(part), what)


def _told(part: SubtopologyFacts) -> str:
    sources = ", ".join((*part.sources, *part.patterns))
    return f"{part.id} ({sources})" if sources else str(part.id)
