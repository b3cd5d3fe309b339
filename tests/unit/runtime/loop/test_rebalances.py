"""No failure during the release of tasks blocks the group member."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from unittest.mock import Mock

import pytest

from millstream.assignment.task_assignment import TaskAssignment
from millstream.clock import ManualClock
from millstream.errors import RebalanceInProgressError, TaskCorruptedError, TaskMigratedError
from millstream.kafka.membership.member_events import Assigned, Lost, MemberEvent, Revoked
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.commits import TasksInFlightError
from millstream.runtime.loop.rebalances import RebalanceHandler
from millstream.runtime.loop.uncommitted_work import UncommittedWork

ONE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


class Task:
    def __init__(self, partition: TopicPartition) -> None:
        self.task_id = TaskId(0, partition.partition)
        self.partitions = frozenset({partition})
        self.commit_needed = True


class Fakes:
    """A member, tasks and commits that log their calls, in order."""

    rebalancing = False
    all_or_nothing = False
    has_pending_work = False

    def __init__(self, *events: MemberEvent) -> None:
        self.log: list[str] = []
        self.events = list(events)
        self.tasks = {0: Task(ONE), 1: Task(OTHER)}
        self.on_commit: Callable[[], None] = lambda: None
        self.on_drain: Callable[[Collection[Task]], None] = lambda tasks: None
        self.rejoined: list[int | None] = []
        self.clock = ManualClock(1_000)
        self.uncommitted = UncommittedWork(self.clock, 60_000, "transaction.timeout.ms")

    # the member
    def next_event(self, timeout_ms: int) -> MemberEvent | None:
        return self.events.pop(0) if self.events else None

    def acknowledge(self, event: MemberEvent) -> None:
        self.log.append("acknowledged")

    def progress(self) -> None: ...

    def request_rejoin(self, why: str, *, generation: int | None) -> None:
        self.rejoined.append(generation)

    # the tasks
    @property
    def running(self) -> list[Task]:
        return list(self.tasks.values())

    def tasks_reading(self, partitions: Collection[TopicPartition]) -> list[Task]:
        return [task for task in self.running if task.partitions & set(partitions)]

    def close(self, task_ids: Collection[TaskId], *, clean: bool) -> None:
        for task_id in task_ids:
            del self.tasks[task_id.partition]
            self.log.append(f"closed {task_id} {'clean' if clean else 'dirty'}")

    def close_active(self, *, clean: bool) -> None:
        self.close([task.task_id for task in self.running], clean=clean)

    def suspend(self, task_ids: Collection[TaskId]) -> None:
        for task_id in task_ids:
            del self.tasks[task_id.partition]
            self.log.append(f"suspended {task_id}")

    def outdated(self, wanted: Any, standby: Any) -> list[Task]:
        return [task for task in self.running if wanted.get(task.task_id) != task.partitions]

    def assign(self, wanted: Any, standby: Any) -> None:
        copies = [f"{task_id} (standby)" for task_id in standby]
        self.log.append(f"assigned {[*map(str, wanted), *copies]}")

    # the commits
    def drain(self, tasks: Collection[Task]) -> None:
        self.on_drain(tasks)

    def wait_for_in_flight(self, tasks: Collection[Task]) -> None:
        self.on_drain(tasks)

    def commit(self, tasks: Collection[Task]) -> dict[Any, Any]:
        self.on_commit()
        self.log.append("committed")
        for task in tasks:
            task.commit_needed = False
        return {}

    def discard_uncommitted(self) -> None:
        self.log.append("discarded")

    def rebalances(self, assignment: TaskAssignment | None = None) -> RebalanceHandler:
        fakes: Any = self
        return RebalanceHandler(
            fakes,
            fakes,
            fakes,
            lambda event: assignment or TaskAssignment(),
            self.clock,
            uncommitted=self.uncommitted,
            static=False,
            shut_down_all=lambda: self.log.append("shut down all"),
        )


def raising(error: Exception, times: int = 1_000) -> Callable[[], None]:
    left = [times]

    def on_commit() -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return on_commit


def test_revoked_task_is_committed_and_suspended_before_the_acknowledgement() -> None:
    fakes = Fakes(Revoked(frozenset({ONE})))
    change = fakes.rebalances().handle_next_event()
    assert change is not None
    assert change.revoked
    assert fakes.log == ["committed", "suspended 0_0", "acknowledged"]


def test_released_task_is_committed_and_requested_again() -> None:
    """Other tasks are not affected."""
    fakes = Fakes()
    fakes.rebalances().release_tasks([fakes.tasks[0]], "its topic was recreated")  # type: ignore[list-item]
    assert fakes.log == ["committed", "closed 0_0 clean"]
    assert list(fakes.tasks) == [1]
    assert fakes.rejoined == [None]


@pytest.mark.parametrize("revoked", [True, False], ids=["revoked", "released"])
def test_task_finishes_work_in_flight_before_its_last_commit(revoked: bool) -> None:
    """Detects a commit that needlessly leaves asynchronous work to the next owner."""
    fakes = Fakes(*[Revoked(frozenset({ONE}))] * revoked)

    def drain(tasks: Collection[Task]) -> None:
        fakes.log.append(f"drained {[str(task.task_id) for task in tasks]}")
        for task in tasks:
            task.commit_needed = True

    for task in fakes.running:
        task.commit_needed = False
    fakes.on_drain = drain
    if revoked:
        fakes.rebalances().handle_next_event()
    else:
        fakes.rebalances().release_tasks([fakes.tasks[0]], "its topic was recreated")  # type: ignore[list-item]
    assert fakes.log[:2] == ["drained ['0_0']", "committed"]


def test_commit_that_is_rejected_during_a_rebalance_is_retried() -> None:
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(RebalanceInProgressError("later"), times=3)
    fakes.rebalances().handle_next_event()
    assert fakes.log == ["committed", "suspended 0_0", "acknowledged"]


def test_task_without_a_successful_commit_is_closed_dirty() -> None:
    """Its state on disk must not count as committed: the next owner repeats the work."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(RebalanceInProgressError("never"))
    fakes.rebalances().handle_next_event()
    assert fakes.log == ["closed 0_0 dirty", "acknowledged"]


def test_remaining_tasks_are_committed_with_revoked_tasks() -> None:
    """They share a producer, and its records are committed together or not at all."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.rebalances().handle_next_event()
    assert [task.commit_needed for task in fakes.running] == [False]


def test_a_fenced_commit_drops_the_work_of_all_tasks() -> None:
    """A record of the remaining task may be lost as well: they share the producer."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(TaskMigratedError("fenced"))
    fakes.rebalances().handle_next_event()
    assert fakes.log == ["closed 0_0 dirty", "closed 0_1 dirty", "discarded", "acknowledged"]


@pytest.mark.parametrize(
    ("error", "message_part"),
    [
        (TaskMigratedError("fenced"), "are not committed: fenced The uncommitted"),
        (RebalanceInProgressError("never"), "the group kept rebalancing for 1000 ms. The uncommit"),
        (TasksInFlightError([]), "records in flight after waiting for 3000 ms. The uncommitted"),
    ],
    ids=["fenced", "rebalancing", "unfinished"],
)
def test_warnings_about_discarded_work_contain_its_duration(
    error: Exception, message_part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The duration and the limit distinguish a transaction that the broker aborted from a slow
    group."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.all_or_nothing = True
    fakes.uncommitted.batch_began(fakes.clock.monotonic_ms())
    fakes.clock.advance(61_000)
    fakes.uncommitted.batch_ended(1, commit_interval_ms=100)
    fakes.on_commit = raising(error)
    # The first drain is of a revoked task, the second waits for work in flight.
    fakes.on_drain = lambda tasks: None if tasks else fakes.clock.advance(3_000)
    fakes.rebalances().handle_next_event()
    (message,) = [
        record.getMessage() for record in caplog.records if message_part in record.getMessage()
    ]
    took = 61_000 + (1_000 if "1000" in message_part else 3_000 if "3000" in message_part else 0)
    assert f"work has taken {took} ms; limit: 60000 ms (transaction.timeout.ms)." in message
    assert fakes.uncommitted.describe() == ""


def test_corrupted_state_does_not_block_the_member() -> None:
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(TaskCorruptedError("bad block", task_ids=[TaskId(0, 1)]))
    with pytest.raises(TaskCorruptedError):
        fakes.rebalances().handle_next_event()
    assert fakes.log == ["closed 0_0 dirty", "acknowledged"]


def test_lost_tasks_are_closed_without_a_commit() -> None:
    fakes = Fakes(Lost(frozenset({ONE, OTHER})))
    fakes.rebalances().handle_next_event()
    assert fakes.log == ["closed 0_0 dirty", "closed 0_1 dirty", "discarded", "acknowledged"]


def test_tasks_removed_by_an_assignment_are_committed_first() -> None:
    wanted = {TaskId(0, 0): frozenset({ONE})}
    fakes = Fakes(Assigned(frozenset({ONE}), b"", 7, "me"))
    fakes.rebalances(TaskAssignment(active=wanted)).handle_next_event()
    assert fakes.log == ["committed", "assigned ['0_0']"]


def test_task_that_moves_to_another_thread_can_stay_as_a_standby() -> None:
    stays = TaskAssignment(standby={TaskId(0, 0): frozenset({ONE})})
    fakes = Fakes(Revoked(frozenset({ONE, OTHER})), Assigned(frozenset(), b"", 7, "me"))
    rebalances = fakes.rebalances(stays)
    rebalances.handle_next_event()
    rebalances.handle_next_event()
    assert fakes.log == [
        "committed",
        "suspended 0_0",
        "suspended 0_1",
        "acknowledged",
        "assigned ['0_0 (standby)']",
    ]


def test_follow_up_rebalance_is_requested_once_with_its_generation() -> None:
    wanted = {TaskId(0, 0): frozenset({ONE}), TaskId(0, 1): frozenset({OTHER})}
    fakes = Fakes(Assigned(frozenset({ONE, OTHER}), b"", 7, "me"))
    rebalances = fakes.rebalances(TaskAssignment(active=wanted, next_rebalance_ms=0))
    rebalances.handle_next_event()
    assert rebalances.handle_next_event() is None
    assert rebalances.handle_next_event() is None
    assert fakes.rejoined == [7]


def test_delayed_rejoin_waits_for_its_time() -> None:
    """The caller does not wait. The request keeps the generation at which it was made."""
    fakes = Fakes(Assigned(frozenset(), b"", 7, "me"))
    rebalances = fakes.rebalances()
    rebalances.handle_next_event()
    rebalances.rejoin("fenced", 400)
    fakes.events.append(Assigned(frozenset(), b"", 8, "me"))
    fakes.clock.advance(399)
    rebalances.handle_next_event()
    assert fakes.rejoined == []
    fakes.clock.advance(1)
    rebalances.handle_next_event()
    rebalances.handle_next_event()
    assert fakes.rejoined == [7]
    rebalances.rejoin("at once")
    assert fakes.rejoined == [7, 8]


def test_static_member_leaves_the_group_only_when_closed_for_good() -> None:
    """Otherwise it comes back and resumes its tasks."""
    member: Any = Mock()
    others: Any = Mock()
    rebalances = RebalanceHandler(
        member,
        others,
        others,
        others,
        others,
        uncommitted=others,
        static=True,
        shut_down_all=others,
    )
    rebalances.close(leave_group=True)
    rebalances.close(leave_group=True, for_good=True)
    left = [call.kwargs["leave_group"] for call in member.close.call_args_list]
    assert left == [False, True]
