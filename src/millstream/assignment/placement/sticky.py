"""The sticky task assignor: balances first, and then minimizes movement.

Source of the semantics: Kafka Streams' `StickyTaskAssignor`, with two differences. Kafka Streams
iterates over hash maps, while tasks and processes are ordered here, so that equal states give equal
results. And tasks above the quota stay with their owners as long as all threads are balanced, while
Kafka Streams moves some of them whenever processes with unequal numbers of threads rebalance, even
if nothing has changed.

As in Kafka Streams, racks are considered (`rack_aware`) if the costs of both traffic and movement
are set.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from millstream.assignment.placement.client_load import ClientLoad, LeastLoaded, load_of, without
from millstream.assignment.racks.rack_aware import STATELESS, Costs, rack_awareness
from millstream.assignment.task_assignor import ApplicationState, ProcessAssignment
from millstream.record import TaskId

log = logging.getLogger(__name__)


def assign_sticky(state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
    """Assign each task to its previous process, as long as the threads stay balanced.

    A task stays with its previous owner up to that process' quota: the number of tasks per thread,
    rounded down, times its threads. Otherwise, it goes to a process that has its state as a
    standby, within the same quota. Remaining tasks stay with their previous owners up to a quota of
    one more per thread, unless other processes need them to reach their quota. The rest goes to the
    process with the fewest tasks per thread, preferably one with the task's state.

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
    shares = [ClientLoad(process_id, process) for process_id, process in state.processes.items()]
    owners = _by_task((share, share.process.previous_active) for share in shares)
    holders = _by_task((share, share.process.previous_standby) for share in shares)
    quota = len(state.tasks) // sum(share.process.threads for share in shares)
    left = _assign_up_to_quota(state.tasks, owners, quota)
    left = _assign_up_to_quota(left, holders, quota)
    needed = sum(max(0, quota * share.process.threads - len(share.active)) for share in shares)
    left = _assign_up_to_quota(left, owners, quota + 1, limit=len(left) - needed)
    _assign_to_best(left, shares, holders)
    costs = _costs(state)
    racks = rack_awareness(state) if costs else None
    if costs and racks:
        stateful = [task_id for task_id, info in state.tasks.items() if info.is_stateful]
        racks.optimize_active(stateful, shares, costs)
        racks.optimize_active(state.tasks.keys() - set(stateful), shares, STATELESS)
    _place_standbys(state, shares, holders)
    if costs and racks:
        racks.optimize_standby(shares, costs)
    return {share.process_id: share.assignment for share in shares}


_ByTask = Mapping[TaskId, list[ClientLoad]]


def _by_task(had: Iterable[tuple[ClientLoad, Iterable[TaskId]]]) -> _ByTask:
    shares: dict[TaskId, list[ClientLoad]] = {}
    for share, task_ids in had:
        for task_id in task_ids:
            shares.setdefault(task_id, []).append(share)
    return shares


def _assign_up_to_quota(
    tasks: Iterable[TaskId], had_by: _ByTask, quota: int, limit: int | None = None
) -> list[TaskId]:
    """Assign tasks to previous owners below their quota; return the remaining tasks.

    `quota` is a number of tasks per thread. At most `limit` tasks are assigned.
    """
    left: list[TaskId] = []
    given = 0
    for task_id in tasks:
        for share in had_by.get(task_id, ()):
            if given != limit and len(share.active) < quota * share.process.threads:
                share.active.add(task_id)
                given += 1
                break
        else:
            left.append(task_id)
    return left


def _assign_to_best(
    tasks: Iterable[TaskId], shares: Iterable[ClientLoad], holders: _ByTask
) -> None:
    """Assign tasks to the least loaded processes, or to those that have their state."""
    by_load = LeastLoaded(enumerate(shares), load_of)
    for task_id in tasks:
        best = by_load.first()
        assert best is not None, "there is a process"
        holder = min(holders.get(task_id, ()), key=load_of, default=best)
        # A process with less than one task per thread has idle threads, regardless of the load
        # of others.
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


def _place_standbys(
    state: ApplicationState, shares: Sequence[ClientLoad], holders: _ByTask
) -> None:
    """Keep standbys in place if no process is less loaded; else use the least loaded.

    Follows Kafka Streams (`TaskPairs`): a process is preferred if the standby and one of its tasks
    form a pair that no other process has. Otherwise, a single process might have to take over all
    tasks of a failed one.
    """
    by_load = LeastLoaded(enumerate(shares), load_of)
    owner = {task_id: share for share in shares for task_id in share.active}
    for task_id, info in state.tasks.items():
        if not info.is_stateful:
            continue
        held_by = holders.get(task_id, ())
        having = [owner[task_id]]
        for _ in range(state.config.num_standby_replicas):
            best = _with_new_pair(task_id, having, by_load) or without(task_id, by_load)
            if best is None:
                break
            held = (share for share in held_by if not share.has(task_id))
            holder = min(held, key=load_of, default=best)
            # As for active tasks: idle threads come first, regardless of the load of others.
            if holder.load < 1 or holder.load <= best.load:
                best = holder
            best.standby.add(task_id)
            having.append(best)


def _with_new_pair(
    task_id: TaskId, having: Sequence[ClientLoad], by_load: LeastLoaded[ClientLoad]
) -> ClientLoad | None:
    """Return the least loaded process in which the task forms a new pair of tasks."""

    def fits(share: ClientLoad) -> bool:
        return not share.has(task_id) and (
            not (share.active or share.standby)
            or any(
                not any(other.has(beside) for other in having)
                for beside in chain(share.active, share.standby)
            )
        )

    return by_load.first(fits)
