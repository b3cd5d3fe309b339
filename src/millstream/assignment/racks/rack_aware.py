"""Tasks near the replicas of their partitions, by the racks of processes and brokers.

Source of the semantics: Kafka Streams' `RackAwareTaskAssignor` with its
`MinTrafficGraphConstructor` and `BalanceSubtopologyGraphConstructor` (KIP-925). A task assignor has
dealt out the tasks; now they are exchanged between processes, so that each keeps as many as it had
and the costs become as low as possible. A task costs for each of its partitions that has no replica
in the rack of its process, and for being moved.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, groupby
from typing import Final, NamedTuple, Protocol, TypeVar

from millstream.assignment.placing.client_load import Role
from millstream.assignment.racks.min_cost_flow import FlowGraph
from millstream.assignment.racks.rack_flow import exchange_between_racks, sorted_racks
from millstream.assignment.task_assignor import ApplicationState, ProcessState, process_order
from millstream.record import TaskId

log = logging.getLogger(__name__)

#: How many arcs of flow graphs are looked at in one rebalance at most: some ten seconds, less than
#: a session timeout. Kafka Streams knows no end, so that a large group might never settle.
_EFFORT: Final = 60_000_000
#: Active tasks, or standbys of two processes, for which it would be more than this are exchanged
#: between racks (`rack_flow`), which is as cheap: 1,000 active tasks of 100 processes in 0.3 s
#: instead of 11, the standbys of 10,000 tasks on 10 processes in 0.2 s instead of 14.
_EFFORT_OF: Final[Mapping[Role, int]] = {"active": 5_000_000, "standby": 20_000}

#: How often all arcs are looked at until one task has a better place, about.
_LOOKS: Final = 3

#: How often all pairs of processes may exchange standbys, as long as some are moved.
_STANDBY_ROUNDS: Final = 4


class Costs(NamedTuple):
    """What is to be kept low.

    Args:
        traffic: of a partition that is read from another rack.
        non_overlap: of a task that goes to another process than the one it was dealt out to.
    """

    traffic: int
    non_overlap: int


#: Of stateless tasks: moving them costs nothing.
STATELESS: Final = Costs(1, 0)


class Holder(Protocol):
    """A process and the tasks that were dealt out to it."""

    @property
    def process_id(self) -> uuid.UUID: ...

    @property
    def process(self) -> ProcessState: ...

    @property
    def active(self) -> set[TaskId]: ...

    @property
    def standby(self) -> set[TaskId]: ...


_Holder = TypeVar("_Holder", bound=Holder)


def rack_awareness(state: ApplicationState) -> RackAwareness | None:
    """What brings tasks near their partitions, or None where the settings do not ask for that or
    where too little is known of racks, which is logged."""
    strategy = state.config.rack_aware_assignment_strategy
    if strategy == "none":
        return None
    for process_id in state.order:
        if state.processes[process_id].rack is None:
            log.error(
                "rack.aware.assignment.strategy=%s has no effect: process %s has no client.rack, "
                "or not the same one in all threads. Set client.rack in every instance",
                strategy,
                process_id,
            )
            return None
    known = state.replica_racks
    for task_id, info in state.tasks.items():
        needed = info.partitions
        if state.config.num_standby_replicas:
            needed |= info.changelogs
        for partition in sorted(needed):
            if not known.get(partition):
                log.error(
                    "rack.aware.assignment.strategy=%s has no effect: the racks of the replicas of "
                    "%s, of task %s, are not known. Set broker.rack on every broker",
                    strategy,
                    partition,
                    task_id,
                )
                return None
    return RackAwareness(state)


class RackAwareness:
    """Exchanges tasks between processes. Equal states have equal results.

    Args:
        state: racks are known of all processes and of all partitions that matter.
    """

    def __init__(self, state: ApplicationState) -> None:
        self._racks = state.replica_racks
        self._tasks = state.tasks
        self._process_racks = {process.rack for process in state.processes.values()}
        self._away: dict[tuple[TaskId, Role], Mapping[str | None, int]] = {}
        self._effort = _EFFORT
        self._is_balanced = state.config.rack_aware_assignment_strategy == "balance_subtopology"

    def optimize_active(
        self, tasks: Iterable[TaskId], holders: Iterable[Holder], costs: Costs
    ) -> None:
        """Exchange active tasks until they cost as little as they can.

        Args:
            tasks: those that may be moved; each is active in one of the processes.
            holders: all processes.
            costs: what is to be kept low.
        """
        in_order = sorted(holders, key=lambda holder: process_order(holder.process_id))
        movable = sorted(tasks)
        if movable:
            moved = self._exchange("active", movable, in_order, costs, balanced=self._is_balanced)
            log.info("%d of %d active tasks were moved nearer to their racks", moved, len(movable))

    def optimize_standby(
        self,
        holders: Iterable[_Holder],
        costs: Costs,
        may_move: Callable[[_Holder, _Holder, TaskId], bool] = lambda source, to, task_id: True,
    ) -> None:
        """Exchange standbys between two processes at a time, as long as that makes them cheaper.

        Args:
            holders: all processes.
            costs: what is to be kept low.
            may_move: whether a standby may go from one process to another.
        """
        in_order = sorted(holders, key=lambda holder: process_order(holder.process_id))
        moved = 0
        # To set a search up for each pair of 500 takes minutes, and for most it finds nothing.
        better = [self._better_racks(holder, costs) for holder in in_order]
        for _ in range(_STANDBY_ROUNDS):
            moved_now = 0
            for (first, one), (second, other) in combinations(enumerate(in_order), 2):
                near, far = one.process.rack, other.process.rack
                if near == far or (far not in better[first] and near not in better[second]):
                    continue
                there = _movable(one, other, may_move)
                back = _movable(other, one, may_move)
                # Loads must stay as they are: one process cannot give without taking.
                if there and back:
                    tasks = sorted(there + back)
                    changed = self._exchange("standby", tasks, (one, other), costs)
                    moved_now += changed
                    if changed:
                        better[first] = self._better_racks(one, costs)
                        better[second] = self._better_racks(other, costs)
                if not self._effort:
                    return
            moved += moved_now
            if not moved_now:
                break
        log.info("standbys were moved nearer to their racks %d times", moved)

    def _exchange(
        self,
        role: Role,
        tasks: Sequence[TaskId],
        holders: Sequence[Holder],
        costs: Costs,
        *,
        balanced: bool = False,
    ) -> int:
        """Let the cheapest flow from tasks to processes say who has which; how many moved."""
        owners = _owners(role, tasks, holders)
        if self._takes_too_long(role, tasks, holders, owners):
            new_owners = self._between_racks(role, tasks, holders, owners, costs, balanced=balanced)
            self._tell_if_given_up(role, tasks)
            return _move(role, tasks, holders, owners, new_owners)
        offers = self._offers(role, tasks, holders, owners, costs)
        flow = _balanced_flow if balanced else _min_traffic_flow
        new_owners, self._effort = flow(tasks, owners, offers, self._effort)
        self._tell_if_given_up(role, tasks)
        if not self._effort and _total(offers, new_owners) > _total(offers, owners):
            return 0
        return _move(role, tasks, holders, owners, new_owners)

    def _tell_if_given_up(self, role: Role, tasks: Sequence[TaskId]) -> None:
        if not self._effort:
            log.warning(
                "there are too many tasks and processes to find the cheapest places for %d %s "
                "tasks in time: they may be read from other racks more than they need be",
                len(tasks),
                role,
            )

    def _better_racks(self, holder: Holder, costs: Costs) -> set[str | None]:
        """The racks in which one of its standbys would be cheaper."""
        here = holder.process.rack
        return {
            rack
            for task_id in holder.standby
            for rack, count in self._partitions_away(task_id, "standby").items()
            if costs.traffic * (self._partitions_away(task_id, "standby")[here] - count)
            > costs.non_overlap
        }

    def _takes_too_long(
        self,
        role: Role,
        tasks: Sequence[TaskId],
        holders: Sequence[Holder],
        owners: Sequence[int],
    ) -> bool:
        """Whether to search among processes takes too long: all arcs are looked at some times for
        each task that can be had for less elsewhere."""
        most = min(self._effort, _EFFORT_OF[role])
        looks = _LOOKS * len(tasks) * len(holders)
        if looks * len(tasks) < most:
            return False
        away = (self._partitions_away(task_id, role) for task_id in tasks)
        dear = sum(
            row[holders[owner].process.rack] > min(row.values())
            for owner, row in zip(owners, away, strict=True)
        )
        return looks * dear > most

    def _between_racks(
        self,
        role: Role,
        tasks: Sequence[TaskId],
        holders: Sequence[Holder],
        owners: Sequence[int],
        costs: Costs,
        *,
        balanced: bool,
    ) -> list[int]:
        """Who gets each task if it is enough to look at racks; with balance each process keeps as
        many of every sub-topology as it had."""
        racks = [holder.process.rack for holder in holders]
        order = sorted_racks(racks)
        groups = groupby(tasks, lambda task_id: task_id.subtopology if balanced else 0)
        new_owners: list[int] = []
        for _, group in groups:
            prices: list[tuple[int, ...]] = []
            for task_id in group:
                away = self._partitions_away(task_id, role)
                prices.append(tuple(costs.traffic * away[rack] for rack in order))
            first = len(new_owners)
            given, self._effort = exchange_between_racks(
                owners[first : first + len(prices)], racks, prices, costs.non_overlap, self._effort
            )
            new_owners += given
        return new_owners

    def _offers(
        self,
        role: Role,
        tasks: Sequence[TaskId],
        holders: Sequence[Holder],
        owners: Sequence[int],
        costs: Costs,
    ) -> list[list[int]]:
        """What each task would cost in each process."""
        racks = [holder.process.rack for holder in holders]
        offers: list[list[int]] = []
        for task_id, owner in zip(tasks, owners, strict=True):
            away = self._partitions_away(task_id, role)
            offer = [costs.traffic * away[rack] + costs.non_overlap for rack in racks]
            offer[owner] -= costs.non_overlap
            offers.append(offer)
        return offers

    def _partitions_away(self, task_id: TaskId, role: Role) -> Mapping[str | None, int]:
        """How many partitions of a task have no replica in each of the racks."""
        away = self._away.get((task_id, role))
        if away is None:
            info = self._tasks[task_id]
            partitions = info.partitions if role == "active" else info.changelogs
            found = [self._racks[partition] for partition in partitions]
            away = self._away[task_id, role] = {
                rack: sum(rack not in replicas for replicas in found)
                for rack in self._process_racks
            }
        return away


def _move(
    role: Role,
    tasks: Sequence[TaskId],
    holders: Sequence[Holder],
    owners: Sequence[int],
    new_owners: Sequence[int],
) -> int:
    """Give tasks to their new owners; how many have one."""
    moves = [move for move in zip(tasks, owners, new_owners, strict=True) if move[1] != move[2]]
    for task_id, old, new in moves:
        _held(holders[old], role).remove(task_id)
        _held(holders[new], role).add(task_id)
    return len(moves)


def _held(holder: Holder, role: Role) -> set[TaskId]:
    return holder.active if role == "active" else holder.standby


def _movable(
    source: _Holder, to: _Holder, may_move: Callable[[_Holder, _Holder, TaskId], bool]
) -> list[TaskId]:
    there = to.active | to.standby
    return [
        task_id
        for task_id in source.standby
        if task_id not in there and may_move(source, to, task_id)
    ]


def _owners(role: Role, tasks: Iterable[TaskId], holders: Sequence[Holder]) -> list[int]:
    """The number of the process that has each task."""
    owner_of = {
        task_id: number for number, holder in enumerate(holders) for task_id in _held(holder, role)
    }
    return [owner_of[task_id] for task_id in tasks]


def _total(offers: Sequence[Sequence[int]], owners: Iterable[int]) -> int:
    return sum(costs[owner] for costs, owner in zip(offers, owners, strict=True))


def _min_traffic_flow(
    tasks: Sequence[TaskId], owners: Sequence[int], offers: Sequence[Sequence[int]], effort: int
) -> tuple[list[int], int]:
    """Who gets each task if nothing but the costs counts.

    From the source a flow of one goes to each task, from there to a process, and from each process
    as much to the sink as it has tasks.

    Returns:
        The number of each task's process, and what is left of the effort.
    """
    counts = Counter(owners)
    width = len(offers[0])
    graph = FlowGraph(len(tasks) + width + 2)
    sink = len(tasks) + width + 1
    edges: list[list[int]] = []
    for number, (owner, costs) in enumerate(zip(owners, offers, strict=True), start=1):
        graph.add_edge(0, number, 1, 0, flow=1)
        edges.append(
            [
                graph.add_edge(number, len(tasks) + 1 + place, 1, cost, flow=int(place == owner))
                for place, cost in enumerate(costs)
            ]
        )
    for place in range(width):
        graph.add_edge(len(tasks) + 1 + place, sink, counts[place], 0, flow=counts[place])
    left = graph.minimize_cost(effort)
    return _receivers(graph, edges), left


def _balanced_flow(
    tasks: Sequence[TaskId], owners: Sequence[int], offers: Sequence[Sequence[int]], effort: int
) -> tuple[list[int], int]:
    """Who gets each task if the tasks of every sub-topology are also to be spread evenly.

    Between tasks and processes there is one more node for each process and sub-topology, from where
    no more flows on than the process' share of that sub-topology. Where the tasks are does not say
    where the flow begins, only what it costs to move them.

    Returns:
        The number of each task's process, and what is left of the effort.
    """
    counts = Counter(owners)
    width = len(offers[0])
    groups = [len(list(group)) for _, group in groupby(tasks, lambda task_id: task_id.subtopology)]
    first_processes = 1 + len(tasks)
    processes = first_processes + width * len(groups)
    sink = processes + width
    graph = FlowGraph(sink + 1)
    edges: list[list[int]] = []
    for group, size in enumerate(groups):
        entries = first_processes + width * group
        for _ in range(size):
            number = len(edges)
            graph.add_edge(0, 1 + number, 1, 0)
            edges.append(
                [
                    graph.add_edge(1 + number, entries + place, 1, cost)
                    for place, cost in enumerate(offers[number])
                ]
            )
        for place in range(width):
            share = math.ceil(counts[place] / len(tasks) * size)
            graph.add_edge(entries + place, processes + place, share, 0)
    for place in range(width):
        graph.add_edge(processes + place, sink, counts[place], 0)
    flow = graph.maximize_flow()
    assert flow == len(tasks), "each process' shares, rounded up, have room for all it has"
    left = graph.minimize_cost(effort)
    return _receivers(graph, edges), left


def _receivers(graph: FlowGraph, edges: Iterable[Sequence[int]]) -> list[int]:
    return [next(place for place, edge in enumerate(row) if graph.flow(edge)) for row in edges]
