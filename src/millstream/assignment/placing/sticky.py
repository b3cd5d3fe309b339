"""The sticky task assignor: balance first, and then as little movement as possible.

Source of the semantics: Kafka Streams' `StickyTaskAssignor`. Two things
differ. Where that iterates over hash maps, tasks and processes are taken in order here, so that
equal states have equal results. And tasks above the quota stay with their owner as long as all
threads are balanced: Kafka Streams moves some of them whenever processes with unequal numbers of
threads rebalance, even if nothing has changed.

As there, racks are taken into account (`rack_aware`) if the costs of both traffic and movement are
set.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from millstream.assignment.placing.least_loaded import LeastLoaded
from millstream.assignment.racks.rack_aware import STATELESS, Costs, RackAwareness, rack_awareness
from millstream.assignment.task_assignor import (
    ApplicationState,
    ProcessAssignment,
    ProcessState,
)
from millstream.record import TaskId

log = logging.getLogger(__name__)


def assign_sticky(state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
    """Give each task to the process that had it, as long as the threads stay balanced.

    A task stays with its previous owner up to that process' quota, the number of tasks per thread
    rounded down, times its threads. Then it goes to a process which has its state as a standby,
    with the same quota. What is left stays with its previous owner up to a quota of one more per
    thread, unless it is needed to bring others up to theirs. The rest goes to the process with the
    fewest tasks per thread, rather to one with its state.

    Example:
        >>> import uuid
        >>> old, new = uuid.UUID(int=1), uuid.UUID(int=2)
        >>> task = TaskInfo(frozenset({TopicPartition("clicks", 0)}), is_stateful=False)
        >>> processes = {
        ...     new: ProcessState(threads=1),
        ...     old: ProcessState(threads=1, previous_active=frozenset({TaskId(0, 0)})),
        ... }
        >>> given = assign_sticky(ApplicationState({TaskId(0, 0): task}, processes))
        >>> len(given[old].active), len(given[new].active)
        (1, 0)
    """
    if not state.processes:
        return {}
    shares = [
        _Share(order, process_id, process)
        for order, (process_id, process) in enumerate(state.processes.items())
    ]
    owners = _by_task((share, share.process.previous_active) for share in shares)
    holders = _by_task((share, share.process.previous_standby) for share in shares)
    quota = len(state.tasks) // sum(share.process.threads for share in shares)
    left = _give_up_to_quota(state.tasks, owners, quota)
    left = _give_up_to_quota(left, holders, quota)
    needed = sum(max(0, quota * share.process.threads - len(share.active)) for share in shares)
    left = _give_up_to_quota(left, owners, quota + 1, most=len(left) - needed)
    _give_to_best(left, shares, holders)
    costs = _costs(state)
    racks = rack_awareness(state) if costs else None
    if costs and racks:
        _move_near(racks, shares, state, costs)
    _place_standbys(state, shares, holders)
    if costs and racks:
        racks.optimize_standby(shares, costs)
    return {
        share.process_id: ProcessAssignment(frozenset(share.active), frozenset(share.standby))
        for share in shares
    }


class _Share:
    """What one process gets."""

    def __init__(self, order: int, process_id: uuid.UUID, process: ProcessState) -> None:
        self.order = order
        self.process_id = process_id
        self.process = process
        self.active: set[TaskId] = set()
        self.standby: set[TaskId] = set()

    @property
    def load(self) -> float:
        """Tasks per thread, standbys included."""
        return (len(self.active) + len(self.standby)) / self.process.threads

    def has(self, task_id: TaskId) -> bool:
        """Whether it gets the task in either role."""
        return task_id in self.active or task_id in self.standby


_ByTask = Mapping[TaskId, list[_Share]]


def _by_task(had: Iterable[tuple[_Share, Iterable[TaskId]]]) -> _ByTask:
    shares: dict[TaskId, list[_Share]] = {}
    for share, task_ids in had:
        for task_id in task_ids:
            shares.setdefault(task_id, []).append(share)
    return shares


def _give_up_to_quota(
    tasks: Iterable[TaskId], had_by: _ByTask, quota: int, most: int | None = None
) -> list[TaskId]:
    """Give tasks, at most so many, to those who had them and are below their quota of tasks per
    thread; return the other tasks."""
    left: list[TaskId] = []
    given = 0
    for task_id in tasks:
        for share in had_by.get(task_id, ()):
            if given != most and len(share.active) < quota * share.process.threads:
                share.active.add(task_id)
                given += 1
                break
        else:
            left.append(task_id)
    return left


def _give_to_best(tasks: Iterable[TaskId], shares: Iterable[_Share], holders: _ByTask) -> None:
    """Give tasks to the least loaded shares, or to those that have their state."""
    by_load = LeastLoaded(((share.order, share) for share in shares), _load)
    for task_id in tasks:
        best = by_load.first()
        assert best is not None, "there is a process"
        holder = min(holders.get(task_id, ()), key=_load, default=best)
        # With less than a task per thread a process has idle threads, however others fare.
        if holder.load < 1 or holder.load <= best.load:
            best = holder
        best.active.add(task_id)


def _costs(state: ApplicationState) -> Costs | None:
    config = state.config
    if config.rack_aware_assignment_strategy == "none":
        return None
    traffic, non_overlap = config.rack_aware_traffic_cost, config.rack_aware_non_overlap_cost
    if traffic is None or non_overlap is None:
        log.warning(
            "rack.aware.assignment.strategy=%s has no effect: the sticky assignor also needs "
            "rack.aware.assignment.traffic_cost and rack.aware.assignment.non_overlap_cost",
            config.rack_aware_assignment_strategy,
        )
        return None
    return Costs(traffic, non_overlap)


def _move_near(
    racks: RackAwareness, shares: Sequence[_Share], state: ApplicationState, costs: Costs
) -> None:
    stateful = [task_id for task_id, info in state.tasks.items() if info.is_stateful]
    racks.optimize_active(stateful, shares, costs)
    racks.optimize_active(state.tasks.keys() - set(stateful), shares, STATELESS)


def _place_standbys(state: ApplicationState, shares: Iterable[_Share], holders: _ByTask) -> None:
    """Keep copies where they are if no process is less loaded; else with the least loaded.

    Follows Kafka Streams (`TaskPairs`): of the others, those come first that so get two tasks which
    no process has together yet. Two processes with the same tasks would fail together.
    """
    shares = list(shares)
    by_load = LeastLoaded(((share.order, share) for share in shares), _load)
    owner = {task_id: share for share in shares for task_id in share.active}
    for task_id, info in state.tasks.items():
        if not info.is_stateful:
            continue
        held_by = holders.get(task_id, ())
        having = [owner[task_id]]
        for _ in range(state.config.num_standby_replicas):
            best = _with_new_pair(task_id, having, by_load) or _without(task_id, by_load)
            if best is None:
                break
            held = (share for share in held_by if not share.has(task_id))
            holder = min(held, key=_load, default=best)
            # As for active tasks: idle threads first, however others fare.
            if holder.load < 1 or holder.load <= best.load:
                best = holder
            best.standby.add(task_id)
            having.append(best)


def _with_new_pair(
    task_id: TaskId, having: Sequence[_Share], by_load: LeastLoaded[_Share]
) -> _Share | None:
    """The least loaded share that gets two tasks with it which no other share has together."""

    def fits(share: _Share) -> bool:
        return not share.has(task_id) and (
            not (share.active or share.standby)
            or any(
                not any(other.has(beside) for other in having)
                for beside in chain(share.active, share.standby)
            )
        )

    return by_load.first(fits)


def _without(task_id: TaskId, by_load: LeastLoaded[_Share]) -> _Share | None:
    return by_load.first(lambda share: not share.has(task_id))


def _load(share: _Share) -> float:
    return share.load
