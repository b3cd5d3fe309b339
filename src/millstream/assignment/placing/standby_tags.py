"""Standbys apart from each other and from the active task, by the tags of the instances.

Source of the semantics: Kafka Streams' `ClientTagAwareStandbyTaskAssignor` (KIP-708).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from millstream.assignment.placing.client_load import ClientLoad
from millstream.assignment.placing.least_loaded import LeastLoaded
from millstream.record import TaskId

log = logging.getLogger(__name__)


def place_standbys_by_tags(
    clients: Sequence[ClientLoad], missing: Mapping[TaskId, int], tag_keys: Sequence[str]
) -> dict[TaskId, int]:
    """Give standbys to clients that share no tag with those that have the task already.

    A tag stops to matter with the client that makes a task be with as many as the tag has values.

    Args:
        clients: in the order of process ids.
        missing: how many standbys each task is to get.
        tag_keys: the tags that matter (`rack.aware.assignment.tags`).

    Returns:
        How many standbys each task still lacks, because no client was left that differs; in the
        order in which Kafka Streams goes on with them.
    """
    values = {
        key: {
            client.process.client_tags[key]
            for client in clients
            if key in client.process.client_tags
        }
        for key in tag_keys
    }
    alike = _alike(clients, tag_keys)
    owners = {task_id: client for client in clients for task_id in client.active}
    left: dict[TaskId, int] = {}
    for task_id, count in missing.items():
        taken = _TakenTags(values)
        if task_id in owners:
            taken.use(owners[task_id])
        placed = 0
        while placed < count and (client_apart := _apart(task_id, alike, taken)) is not None:
            client_apart.standby.add(task_id)
            taken.use(client_apart)
            placed += 1
        if placed < count:
            left[task_id] = count - placed
    if left:
        log.warning(
            "%d tasks, %s among them: no instance is left that differs in the tags %s from those "
            "which have it; their other standbys go to the least loaded ones",
            len(left),
            next(iter(left)),
            ", ".join(tag_keys),
        )
    return {task_id: left[task_id] for task_id in _in_hash_order(missing) if task_id in left}


def _in_hash_order(tasks: Collection[TaskId]) -> list[TaskId]:
    """The order in which Java goes through a `HashMap` of tasks, which are there in their order.

    Who comes first gets the least loaded client, and the leader may be Java's at one time and ours
    at another: with another order, standbys would move then.
    """
    buckets = 16
    while len(tasks) * 4 > buckets * 3:
        buckets *= 2
    return sorted(tasks, key=lambda task_id: _java_hash(task_id) & (buckets - 1))


def _java_hash(task_id: TaskId) -> int:
    """`Objects.hash(subtopology, partition, null)`, as a `HashMap` spreads it."""
    code = 31 * (31 * (31 + task_id.subtopology) + task_id.partition) & 0xFFFFFFFF
    return code ^ code >> 16


class _TakenTags:
    """The tags that a further copy of a task must not meet again.

    Args:
        values: all values that each tag has in the group.
    """

    def __init__(self, values: Mapping[str, set[str]]) -> None:
        self._values = values
        self._taken: set[tuple[str, str]] = set()
        self._clients = 0

    def use(self, client: ClientLoad) -> None:
        """A client has got the task."""
        self._clients += 1
        for key, value in client.process.client_tags.items():
            if key not in self._values:
                continue
            if len(self._values[key]) <= self._clients:
                # Every value has been met: from here on the tag tells nothing.
                self._taken = {tag for tag in self._taken if tag[0] != key}
            else:
                self._taken.add((key, value))

    def are_apart_from(self, tags: frozenset[tuple[str, str]]) -> bool:
        """Whether somebody's tags are none of them."""
        return self._taken.isdisjoint(tags)


_Alike = Mapping[frozenset[tuple[str, str]], LeastLoaded[ClientLoad]]


def _alike(clients: Sequence[ClientLoad], tag_keys: Sequence[str]) -> _Alike:
    """The clients by those of their tags that matter: few kinds of many clients."""
    places: dict[frozenset[tuple[str, str]], list[tuple[int, ClientLoad]]] = {}
    for place, client in enumerate(clients):
        tags = client.process.client_tags
        kind = frozenset((key, tags[key]) for key in tag_keys if key in tags)
        places.setdefault(kind, []).append((place, client))
    return {kind: LeastLoaded(each, lambda client: client.load) for kind, each in places.items()}


def _apart(task_id: TaskId, alike: _Alike, taken: _TakenTags) -> ClientLoad | None:
    """The least loaded client without the task that shares no tag with those which have it."""
    ranks = (
        each.rank(lambda client: not client.has(task_id))
        for tags, each in alike.items()
        if taken.are_apart_from(tags)
    )
    best = min(filter(None, ranks), default=None)
    return None if best is None else best[2]


def may_move_standby(source: ClientLoad, to: ClientLoad) -> bool:
    """Whether a standby would be just as far apart from the others there."""
    tags = to.process.client_tags
    return all(tags.get(key) == value for key, value in source.process.client_tags.items())


def keeps_copies_apart(
    source: ClientLoad, to: ClientLoad, task_id: TaskId, clients: Iterable[ClientLoad]
) -> bool:
    """Whether the copies of a task would have as many different tags with one of them elsewhere.

    Args:
        source: the client that has the copy.
        to: the client that would have it instead.
        task_id: the task.
        clients: all of them.
    """
    others = {
        tag
        for client in clients
        if client is not source and client is not to and client.has(task_id)
        for tag in client.process.client_tags.items()
    }
    there = others.union(to.process.client_tags.items())
    return len(there) >= len(others.union(source.process.client_tags.items()))
