"""Rack-aware placement: moves tasks to racks with replicas of their partitions.

Source of the semantics: Kafka Streams' `RackAwareTaskAssignor` with its
`MinTrafficGraphConstructor` and `BalanceSubtopologyGraphConstructor` (KIP-925). After a task
assignor has distributed the tasks, processes exchange tasks to minimize the total cost; each keeps
its number of tasks. There is a cost for each partition of a task that has no replica in the rack of
the task's process, and for each task that is moved.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, groupby
from typing import Final, NamedTuple

from millstream.assignment.placement.client_load import ClientLoad, Role
from millstream.assignment.racks.min_cost_flow import FlowGraph
from millstream.assignment.task_assignor import ApplicationState, process_order
from millstream.record import TaskId

log = logging.getLogger(__name__)

#: The maximum number of arcs to examine in one rebalance. This takes about 10 s, less than the
#: session timeout. Kafka Streams has no limit, so a large group may never become stable.
_MAX_ARCS: Final = 60_000_000
#: The maximum number of arcs to examine in an exchange of active tasks, or of standbys between two
#: processes. If more are expected, tasks are exchanged between racks (`exchange_between_racks`).
#: The resulting cost is the same, but the search is faster: 0.3 s instead of 11 s for 1,000 active
#: tasks of 100 processes, 0.2 s instead of 14 s for the standbys of 10,000 tasks on 10 processes.
_MAX_ARCS_BY_ROLE: Final[Mapping[Role, int]] = {"active": 5_000_000, "standby": 20_000}

#: The approximate number of scans of all arcs per task that is moved to a better process.
_SCANS_PER_TASK: Final = 3

#: The maximum number of rounds in which all pairs of processes exchange standbys.
_STANDBY_ROUNDS: Final = 4


_Rack = str | None
#: For each rack, the number of a task's partitions without a replica in the rack.
_Counts = Mapping[_Rack, int]


class Costs(NamedTuple):
    #: The cost of a partition that is read from another rack.
    traffic: int
    #: The cost of moving a task to another process.
    non_overlap: int


#: The costs of stateless tasks, which can be moved at no cost.
STATELESS: Final = Costs(1, 0)


def rack_awareness(state: ApplicationState) -> RackAwareness | None:
    """Return the rack-aware optimization.

    Returns None if the optimization is disabled or racks are unknown. Unknown racks are logged as
    an error.
    """
    strategy = state.config.rack_aware_assignment_strategy
    if strategy == "none":
        return None
    for process_id in state.order:
        if state.processes[process_id].rack is None:
            log.error(
                "rack.aware.assignment.strategy=%s has no effect: process %s has no client.rack, "
                "or its threads have different ones. Set one client.rack in each instance",
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
                    "%s (task %s) are unknown. Set broker.rack on every broker",
                    strategy,
                    partition,
                    task_id,
                )
                return None
    return RackAwareness(state)


class RackAwareness:
    """Exchanges tasks between processes.

    Deterministic: equal states give equal results.
    """

    def __init__(self, state: ApplicationState) -> None:
        self._racks = state.replica_racks
        self._tasks = state.tasks
        self._process_racks = {process.rack for process in state.processes.values()}
        self._remote_counts: dict[tuple[TaskId, Role], Mapping[str | None, int]] = {}
        self._budget = _MAX_ARCS
        self._is_balanced = state.config.rack_aware_assignment_strategy == "balance_subtopology"

    def optimize_active(
        self, tasks: Iterable[TaskId], holders: Iterable[ClientLoad], costs: Costs
    ) -> None:
        """Exchange active tasks to minimize their cost.

        Each of the tasks must be active in one of the processes.
        """
        in_order = sorted(holders, key=lambda holder: process_order(holder.process_id))
        movable = sorted(tasks)
        if movable:
            moved = self._exchange("active", movable, in_order, costs, balanced=self._is_balanced)
            log.info("moved %d of %d active tasks closer to their replicas", moved, len(movable))

    def optimize_standby(
        self,
        holders: Iterable[ClientLoad],
        costs: Costs,
        may_move: Callable[[ClientLoad, ClientLoad, TaskId], bool] = lambda *_: True,
    ) -> None:
        """Exchange standbys between pairs of processes, as long as that reduces the cost."""
        in_order = sorted(holders, key=lambda holder: process_order(holder.process_id))
        moved = 0
        # Used to skip pairs that cannot improve: for 500 processes, it takes minutes to set up a
        # search for every pair.
        cheaper_racks = [self._cheaper_racks(holder, costs) for holder in in_order]
        for _ in range(_STANDBY_ROUNDS):
            moved_now = 0
            for (first, one), (second, other) in combinations(enumerate(in_order), 2):
                rack, other_rack = one.process.rack, other.process.rack
                if rack == other_rack or (
                    other_rack not in cheaper_racks[first] and rack not in cheaper_racks[second]
                ):
                    continue
                outgoing = _movable(one, other, may_move)
                incoming = _movable(other, one, may_move)
                # Loads must not change, so a task can only move in exchange for another one.
                if outgoing and incoming:
                    tasks = sorted(outgoing + incoming)
                    changed = self._exchange("standby", tasks, (one, other), costs)
                    moved_now += changed
                    if changed:
                        cheaper_racks[first] = self._cheaper_racks(one, costs)
                        cheaper_racks[second] = self._cheaper_racks(other, costs)
                if not self._budget:
                    return
            moved += moved_now
            if not moved_now:
                break
        log.info("moved standbys closer to their replicas: %d moves", moved)

    def _exchange(
        self,
        role: Role,
        tasks: Sequence[TaskId],
        holders: Sequence[ClientLoad],
        costs: Costs,
        *,
        balanced: bool = False,
    ) -> int:
        """Assign the tasks by a minimum-cost flow; return the number of moved tasks."""
        owner_of = {
            task_id: n for n, holder in enumerate(holders) for task_id in holder.tasks(role)
        }
        owners = [owner_of[task_id] for task_id in tasks]
        racks = [holder.process.rack for holder in holders]
        remote = [self._remote_partitions(task_id, role) for task_id in tasks]
        cost_rows: list[list[int]] = []
        if self._takes_too_long(role, owners, racks, remote):
            groups = [task_id.subtopology if balanced else 0 for task_id in tasks]
            new_owners = self._exchange_between_racks(groups, owners, racks, remote, costs)
        else:
            cost_rows = _cost_rows(owners, racks, remote, costs)
            flow = _balanced_flow if balanced else _min_traffic_flow
            new_owners, self._budget = flow(tasks, owners, cost_rows, self._budget)
        if not self._budget:
            log.warning(
                "there are too many tasks and processes to fully optimize the placement of %d %s "
                "tasks: more partitions than necessary may be read from other racks",
                len(tasks),
                role,
            )
            if cost_rows and _total(cost_rows, new_owners) > _total(cost_rows, owners):
                return 0
        moves = [move for move in zip(tasks, owners, new_owners, strict=True) if move[1] != move[2]]
        for task_id, old, new in moves:
            holders[old].tasks(role).remove(task_id)
            holders[new].tasks(role).add(task_id)
        return len(moves)

    def _cheaper_racks(self, holder: ClientLoad, costs: Costs) -> set[str | None]:
        """Return the racks in which a standby of the process would have a lower cost."""
        current_rack = holder.process.rack
        return {
            rack
            for task_id in holder.standby
            for rack, count in self._remote_partitions(task_id, "standby").items()
            if costs.traffic * (self._remote_partitions(task_id, "standby")[current_rack] - count)
            > costs.non_overlap
        }

    def _takes_too_long(
        self, role: Role, owners: Sequence[int], racks: Sequence[_Rack], remote: Sequence[_Counts]
    ) -> bool:
        """Return whether a search among processes would exceed the limit.

        A search scans all arcs several times for each task that would have a lower cost elsewhere.
        """
        limit = min(self._budget, _MAX_ARCS_BY_ROLE[role])
        scans = _SCANS_PER_TASK * len(owners) * len(racks)
        if scans * len(owners) < limit:
            return False
        improvable = sum(
            counts[racks[owner]] > min(counts.values())
            for owner, counts in zip(owners, remote, strict=True)
        )
        return scans * improvable > limit

    def _exchange_between_racks(
        self,
        groups: Sequence[int],
        owners: Sequence[int],
        racks: Sequence[_Rack],
        remote: Sequence[_Counts],
        costs: Costs,
    ) -> list[int]:
        """Return the new owners after an exchange between racks.

        Each process keeps its number of tasks of each group.
        """
        order = sorted_racks(racks)
        prices = [tuple(costs.traffic * counts[rack] for rack in order) for counts in remote]
        new_owners: list[int] = []
        for _, group in groupby(groups):
            first, last = len(new_owners), len(new_owners) + len(list(group))
            given, self._budget = exchange_between_racks(
                owners[first:last], racks, prices[first:last], costs.non_overlap, self._budget
            )
            new_owners += given
        return new_owners

    def _remote_partitions(self, task_id: TaskId, role: Role) -> _Counts:
        remote = self._remote_counts.get((task_id, role))
        if remote is None:
            info = self._tasks[task_id]
            partitions = info.partitions if role == "active" else info.changelogs
            found = [self._racks[partition] for partition in partitions]
            remote = self._remote_counts[task_id, role] = {
                rack: sum(rack not in replicas for replicas in found)
                for rack in self._process_racks
            }
        return remote


def _cost_rows(
    owners: Sequence[int], racks: Sequence[_Rack], remote: Sequence[_Counts], costs: Costs
) -> list[list[int]]:
    """Return the costs of each task, by process."""
    rows = [
        [costs.traffic * counts[rack] + costs.non_overlap for rack in racks] for counts in remote
    ]
    for row, owner in zip(rows, owners, strict=True):
        row[owner] -= costs.non_overlap
    return rows


def _movable(
    source: ClientLoad, to: ClientLoad, may_move: Callable[[ClientLoad, ClientLoad, TaskId], bool]
) -> list[TaskId]:
    assigned = to.active | to.standby
    return [
        task_id
        for task_id in source.standby
        if task_id not in assigned and may_move(source, to, task_id)
    ]


def _total(cost_rows: Sequence[Sequence[int]], owners: Iterable[int]) -> int:
    return sum(costs[owner] for costs, owner in zip(cost_rows, owners, strict=True))


def _min_traffic_flow(
    tasks: Sequence[TaskId], owners: Sequence[int], cost_rows: Sequence[Sequence[int]], budget: int
) -> tuple[list[int], int]:
    """Return the owners with the lowest cost, and the remaining budget.

    The source has an edge of capacity 1 to each task, each task has an edge to each process, and
    each process has an edge to the sink, whose capacity is the process's number of tasks. An owner
    is the index of a process.
    """
    counts = Counter(owners)
    width = len(cost_rows[0])
    graph = FlowGraph(len(tasks) + width + 2)
    sink = len(tasks) + width + 1
    edges: list[list[int]] = []
    for number, (owner, costs) in enumerate(zip(owners, cost_rows, strict=True), start=1):
        graph.add_edge(0, number, 1, 0, flow=1)
        edges.append(
            [
                graph.add_edge(number, len(tasks) + 1 + index, 1, cost, flow=int(index == owner))
                for index, cost in enumerate(costs)
            ]
        )
    for index in range(width):
        graph.add_edge(len(tasks) + 1 + index, sink, counts[index], 0, flow=counts[index])
    left = graph.minimize_cost(budget)
    return _receivers(graph, edges), left


def _balanced_flow(
    tasks: Sequence[TaskId], owners: Sequence[int], cost_rows: Sequence[Sequence[int]], budget: int
) -> tuple[list[int], int]:
    """Return the owners with the lowest cost that keep each sub-topology balanced.

    Between tasks and processes, there is a node for each process and sub-topology. Its outgoing
    capacity is the process's share of that sub-topology. The current assignment determines only the
    cost of moves, not the initial flow. An owner is the index of a process. Also returns the
    remaining budget.
    """
    counts = Counter(owners)
    width = len(cost_rows[0])
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
                    graph.add_edge(1 + number, entries + index, 1, cost)
                    for index, cost in enumerate(cost_rows[number])
                ]
            )
        for index in range(width):
            share = math.ceil(counts[index] / len(tasks) * size)
            graph.add_edge(entries + index, processes + index, share, 0)
    for index in range(width):
        graph.add_edge(processes + index, sink, counts[index], 0)
    flow = graph.maximize_flow()
    assert flow == len(tasks), "the rounded-up shares of a process must cover its tasks"
    left = graph.minimize_cost(budget)
    return _receivers(graph, edges), left


def _receivers(graph: FlowGraph, edges: Iterable[Sequence[int]]) -> list[int]:
    return [next(index for index, edge in enumerate(row) if graph.flow(edge)) for row in edges]


def exchange_between_racks(
    owners: Sequence[int],
    racks: Sequence[str | None],
    costs: Sequence[tuple[int, ...]],
    non_overlap: int,
    budget: int,
) -> tuple[list[int], int]:
    """Exchange tasks at minimum cost. Each process keeps its number of tasks.

    All processes of a rack are equivalent for a task, except for its owner. It is therefore enough
    to find a minimum-cost flow from a few kinds of tasks to a few racks, which is fast, and then to
    distribute the tasks to the processes of each rack. The cost is as low as with Kafka Streams'
    search among processes, but the choice among processes of equal cost may differ.

    `owners` contains the process index of each task, `racks` the rack of each process, and `costs`
    the cost of each task in each rack, in the order of `sorted_racks`. `non_overlap` is the
    additional cost of moving to another process. Returns the process index of each task, and the
    remaining budget.
    """
    index_of_rack = {rack: index for index, rack in enumerate(sorted_racks(racks))}
    rack_of = [index_of_rack[rack] for rack in racks]
    kinds: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for number, (owner, cost) in enumerate(zip(owners, costs, strict=True)):
        kinds.setdefault((rack_of[owner], cost), []).append(number)
    graph = FlowGraph(2 + len(kinds) + len(index_of_rack))
    sink = 1 + len(kinds) + len(index_of_rack)
    edges: list[list[int]] = []
    for node, ((home, cost), numbers) in enumerate(kinds.items(), start=1):
        count = len(numbers)
        graph.add_edge(0, node, count, 0, flow=count)
        row: list[int] = []
        for index, price in enumerate(cost):
            end, stays = 1 + len(kinds) + index, index == home
            extra = 0 if stays else non_overlap
            row.append(graph.add_edge(node, end, count, price + extra, flow=stays * count))
        edges.append(row)
    counts = Counter(rack_of[owner] for owner in owners)
    for index in index_of_rack.values():
        graph.add_edge(1 + len(kinds) + index, sink, counts[index], 0, flow=counts[index])
    left = graph.minimize_cost(budget)
    new_racks: dict[int, int] = {}
    for ((home, _), numbers), row in zip(kinds.items(), edges, strict=True):
        # The tasks with the lowest ids stay.
        leaving = iter(numbers[graph.flow(row[home]) :])
        for index, edge in enumerate(row):
            if index != home:
                new_racks.update((next(leaving), index) for _ in range(graph.flow(edge)))
    return _settled(owners, rack_of, new_racks), left


def sorted_racks(racks: Sequence[str | None]) -> list[str | None]:
    return sorted(set(racks), key=lambda rack: rack or "")


def _settled(owners: Sequence[int], rack_of: Sequence[int], new_racks: dict[int, int]) -> list[int]:
    """Return the new owners.

    A task that moves to a rack replaces a task that leaves the rack.
    """
    free: dict[int, deque[int]] = {}
    for number in sorted(new_racks):
        free.setdefault(rack_of[owners[number]], deque()).append(owners[number])
    new_owners = list(owners)
    for number, index in sorted(new_racks.items()):
        new_owners[number] = free[index].popleft()
    return new_owners
