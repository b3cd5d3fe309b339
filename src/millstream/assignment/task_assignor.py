"""The last of the four assignors: assigns tasks to processes.

Users can replace it. It follows Kafka Streams' `TaskAssignor` (KIP-924): a function from the state
of the application to the tasks of each process. Topics, threads and the wire format are handled
elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millstream.errors import TaskAssignmentError
from millstream.record import TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task to be assigned.

    Args:
        partitions: the source partitions.
        is_stateful: whether the task has state to restore.
        changelogs: the partitions from which the state is restored.

    Example:
        >>> TaskInfo(frozenset({TopicPartition("clicks", 3)}), is_stateful=True).is_stateful
        True
    """

    partitions: frozenset[TopicPartition]
    is_stateful: bool
    changelogs: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process of the application: threads that share a state directory.

    Args:
        threads: the number of its threads in the group, at least one.
        previous_active: the active tasks before this rebalance.
        previous_standby: the other tasks with state on the process.
        client_tags: the `client.tag.*` settings.
        lags: the number of changelog records to restore for each stateful task; `LATEST_OFFSET` for
            a running task. The process has no state for tasks that are not listed.
        rack: the `client.rack`; None if the threads have none or different ones.

    Example:
        >>> ProcessState(threads=2, previous_active=frozenset({TaskId(0, 3)})).threads
        2
    """

    threads: int
    previous_active: frozenset[TaskId] = frozenset()
    previous_standby: frozenset[TaskId] = frozenset()
    client_tags: Mapping[str, str] = field(default_factory=dict)
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentConfig:
    """The settings for assignors, with the names that they have in Kafka Streams.

    Args:
        max_warmup_replicas: the maximum number of warm-up replicas, which prepare the move of a
            task.
        acceptable_recovery_lag: the maximum number of changelog records that a caught-up process
            still has to restore.
        probing_rebalance_interval_ms: the time before a probing rebalance checks whether warm-up
            replicas have caught up.
        rack_aware_assignment_tags: the client tags in which the replicas of a task should differ.
        rack_aware_assignment_strategy: whether to place tasks near the replicas of their
            partitions: `none`, `min_traffic`, or `balance_subtopology`, which also spreads the
            tasks of each sub-topology.
        rack_aware_traffic_cost: the cost of reading a partition from another rack; None for the
            assignor's default.
        rack_aware_non_overlap_cost: the cost of moving a task because of racks; None for the
            assignor's default.

    Example:
        >>> AssignmentConfig(num_standby_replicas=1).acceptable_recovery_lag
        10000
    """

    num_standby_replicas: int = 0
    max_warmup_replicas: int = 2
    acceptable_recovery_lag: int = 10_000
    probing_rebalance_interval_ms: int = 600_000
    rack_aware_assignment_tags: tuple[str, ...] = ()
    rack_aware_assignment_strategy: str = "none"
    rack_aware_traffic_cost: int | None = None
    rack_aware_non_overlap_cost: int | None = None


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """The input of a task assignor.

    Args:
        tasks: every task, ordered by task id.
        processes: every process of the group, ordered by process id.
        config: the leader's settings.
        leader: the process of the leader, which requests probing rebalances.
        now_ms: the leader's time, in milliseconds since the epoch.
        replica_racks: the racks of each partition's replicas, if a rack-aware strategy is set.
            Partitions with a replica on a broker without a rack are missing, and so are changelogs
            if there are no standbys.

    Example:
        >>> import uuid
        >>> task = TaskInfo(frozenset({TopicPartition("clicks", 0)}), is_stateful=False)
        >>> process_id = uuid.UUID(int=1)
        >>> state = ApplicationState({TaskId(0, 0): task}, {process_id: ProcessState(threads=1)})
        >>> state.order == [process_id]
        True
    """

    tasks: Mapping[TaskId, TaskInfo]
    processes: Mapping[uuid.UUID, ProcessState]
    config: AssignmentConfig = field(default_factory=AssignmentConfig)
    leader: uuid.UUID | None = None
    now_ms: int = 0
    replica_racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)

    @property
    def order(self) -> list[uuid.UUID]:
        """The process ids in the order in which assignors iterate over them."""
        return sorted(self.processes, key=process_order)


def process_order(process_id: uuid.UUID) -> tuple[int, int]:
    """Return the sort key of a process id: its halves as signed numbers, as in Java.

    The order decides between processes that are equally suitable.
    """
    upper, lower = process_id.int >> 64, process_id.int & (1 << 64) - 1
    return _signed(upper), _signed(lower)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


@dataclass(frozen=True, slots=True)
class ProcessAssignment:
    """The tasks of a process.

    Args:
        standby: the standby tasks, including warm-up replicas.
        follow_up_ms: when one of its threads must request another rebalance, in milliseconds since
            the epoch; None for never.

    Example:
        >>> def everything_to_the_first(state: ApplicationState):
        ...     first, *others = state.order
        ...     nothing = dict.fromkeys(others, ProcessAssignment())
        ...     return {first: ProcessAssignment(active=frozenset(state.tasks)), **nothing}
        >>> import uuid
        >>> assignor: TaskAssignor = everything_to_the_first
        >>> task = TaskInfo(frozenset({TopicPartition("clicks", 0)}), is_stateful=False)
        >>> processes = {uuid.UUID(int=number): ProcessState(threads=1) for number in (1, 2)}
        >>> given = assignor(ApplicationState({TaskId(0, 0): task}, processes))
        >>> [len(each.active) for each in given.values()]
        [1, 0]
    """

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    follow_up_ms: int | None = None


TaskAssignor = Callable[[ApplicationState], Mapping[uuid.UUID, ProcessAssignment]]


def check_assignment(
    state: ApplicationState, assignment: Mapping[uuid.UUID, ProcessAssignment]
) -> None:
    """Reject an invalid assignment, for example with unassigned or duplicate tasks.

    Raises TaskAssignmentError if the assignment is invalid; the message contains Kafka Streams'
    name of the violated rule.
    """
    unknown = sorted(set(assignment) - set(state.processes))
    if unknown:
        raise _invalid("UNKNOWN_PROCESS_ID", f"there is no process {unknown[0]} in the group")
    missing = sorted(set(state.processes) - set(assignment))
    if missing:
        raise _invalid("MISSING_PROCESS_ID", f"there is no entry for process {missing[0]}")
    owner: dict[TaskId, uuid.UUID] = {}
    for process_id, given in assignment.items():
        for task_id in sorted(given.active | given.standby):
            if task_id not in state.tasks:
                raise _invalid("UNKNOWN_TASK_ID", f"there is no task {task_id}")
        for task_id in sorted(given.active):
            if owner.setdefault(task_id, process_id) != process_id:
                raise _invalid(
                    "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES",
                    f"processes {owner[task_id]} and {process_id} both get task {task_id}",
                )
        for task_id in sorted(given.standby):
            if task_id in given.active or not state.tasks[task_id].is_stateful:
                raise _invalid(
                    "INVALID_STANDBY_TASK",
                    f"process {process_id} gets task {task_id} as a standby, although the task is "
                    "stateless or active on that process",
                )
    left = sorted(set(state.tasks) - set(owner))
    if left:
        # Kafka Streams accepts this, but an unread partition must not go unnoticed.
        raise _invalid("UNASSIGNED_ACTIVE_TASK", f"no process gets task {left[0]}")


def _invalid(rule: str, what: str) -> TaskAssignmentError:
    return TaskAssignmentError(
        f"The task assignor made an invalid assignment ({rule}): {what}. "
        "If it is your own task assignor, fix it."
    )
