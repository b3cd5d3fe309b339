"""What is to be reset: as it was told, and otherwise as the topology says."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from millstream.config import StreamsConfig
from millstream.runtime.topology_topics import topology_topics
from millstream.tools.reset.targets import Target
from millstream.tools.topics import INTERNAL, topics_of
from millstream.topology.physical.topology import Topology


@dataclass(frozen=True)
class Wanted:
    """What is to be reset.

    Args:
        input_topics: read from elsewhere; get the target.
        intermediate_topics: which the application writes and reads itself; what is in them is
            skipped, since it will be written again.
        target: where to read on.
        internal_topics: those to delete; None for all.
        known: the internal topics of the topology; None if there is none at hand.
        user_topics: what else the user reads and writes: never deleted, whatever it is called.
        with_state: whether the local state on this machine goes, too.
    """

    input_topics: tuple[str, ...]
    intermediate_topics: tuple[str, ...]
    target: Target
    internal_topics: tuple[str, ...] | None = None
    known: Collection[str] | None = None
    user_topics: Collection[str] = ()
    with_state: bool = True


def wanted_of(
    topology: Topology,
    config: StreamsConfig,
    matching: Callable[[re.Pattern[str]], Iterable[str]],
    target: Target,
    *,
    inputs: tuple[str, ...] | None = None,
    passed: tuple[str, ...] | None = None,
    internal: tuple[str, ...] | None = None,
) -> Wanted:
    """What to reset of the application of a topology.

    Args:
        topology: what it computes.
        config: its settings.
        matching: the topics of the cluster that match a pattern.
        target: where to read on.
        inputs: the input topics, if they were told.
        passed: the intermediate topics, if they were told.
        internal: the internal topics to delete, if they were told.
    """
    topics = topology_topics(topology, config)
    patterns = [pattern for group in topics.groups for pattern in group.source_patterns]
    if patterns:
        topics = topics.with_matches(topic for each in patterns for topic in matching(each))
    uses = topics_of(topology, config)
    # What is the user's in any of its roles is the user's.
    known = {use.name for use in uses if INTERNAL.issuperset(use.roles)}
    users = {use.name for use in uses} - known
    written = {topic for group in topics.groups for topic in group.sink_topics}
    # A pattern may match what the application has made for itself.
    read = sorted(topics.external_source_topics - known)
    users.update(read)
    if inputs is None:
        inputs = tuple(topic for topic in read if topic not in {*written, *(passed or ())})
    if passed is None:
        passed = tuple(topic for topic in read if topic in written and topic not in inputs)
    return Wanted(inputs, passed, target, internal, known, users)
