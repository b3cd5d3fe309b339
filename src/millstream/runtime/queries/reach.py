"""How far the stores of a running task are, by what the task has read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.query.requests.position import Position
from millstream.runtime.states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.topology.operations.aggregations import SessionAggregation, WindowedAggregation
from millstream.topology.operations.joins import StreamStreamJoin, StreamTableJoin
from millstream.topology.operations.operation import ApartOperation, Operation
from millstream.topology.operations.tables import TableSuppress
from millstream.topology.physical.nodes import ProcessorNode, SourceNode
from millstream.topology.physical.subtopology import SubTopology


@dataclass(frozen=True)
class Upstream:
    """What lies in front of a store in its sub-topology.

    Args:
        topics: the real names of the topics from which records reach it, but for those that match
            a pattern.
        patterns: what the names of the others match.
        stores: the stores of nodes through which they come.
        is_logged: whether it comes back from a changelog.
        is_apart: whether a node works beside the loop, so that what was read may not be there yet,
            while what is committed is.
        is_held_back: whether a node keeps records for longer than until the next commit, so that
            not even those that are committed need be there.
        read_by_name: what looks as if it matched a pattern, but is read by name by some source of
            the topology.
    """

    topics: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    stores: frozenset[str]
    is_logged: bool
    is_apart: bool = False
    is_held_back: bool = False
    read_by_name: frozenset[str] = frozenset()

    def reads(self, topic: str) -> bool:
        """Whether records of a topic reach the store."""
        if topic in self.topics:
            return True
        return topic not in self.read_by_name and _matches(self.patterns, topic)


#: Of stores that nothing reaches.
NO_UPSTREAM: Final = Upstream(frozenset(), (), frozenset(), is_logged=True)


def upstream_of_stores(
    subtopologies: Sequence[SubTopology], application_id: str
) -> dict[int, dict[str, Upstream]]:
    """By sub-topology, what lies in front of each of its stores."""
    by_name = frozenset(
        part.decorate(topic, application_id)
        for part in subtopologies
        for node in part.nodes
        if isinstance(node, SourceNode)
        for topic in node.topics
    )
    return {
        part.id: {store: _upstream(part, store, application_id, by_name) for store in part.stores}
        for part in subtopologies
    }


def reached(task: StreamTask, upstream: Upstream, store: str, *, past_cache: bool) -> Position:
    """The input that a store of a task stands for.

    All that a running task has read and finished is in its stores, or in their caches. What lies
    behind a cache gets it when that is flushed, which a commit does: it stands for what was
    committed. What a node holds back until its time has come arrives after that; then, and of a
    store that follows its changelog, nothing is known.

    Kafka Streams notes the record at hand with each put; here, what was read and changed nothing in
    the store counts as well.

    Args:
        task: the task.
        upstream: what lies in front of the store.
        store: its name.
        past_cache: whether its own cache is left out.
    """
    if task.state is not TaskState.RUNNING or upstream.is_held_back:
        return Position()
    cached = task.stores.caches()
    behind_cache = not cached.keys().isdisjoint(upstream.stores) or (past_cache and store in cached)
    is_late = behind_cache or upstream.is_apart
    offsets: dict[str, dict[int, int]] = {}
    for place, queue in task.processing.group.queues.items():
        if not upstream.reads(place.topic):
            continue
        began, read = queue.committed_offset, queue.next_offset()
        committed = task.committed.get(place)
        following = committed if is_late or read is None else read
        if following is None and not is_late:
            continue
        if following is None or (not upstream.is_logged and following == began):
            continue
        if following > 0:
            offsets.setdefault(place.topic, {})[place.partition] = following - 1
    return Position(offsets)


def _upstream(
    part: SubTopology, store: str, application_id: str, by_name: frozenset[str]
) -> Upstream:
    parents: Mapping[str, Sequence[str]] = {
        node.name: () if isinstance(node, SourceNode) else node.parents for node in part.nodes
    }
    users = [n.name for n in part.nodes if isinstance(n, ProcessorNode) and store in n.stores]
    before: set[str] = set()
    waiting = [parent for user in users for parent in parents[user]]
    while waiting:
        name = waiting.pop()
        if name not in before:
            before.add(name)
            waiting += parents[name]
    sources = [n for n in part.nodes if isinstance(n, SourceNode) and n.name in before]
    passed = [n for n in part.nodes if isinstance(n, ProcessorNode) and n.name in before]
    stores = {each for node in passed for each in node.stores}
    patterns = tuple(node.pattern for node in sources if node.pattern is not None)
    return Upstream(
        frozenset(part.decorate(topic, application_id) for n in sources for topic in n.topics),
        patterns,
        frozenset(stores - {store}),
        store in part.changelogs,
        any(isinstance(node.operation, ApartOperation) for node in passed),
        any(_holds_back(node.operation) for node in passed),
        frozenset(topic for topic in by_name if _matches(patterns, topic)),
    )


def _matches(patterns: Iterable[re.Pattern[str]], topic: str) -> bool:
    return any(pattern.fullmatch(topic) for pattern in patterns)


def _holds_back(operation: Operation) -> bool:
    """Whether what goes in comes out when its time has come, which commits do not wait for."""
    match operation:
        case TableSuppress():
            return True
        case WindowedAggregation() | SessionAggregation():
            return operation.emit_final
        case StreamTableJoin():
            return operation.buffer is not None
        case StreamStreamJoin():
            return operation.side.keeps_unjoined
        case _:
            return False
