"""The high-availability task assignor: no task waits for state that another process has at hand.

Source of the semantics: Kafka Streams' `HighAvailabilityTaskAssignor` (KIP-441). First comes the
ideal: tasks and standbys spread evenly, history left aside. Where the ideal owner of a task would
have to restore much, one that is caught up keeps the task for now, and the ideal owner gets a
warm-up copy. From time to time a probing rebalance looks whether that has caught up. The ideal may
take racks into account (`rack_aware`), and what is done about history then follows from it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from millstream.assignment.placing.client_load import (
    ClientLoad,
    Role,
    balance_over_threads,
    least_loaded,
    place_standbys,
)
from millstream.assignment.placing.least_loaded import LeastLoaded
from millstream.assignment.placing.standby_tags import (
    keeps_copies_apart,
    may_move_standby,
    place_standbys_by_tags,
)
from millstream.assignment.placing.state_at_hand import StateAtHand
from millstream.assignment.racks.rack_aware import STATELESS, Costs, RackAwareness, rack_awareness
from millstream.assignment.task_assignor import ApplicationState, ProcessAssignment
from millstream.java_priority_queue import JavaPriorityQueue
from millstream.record import TaskId

#: By default moving a task is worth it for one partition that need not come from another rack.
_TRAFFIC_COST = 10
_NON_OVERLAP_COST = 1


def assign_high_availability(state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
    """Give each task to a process that can go on with it at once, and move it by warm-up copies.

    Equal states have equal results.

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
    _deal_out(stateful, clients)
    if racks:
        racks.optimize_active(stateful, clients, _costs(state))
    _place_standbys(stateful, clients, state, racks)
    movements = _Movements(clients, state)
    waiting = movements.of_actives() + movements.of_standbys()
    stateless = [task_id for task_id, info in state.tasks.items() if not info.is_stateful]
    by_active_load = LeastLoaded(enumerate(clients), lambda client: client.active_load)
    for task_id in stateless:
        client = by_active_load.first()
        assert client is not None
        client.active.add(task_id)
    if racks:
        racks.optimize_active(stateless, clients, STATELESS)
    given = {client.process_id: client.given for client in clients}
    if waiting:
        asks = state.leader if state.leader in given else clients[0].process_id
        due_ms = state.now_ms + state.config.probing_rebalance_interval_ms
        given[asks] = replace(given[asks], follow_up_ms=due_ms)
    return given


def _costs(state: ApplicationState) -> Costs:
    traffic = state.config.rack_aware_traffic_cost
    non_overlap = state.config.rack_aware_non_overlap_cost
    return Costs(
        _TRAFFIC_COST if traffic is None else traffic,
        _NON_OVERLAP_COST if non_overlap is None else non_overlap,
    )


def _deal_out(stateful: Sequence[TaskId], clients: Sequence[ClientLoad]) -> None:
    for task_id, client in zip(stateful, cycle(clients), strict=False):
        client.active.add(task_id)
    balance_over_threads(clients, "active")


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
class _Movement:
    """A task that is not where it should be in the end.

    Args:
        task_id: the task.
        destination: where it should be, without enough of its state.
        caught_up: how many could go on with it.
    """

    task_id: TaskId
    destination: ClientLoad
    caught_up: int


def _fewest_caught_up(movement: _Movement) -> tuple[int, int, int]:
    return (movement.caught_up, *movement.task_id)


class _Movements:
    """Puts tasks where their state is, and warm-up copies where they should be in the end."""

    def __init__(self, clients: Sequence[ClientLoad], state: ApplicationState) -> None:
        self._clients = clients
        self._warmups_left = state.config.max_warmup_replicas
        self._warmups: set[tuple[uuid.UUID, TaskId]] = set()
        self._at_hand = StateAtHand(clients, state.config.acceptable_recovery_lag)

    def of_actives(self) -> int:
        """Let active tasks wait where their state is; how many do."""
        movements = self._needed("active")
        for movement in movements:
            self._move_active(movement.task_id, movement.destination)
        return len(movements)

    def of_standbys(self) -> int:
        """Let standbys stay where their state is; how many do."""
        return sum(
            self._move_standby(movement.task_id, movement.destination)
            for movement in self._needed("standby")
        )

    def _move_active(self, task_id: TaskId, destination: ClientLoad) -> None:
        source = (
            self._least_loaded_caught_up(task_id, lambda client: task_id in client.standby)
            or self._least_loaded_caught_up(task_id, lambda client: True)
            or self._more_caught_up(task_id, destination, lambda client: True)
        )
        assert source is not None, "someone has less lag, or the task need not move"
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

    def _needed(self, role: Role) -> list[_Movement]:
        """The tasks of that role which someone else has more of the state of.

        First those that the fewest processes could go on with. Standbys of one task are equal in
        that; which of them comes first matters where warm-ups run out in between.
        """
        at_hand = self._at_hand
        found: list[_Movement] = []
        for client in self._clients:
            for task_id in sorted(client.tasks(role)):
                lag = client.lag(task_id)
                if (
                    not at_hand.is_little(lag)
                    and (client.process_id, task_id) not in self._warmups
                    and at_hand.least_lag(task_id) < lag
                ):
                    found.append(_Movement(task_id, client, len(at_hand.caught_up(task_id))))
        if len({movement.task_id for movement in found}) == len(found):
            # No two are equal, so that every queue has the same order, and a sort is quicker.
            return sorted(found, key=_fewest_caught_up)
        needed = JavaPriorityQueue[_Movement](_fewest_caught_up)
        for movement in found:
            needed.offer(movement)
        return [needed.poll() for _ in range(len(needed))]

    def _least_loaded_caught_up(
        self, task_id: TaskId, fits: Callable[[ClientLoad], bool]
    ) -> ClientLoad | None:
        return least_loaded(filter(fits, self._at_hand.caught_up(task_id)))

    def _more_caught_up(
        self, task_id: TaskId, destination: ClientLoad, fits: Callable[[ClientLoad], bool]
    ) -> ClientLoad | None:
        """The one with the least lag of those that have less than the destination."""
        return next(filter(fits, self._at_hand.ahead_of(destination, task_id)), None)

    def _take_warmup(self) -> bool:
        """Whether one more copy may warm up; if so it counts."""
        if self._warmups_left <= 0:
            return False
        self._warmups_left -= 1
        return True
