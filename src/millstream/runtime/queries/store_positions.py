"""The input positions that the stores of a running task reflect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.runtime.states.thread_states import TaskState
from millstream.runtime.task.steps import parents_of
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.queries.requests.position import Position
from millstream.topology.operations.aggregations import SessionAggregation, WindowedAggregation
from millstream.topology.operations.joins import StreamStreamJoin, StreamTableJoin
from millstream.topology.operations.operation import ConcurrentOperation, Operation
from millstream.topology.operations.tables import TableSuppress
from millstream.topology.physical.nodes import ProcessorNode, SourceNode
from millstream.topology.physical.subtopology import SubTopology


@dataclass(frozen=True)
class Upstream:
    """The part of a sub-topology that is upstream of a store.

    Args:
        topics: the real names of the topics whose records reach the store, except for topics that
            match patterns.
        has_concurrent_operator: whether an upstream operator is concurrent, so that only committed
            records are certain to have reached the store.
        holds_back_records: whether an upstream node holds back records beyond the next commit, so
            that even committed records may not have reached the store.
        read_by_name: topics that match a pattern but are read by name by another source of the
            topology.
    """

    topics: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    stores: frozenset[str]
    is_logged: bool
    has_concurrent_operator: bool = False
    holds_back_records: bool = False
    read_by_name: frozenset[str] = frozenset()

    def reads(self, topic: str) -> bool:
        if topic in self.topics:
            return True
        return topic not in self.read_by_name and _matches(self.patterns, topic)


#: The value for stores without an upstream.
NO_UPSTREAM: Final = Upstream(frozenset(), (), frozenset(), is_logged=True)


def upstream_of_stores(
    subtopologies: Sequence[SubTopology], application_id: str
) -> dict[int, dict[str, Upstream]]:
    """Return the upstream of each store, by sub-topology id and store name."""
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


def store_position(
    task: StreamTask, upstream: Upstream, store: str, *, skip_cache: bool
) -> Position:
    """Return the input position that a store of a task reflects.

    With `skip_cache`, the query ignores the store's own cache, so the position does not include
    changes that are only in this cache.

    The results of a finished record are in the task's stores or in the caches of these stores. A
    store downstream of a cache receives the cached results when a commit flushes the cache, so the
    store reflects the committed offsets. Nodes that hold back records may forward them even later.
    The position is therefore unknown for stores downstream of such nodes. It is also unknown for
    stores of tasks that are not running, because these stores follow their changelogs.

    Kafka Streams records the position with each put. Millstream derives the position from the
    task's offsets, so records that did not change the store count as well.
    """
    if task.state is not TaskState.RUNNING or upstream.holds_back_records:
        return Position()
    cached = task.stores.caches()
    behind_cache = not cached.keys().isdisjoint(upstream.stores) or (skip_cache and store in cached)
    is_late = behind_cache or upstream.has_concurrent_operator
    offsets: dict[str, dict[int, int]] = {}
    for partition, queue in task.processing.group.queues.items():
        if not upstream.reads(partition.topic):
            continue
        began, read = queue.committed_offset, queue.next_offset()
        committed = task.committed.get(partition)
        next_offset = committed if is_late or read is None else read
        if next_offset is None and not is_late:
            continue
        if next_offset is None or (not upstream.is_logged and next_offset == began):
            continue
        if next_offset > 0:
            offsets.setdefault(partition.topic, {})[partition.partition] = next_offset - 1
    return Position(offsets)


def _upstream(
    part: SubTopology, store: str, application_id: str, by_name: frozenset[str]
) -> Upstream:
    parents = {node.name: parents_of(node) for node in part.nodes}
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
        any(isinstance(node.operation, ConcurrentOperation) for node in passed),
        any(_holds_back(node.operation) for node in passed),
        frozenset(topic for topic in by_name if _matches(patterns, topic)),
    )


def _matches(patterns: Iterable[re.Pattern[str]], topic: str) -> bool:
    return any(pattern.fullmatch(topic) for pattern in patterns)


def _holds_back(operation: Operation) -> bool:
    """Return whether records may be forwarded after the commit of their offsets."""
    match operation:
        case TableSuppress():
            return True
        case WindowedAggregation() | SessionAggregation():
            return operation.emit_final
        case StreamTableJoin():
            return operation.buffer is not None
        case StreamStreamJoin():
            return operation.side.keeps_unmatched
        case _:
            return False
