"""The high-availability task assignor: tasks do not wait for restoration.

Source of the semantics: Kafka Streams' `HighAvailabilityTaskAssignor` (KIP-441). First, tasks and
standbys are spread evenly, ignoring the previous assignment: this is the ideal assignment. If the
ideal owner of a task would have to restore much state, a caught-up process keeps the task for now,
and the ideal owner gets a warm-up replica. From time to time, a probing rebalance checks whether
the ideal owner has caught up. Racks may be taken into account in the ideal assignment
(`rack_aware`), before the previous state is considered.
"""

from __future__ import annotations

import heapq
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from millstream.assignment.placement.client_load import (
    UNKNOWN_LAG,
    ClientLoad,
    LeastLoaded,
    Role,
    balance_over_threads,
    load_of,
    place_standbys,
)
from millstream.assignment.placement.task_lags import TaskLags
from millstream.assignment.racks.rack_aware import STATELESS, Costs, RackAwareness, rack_awareness
from millstream.assignment.task_assignor import ApplicationState, ProcessAssignment
from millstream.assignment.wire_format import LATEST_OFFSET
from millstream.java_priority_queue import JavaPriorityQueue
from millstream.record import TaskId

#: The default costs, with which a task is moved even if this avoids reading only one partition from
#: another rack.
_TRAFFIC_COST = 10
_NON_OVERLAP_COST = 1


def assign_high_availability(state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
    """Assign tasks to processes that can run them immediately; move them by warm-ups.

    Equal states give equal results.

    Example:
        >>> import uuid
        >>> old, new = uuid.UUID(int=1), uuid.UUID(int=2)
        >>> task_id = TaskId(0, 0)
        >>> task = TaskInfo(frozenset({TopicPartition("clicks", 0)}), is_stateful=True)
        >>> processes = {
        ...     old: ProcessState(threads=1, lags={task_id: 0}),
        ...     new: ProcessState(threads=1, lags={task_id: 5_000_000}),
        ... }
        >>> given = assign_high_availability(ApplicationState({task_id: task}, processes))
        >>> given[old].active == {task_id}
        True
    """
    clients = [ClientLoad(process_id, state.processes[process_id]) for process_id in state.order]
    if not clients:
        return {}
    stateful = [task_id for task_id, info in state.tasks.items() if info.is_stateful]
    racks = rack_awareness(state)
    for task_id, client in zip(stateful, cycle(clients), strict=False):
        client.active.add(task_id)
    balance_over_threads(clients, "active")
    if racks:
        racks.optimize_active(stateful, clients, _costs(state))
    _place_standbys(stateful, clients, state, racks)
    movements = _TaskMovements(clients, state)
    waiting = movements.move_actives() + movements.move_standbys()
    stateless = [task_id for task_id, info in state.tasks.items() if not info.is_stateful]
    by_active_load = LeastLoaded(enumerate(clients), lambda client: client.active_load)
    for task_id in stateless:
        lightest = by_active_load.first()
        assert lightest is not None
        lightest.active.add(task_id)
    if racks:
        racks.optimize_active(stateless, clients, STATELESS)
    given = {client.process_id: client.assignment for client in clients}
    if waiting:
        requester = state.leader if state.leader in given else clients[0].process_id
        due_ms = state.now_ms + state.config.probing_rebalance_interval_ms
        given[requester] = replace(given[requester], follow_up_ms=due_ms)
    return given


def _costs(state: ApplicationState) -> Costs:
    traffic = state.config.rack_aware_traffic_cost
    non_overlap = state.config.rack_aware_non_overlap_cost
    return Costs(
        _TRAFFIC_COST if traffic is None else traffic,
        _NON_OVERLAP_COST if non_overlap is None else non_overlap,
    )


def _place_standbys(
    stateful: Sequence[TaskId],
    clients: Sequence[ClientLoad],
    state: ApplicationState,
    racks: RackAwareness | None,
) -> None:
    replicas = state.config.num_standby_replicas
    if not replicas:
        return
    missing = dict.fromkeys(stateful, replicas)
    tags = state.config.rack_aware_assignment_tags
    if tags:
        missing = place_standbys_by_tags(clients, missing, tags)
    place_standbys(clients, missing, replicas)
    balance_over_threads(
        clients, "standby", lambda source, to: not tags or may_move_standby(source, to)
    )
    if racks:
        racks.optimize_standby(
            clients,
            _costs(state),
            lambda source, to, task_id: (
                not tags or keeps_copies_apart(source, to, task_id, clients)
            ),
        )


@dataclass(frozen=True)
class _TaskMovement:
    """A task that is not on its ideal process yet."""

    task_id: TaskId
    #: The ideal process, which lacks too much of the state.
    destination: ClientLoad
    #: The number of processes that could take over the task.
    caught_up: int


def _fewest_caught_up(movement: _TaskMovement) -> tuple[int, int, int]:
    return (movement.caught_up, *movement.task_id)


class _TaskMovements:
    """Keeps tasks on processes with their state.

    Warm-up replicas are placed on the ideal processes.
    """

    def __init__(self, clients: Sequence[ClientLoad], state: ApplicationState) -> None:
        self._clients = clients
        self._warmups_left = state.config.max_warmup_replicas
        self._warmups: set[tuple[uuid.UUID, TaskId]] = set()
        self._caught_up_clients = CaughtUpClients(clients, state.config.acceptable_recovery_lag)

    def move_actives(self) -> int:
        """Keep active tasks on processes with their state.

        Returns the number of these tasks.
        """
        movements = self._required("active")
        for movement in movements:
            self._move_active(movement.task_id, movement.destination)
        return len(movements)

    def move_standbys(self) -> int:
        """Keep standbys on the processes with their state; return their number."""
        return sum(
            self._move_standby(movement.task_id, movement.destination)
            for movement in self._required("standby")
        )

    def _move_active(self, task_id: TaskId, destination: ClientLoad) -> None:
        source = (
            self._least_loaded_caught_up(task_id, lambda client: task_id in client.standby)
            or self._least_loaded_caught_up(task_id, lambda client: True)
            or self._more_caught_up(task_id, destination, lambda client: True)
        )
        assert source is not None, "a task only moves if another process has less lag"
        swaps = task_id in source.standby
        source.standby.discard(task_id)
        source.active.add(task_id)
        destination.active.remove(task_id)
        if swaps:
            destination.standby.add(task_id)
        elif self._take_warmup():
            destination.standby.add(task_id)
            self._warmups.add((destination.process_id, task_id))

    def _move_standby(self, task_id: TaskId, destination: ClientLoad) -> bool:
        source = self._least_loaded_caught_up(
            task_id, lambda client: not client.has(task_id)
        ) or self._more_caught_up(task_id, destination, lambda client: not client.has(task_id))
        if source is None:
            return False
        source.standby.add(task_id)
        if not self._take_warmup():
            destination.standby.remove(task_id)
        return True

    def _required(self, role: Role) -> list[_TaskMovement]:
        """Return the tasks of a role for which another process has more state.

        They are ordered by the number of caught-up processes. The standbys of one task are equal in
        this order, but their order matters if the warm-up replicas do not suffice for all of them.
        """
        caught_up_clients = self._caught_up_clients
        found: list[_TaskMovement] = []
        for client in self._clients:
            for task_id in sorted(client.tasks(role)):
                lag = client.lag(task_id)
                if (
                    not caught_up_clients.is_acceptable(lag)
                    and (client.process_id, task_id) not in self._warmups
                    and caught_up_clients.min_lag(task_id) < lag
                ):
                    found.append(
                        _TaskMovement(task_id, client, len(caught_up_clients.caught_up(task_id)))
                    )
        if len({movement.task_id for movement in found}) == len(found):
            # No two are equal, so the order does not depend on the queue, and sorting is faster.
            return sorted(found, key=_fewest_caught_up)
        needed = JavaPriorityQueue[_TaskMovement](_fewest_caught_up)
        for movement in found:
            needed.offer(movement)
        return [needed.poll() for _ in range(len(needed))]

    def _least_loaded_caught_up(
        self, task_id: TaskId, fits: Callable[[ClientLoad], bool]
    ) -> ClientLoad | None:
        fitting = filter(fits, self._caught_up_clients.caught_up(task_id))
        return min(fitting, key=load_of, default=None)

    def _more_caught_up(
        self, task_id: TaskId, destination: ClientLoad, fits: Callable[[ClientLoad], bool]
    ) -> ClientLoad | None:
        """Return the fitting client with the smallest lag.

        Returns None if no fitting client is ahead of the destination.
        """
        return next(filter(fits, self._caught_up_clients.ahead_of(destination, task_id)), None)

    def _take_warmup(self) -> bool:
        """Return whether one more warm-up replica is allowed, and count it."""
        if self._warmups_left <= 0:
            return False
        self._warmups_left -= 1
        return True


class CaughtUpClients:
    """Finds the clients with the state of a task among many without it.

    Stores the few clients that reported a position of a task; all others are equivalent. `clients`
    are ordered by process id. A client is caught up if it has at most `acceptable_lag` changelog
    records to restore.
    """

    def __init__(self, clients: Sequence[ClientLoad], acceptable_lag: int) -> None:
        self._clients = clients
        self._acceptable_lag = acceptable_lag
        lags = [client.process.lags for client in clients]
        sparse = [each for each in lags if isinstance(each, TaskLags)]
        self._lags_of_others: Mapping[TaskId, int] = {}
        reported: Sequence[Iterable[TaskId]] = lags
        if len(sparse) == len(lags) and all(each.ends is sparse[0].ends for each in sparse):
            self._lags_of_others = sparse[0].ends
            reported = [each.reported for each in sparse]
        #: The numbers of the clients that reported a position, in order.
        self._reporters: dict[TaskId, list[int]] = {}
        for number, task_ids in enumerate(reported):
            for task_id in task_ids:
                self._reporters.setdefault(task_id, []).append(number)

    def is_acceptable(self, lag: int) -> bool:
        """Return whether a client with this lag runs the task or could take it over."""
        return 0 <= lag <= self._acceptable_lag or lag == LATEST_OFFSET

    def caught_up(self, task_id: TaskId) -> list[ClientLoad]:
        """Return the clients that are caught up, in order."""
        clients, is_acceptable = self._clients, self.is_acceptable
        if not is_acceptable(self._lag_of_others(task_id)):
            clients = [clients[number] for number in self._reporters_of(task_id)]
        return [client for client in clients if is_acceptable(client.lag(task_id))]

    def min_lag(self, task_id: TaskId) -> int:
        numbers, clients = self._reporters_of(task_id), self._clients
        lags = [clients[number].lag(task_id) for number in numbers]
        if len(numbers) < len(clients):
            lags.append(self._lag_of_others(task_id))
        return min(lags)

    def ahead_of(self, client: ClientLoad, task_id: TaskId) -> Iterator[ClientLoad]:
        """Yield the clients that precede `client`, ordered by lag and then by number."""
        reported = self._reporters_of(task_id)
        reporters = set(reported)
        known = sorted((self._clients[number].lag(task_id), number) for number in reported)
        lag = self._lag_of_others(task_id)
        others = ((lag, number) for number in range(len(self._clients)) if number not in reporters)
        for _, number in heapq.merge(known, others):
            if self._clients[number] is client:
                return
            yield self._clients[number]

    def _reporters_of(self, task_id: TaskId) -> Sequence[int]:
        return self._reporters.get(task_id, ())

    def _lag_of_others(self, task_id: TaskId) -> int:
        return self._lags_of_others.get(task_id, UNKNOWN_LAG)


log = logging.getLogger(__name__)


def place_standbys_by_tags(
    clients: Sequence[ClientLoad], missing: Mapping[TaskId, int], tag_keys: Sequence[str]
) -> dict[TaskId, int]:
    """Assign standbys to clients that share no tag with the task's other replicas.

    Follows Kafka Streams' `ClientTagAwareStandbyTaskAssignor` (KIP-708). A tag is ignored once a
    task has as many replicas as the tag has values. Returns the number of standbys that each task
    still lacks because no suitable client was left, in the order in which Kafka Streams continues
    with them.
    """
    values = {
        key: {
            client.process.client_tags[key]
            for client in clients
            if key in client.process.client_tags
        }
        for key in tag_keys
    }
    by_tags = _clients_by_tags(clients, tag_keys)
    owners = {task_id: client for client in clients for task_id in client.active}
    left: dict[TaskId, int] = {}
    for task_id, count in missing.items():
        used = _UsedTags(values)
        if task_id in owners:
            used.add_client(owners[task_id])
        placed = 0
        while (
            placed < count and (client := _client_with_new_tags(task_id, by_tags, used)) is not None
        ):
            client.standby.add(task_id)
            used.add_client(client)
            placed += 1
        if placed < count:
            left[task_id] = count - placed
    if left:
        log.warning(
            "no instance with different tags %s is left for the standbys of %d tasks, including "
            "%s; the remaining standbys are assigned to the least loaded instances",
            ", ".join(tag_keys),
            len(left),
            next(iter(left)),
        )
    return {task_id: left[task_id] for task_id in _in_hash_order(missing) if task_id in left}


def _in_hash_order(tasks: Collection[TaskId]) -> list[TaskId]:
    """Return tasks in the order in which a Java `HashMap` with these keys iterates.

    The first task gets the least loaded client. If the leader changes between a Java and a Python
    process, a different order would move standbys.
    """
    buckets = 16
    while len(tasks) * 4 > buckets * 3:
        buckets *= 2
    return sorted(tasks, key=lambda task_id: _java_hash(task_id) & (buckets - 1))


def _java_hash(task_id: TaskId) -> int:
    """Return `Objects.hash(subtopology, partition, null)` as a `HashMap` spreads it."""
    code = 31 * (31 * (31 + task_id.subtopology) + task_id.partition) & 0xFFFFFFFF
    return code ^ code >> 16


class _UsedTags:
    """The tags that further replicas of a task must not share.

    `values` contains all values of each tag in the group.
    """

    def __init__(self, values: Mapping[str, set[str]]) -> None:
        self._values = values
        self._used: set[tuple[str, str]] = set()
        self._clients = 0

    def add_client(self, client: ClientLoad) -> None:
        """Add the tags of a client that got the task."""
        self._clients += 1
        for key, value in client.process.client_tags.items():
            if key not in self._values:
                continue
            if len(self._values[key]) <= self._clients:
                # Every value is used: from now on the tag is ignored.
                self._used = {tag for tag in self._used if tag[0] != key}
            else:
                self._used.add((key, value))

    def is_disjoint_from(self, tags: frozenset[tuple[str, str]]) -> bool:
        return self._used.isdisjoint(tags)


_ClientsByTags = Mapping[frozenset[tuple[str, str]], LeastLoaded[ClientLoad]]


def _clients_by_tags(clients: Sequence[ClientLoad], tag_keys: Sequence[str]) -> _ClientsByTags:
    """Group the clients by their relevant tags, of which there are few combinations."""
    by_kind: dict[frozenset[tuple[str, str]], list[tuple[int, ClientLoad]]] = {}
    for order, client in enumerate(clients):
        tags = client.process.client_tags
        kind = frozenset((key, tags[key]) for key in tag_keys if key in tags)
        by_kind.setdefault(kind, []).append((order, client))
    return {kind: LeastLoaded(each, load_of) for kind, each in by_kind.items()}


def _client_with_new_tags(
    task_id: TaskId, by_tags: _ClientsByTags, used: _UsedTags
) -> ClientLoad | None:
    """Return the least loaded client that has neither the task nor a used tag."""
    ranks = (
        each.rank(lambda client: not client.has(task_id))
        for tags, each in by_tags.items()
        if used.is_disjoint_from(tags)
    )
    best = min(filter(None, ranks), default=None)
    return None if best is None else best[2]


def may_move_standby(source: ClientLoad, to: ClientLoad) -> bool:
    """Return whether a move would preserve the tags of a standby."""
    tags = to.process.client_tags
    return all(tags.get(key) == value for key, value in source.process.client_tags.items())


def keeps_copies_apart(
    source: ClientLoad, to: ClientLoad, task_id: TaskId, clients: Iterable[ClientLoad]
) -> bool:
    """Return whether a move would not reduce the number of different tags of a task."""
    others = {
        tag
        for client in clients
        if client is not source and client is not to and client.has(task_id)
        for tag in client.process.client_tags.items()
    }
    there = others.union(to.process.client_tags.items())
    return len(there) >= len(others.union(source.process.client_tags.items()))
