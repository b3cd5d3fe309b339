"""The last of the four assignors, which can be swapped: which process gets which tasks.

Follows Kafka Streams' `TaskAssignor` (KIP-924): the state of the application goes in, the tasks
of each process come out. Topics, threads and the bytes on the wire are the business of others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millstream.errors import TaskAssignmentError
from millstream.record import TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task that is to be given to a process.

    Args:
        partitions: its source partitions.
        is_stateful: whether it has state to restore.
        changelogs: the partitions that its state is restored from.

    Example:
        >>> TaskInfo(frozenset({TopicPartition("clicks", 3)}), is_stateful=True).is_stateful
        True
    """

    partitions: frozenset[TopicPartition]
    is_stateful: bool
    changelogs: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process of the application: threads which share a state directory.

    Args:
        threads: how many of its threads are in the group, at least one.
        previous_active: the tasks that it worked on before this rebalance.
        previous_standby: the other tasks that it has state of.
        client_tags: its `client.tag.*` settings.
        lags: how many changelog records it would have to restore for each stateful task;
            `LATEST_OFFSET` for a task that it runs. A task of which nothing is said is one of which
            it has nothing.
        rack: its `client.rack`; None if a thread has none, or another one.

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
    """The settings that an assignor may look at, by the names of Kafka Streams.

    Args:
        num_standby_replicas: how many copies of each task's state are kept beside the task itself.
        max_warmup_replicas: how many further copies may be on their way to where a task should be.
        acceptable_recovery_lag: with so few changelog records to restore, a process counts as
            caught up.
        probing_rebalance_interval_ms: how long to wait before looking whether copies have caught
            up.
        rack_aware_assignment_tags: the client tags in which the copies of a task should differ.
        rack_aware_assignment_strategy: whether tasks are placed near the replicas of their
            partitions: `none`, `min_traffic`, or `balance_subtopology`, which also keeps the tasks
            of each sub-topology spread.
        rack_aware_traffic_cost: what a partition costs that is read from another rack; None leaves
            it to the assignor.
        rack_aware_non_overlap_cost: what moving a task for the sake of racks costs; None leaves it
            to the assignor.

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
    """All that a decision can be based on.

    Args:
        tasks: every task, in the order of the task ids.
        processes: every process of the group, in the order of the process ids.
        config: the leader's settings.
        leader: the process of the leader, which asks for probing rebalances.
        now_ms: the leader's time, in milliseconds since the epoch.
        replica_racks: the racks of each partition's replicas, where a rack-aware strategy is set;
            partitions are left out of which a broker has no rack, and changelogs without standbys.

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
        """The process ids in the order in which the assignors go through them."""
        return sorted(self.processes, key=process_order)


def process_order(process_id: uuid.UUID) -> tuple[int, int]:
    """What process ids are sorted by: their halves as signed numbers.

    So does Java, and where several processes would do, the first one is taken.
    """
    upper, lower = process_id.int >> 64, process_id.int & (1 << 64) - 1
    return _signed(upper), _signed(lower)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


@dataclass(frozen=True, slots=True)
class ProcessAssignment:
    """What a process gets.

    Args:
        active: the tasks it works on.
        standby: the tasks it keeps a copy of the state of, warm-ups included.
        follow_up_ms: when one of its threads is to ask for another rebalance, in milliseconds since
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
    """Refuse an assignment that would leave work undone or have it done twice.

    Raises:
        TaskAssignmentError: it says which rule is broken, with Kafka Streams' name for it.
    """
    unknown = sorted(set(assignment) - set(state.processes))
    if unknown:
        raise _broken("UNKNOWN_PROCESS_ID", f"there is no process {unknown[0]} in the group")
    missing = sorted(set(state.processes) - set(assignment))
    if missing:
        raise _broken("MISSING_PROCESS_ID", f"nothing is said of process {missing[0]}")
    owner: dict[TaskId, uuid.UUID] = {}
    for process_id, given in assignment.items():
        for task_id in sorted(given.active | given.standby):
            if task_id not in state.tasks:
                raise _broken("UNKNOWN_TASK_ID", f"there is no task {task_id}")
        for task_id in sorted(given.active):
            if owner.setdefault(task_id, process_id) != process_id:
                raise _broken(
                    "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES",
                    f"processes {owner[task_id]} and {process_id} both get task {task_id}",
                )
        for task_id in sorted(given.standby):
            if task_id in given.active or not state.tasks[task_id].is_stateful:
                raise _broken(
                    "INVALID_STANDBY_TASK",
                    f"process {process_id} gets task {task_id} as a standby, although it "
                    "is stateless or active there",
                )
    left = sorted(set(state.tasks) - set(owner))
    if left:
        # Kafka Streams lets this pass; a partition that nobody reads must not go unnoticed.
        raise _broken("UNASSIGNED_ACTIVE_TASK", f"no process gets task {left[0]}")


def _broken(rule: str, what: str) -> TaskAssignmentError:
    return TaskAssignmentError(
        f"The task assignor made an invalid assignment ({rule}): {what}. "
        "If the task assignor is your own, correct it."
    )
