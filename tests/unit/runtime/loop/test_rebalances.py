"""Whatever goes wrong while tasks are given up, the group member is let go on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from unittest.mock import Mock

import pytest

from millstream.assignment.task_assignment import TaskAssignment
from millstream.clock import ManualClock
from millstream.errors import RebalanceInProgressError, TaskCorruptedError, TaskMigratedError
from millstream.kafka.member.events import Assigned, Lost, MemberEvent, Revoked
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.commits import UnfinishedError
from millstream.runtime.loop.overdue_commits import UncommittedWork
from millstream.runtime.loop.rebalances import Rebalances

ONE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


class Task:
    def __init__(self, partition: TopicPartition) -> None:
        self.task_id = TaskId(0, partition.partition)
        self.partitions = frozenset({partition})
        self.commit_needed = True


class Fakes:
    """A member, tasks and commits that note what is done to them, in order."""

    rebalancing = False
    all_or_nothing = False
    is_open = False

    def __init__(self, *events: MemberEvent) -> None:
        self.story: list[str] = []
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
        self.story.append("acknowledged")

    def progress(self) -> None: ...

    def request_rejoin(self, why: str, *, generation: int | None) -> None:
        self.rejoined.append(generation)

    # the tasks
    @property
    def running(self) -> list[Task]:
        return list(self.tasks.values())

    def owners_of(self, partitions: Collection[TopicPartition]) -> list[Task]:
        return [task for task in self.running if task.partitions & set(partitions)]

    def close(self, task_ids: Collection[TaskId], *, clean: bool) -> None:
        for task_id in task_ids:
            del self.tasks[task_id.partition]
            self.story.append(f"closed {task_id} {'clean' if clean else 'dirty'}")

    def close_active(self, *, clean: bool) -> None:
        self.close([task.task_id for task in self.running], clean=clean)

    def suspend(self, task_ids: Collection[TaskId]) -> None:
        for task_id in task_ids:
            del self.tasks[task_id.partition]
            self.story.append(f"suspended {task_id}")

    def outdated(self, wanted: Any, standby: Any) -> list[Task]:
        return [task for task in self.running if wanted.get(task.task_id) != task.partitions]

    def assign(self, wanted: Any, standby: Any) -> None:
        copies = [f"{task_id} (standby)" for task_id in standby]
        self.story.append(f"assigned {[*map(str, wanted), *copies]}")

    # the commits
    def drain(self, tasks: Collection[Task]) -> None:
        self.on_drain(tasks)

    def land(self, tasks: Collection[Task]) -> None:
        self.on_drain(tasks)

    def commit(self, tasks: Collection[Task]) -> dict[Any, Any]:
        self.on_commit()
        self.story.append("committed")
        for task in tasks:
            task.commit_needed = False
        return {}

    def forget_sent(self) -> None:
        self.story.append("forgot")

    def rebalances(self, assignment: TaskAssignment | None = None) -> Rebalances:
        fakes: Any = self
        return Rebalances(
            fakes,
            fakes,
            fakes,
            lambda event: assignment or TaskAssignment(),
            self.clock,
            uncommitted=self.uncommitted,
            static=False,
            shut_down_all=lambda: self.story.append("shut down all"),
        )


def raising(error: Exception, times: int = 1_000) -> Callable[[], None]:
    left = [times]

    def on_commit() -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return on_commit


def test_a_revoked_task_is_committed_and_stopped_before_the_member_goes_on() -> None:
    fakes = Fakes(Revoked(frozenset({ONE})))
    change = fakes.rebalances().next_change()
    assert change is not None
    assert change.revoked
    assert fakes.story == ["committed", "suspended 0_0", "acknowledged"]


def test_a_task_that_starts_anew_is_committed_and_asked_for_again() -> None:
    """Nobody else is concerned: the others go on."""
    fakes = Fakes()
    fakes.rebalances().give_up([fakes.tasks[0]], "its topic is another one")  # type: ignore[list-item]
    assert fakes.story == ["committed", "closed 0_0 clean"]
    assert list(fakes.tasks) == [1]
    assert fakes.rejoined == [None]


@pytest.mark.parametrize("revoked", [True, False], ids=["revoked", "starts anew"])
def test_what_is_given_up_finishes_what_it_has_taken_before_the_commit(revoked: bool) -> None:
    """Hunts for a commit that leaves asynchronous work to the next owner without need."""
    fakes = Fakes(*[Revoked(frozenset({ONE}))] * revoked)

    def drain(tasks: Collection[Task]) -> None:
        fakes.story.append(f"drained {[str(task.task_id) for task in tasks]}")
        for task in tasks:
            task.commit_needed = True

    for task in fakes.running:
        task.commit_needed = False
    fakes.on_drain = drain
    if revoked:
        fakes.rebalances().next_change()
    else:
        fakes.rebalances().give_up([fakes.tasks[0]], "its topic is another one")  # type: ignore[list-item]
    assert fakes.story[:2] == ["drained ['0_0']", "committed"]


def test_a_commit_that_the_group_does_not_take_yet_is_tried_again() -> None:
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(RebalanceInProgressError("later"), times=3)
    fakes.rebalances().next_change()
    assert fakes.story == ["committed", "suspended 0_0", "acknowledged"]


def test_what_the_group_takes_no_commit_of_is_given_up_as_it_stands() -> None:
    """Its state on disk must not pass for what is committed: the next owner does the work again."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(RebalanceInProgressError("never"))
    fakes.rebalances().next_change()
    assert fakes.story == ["closed 0_0 dirty", "acknowledged"]


def test_tasks_that_stay_are_committed_with_those_that_go() -> None:
    """They share a producer, whose records are committed together or not at all."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.rebalances().next_change()
    assert [task.commit_needed for task in fakes.running] == [False]


def test_a_fenced_commit_drops_the_work_of_all_tasks() -> None:
    """A record of the task that stays may be lost as well: they share the producer."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(TaskMigratedError("fenced"))
    fakes.rebalances().next_change()
    assert fakes.story == ["closed 0_0 dirty", "closed 0_1 dirty", "forgot", "acknowledged"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TaskMigratedError("fenced"), "are not committed: fenced The uncommitted"),
        (RebalanceInProgressError("never"), "the group kept rebalancing for 1000 ms. The uncommit"),
        (UnfinishedError([]), "records in flight after waiting for 3000 ms. The uncommitted"),
    ],
    ids=["fenced", "rebalancing", "unfinished"],
)
def test_warnings_of_work_that_is_given_up_say_how_long_it_took(
    error: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Next to the limit: a transaction that the broker has ended and a slow group differ by it."""
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.all_or_nothing = True
    fakes.uncommitted.batch_began(fakes.clock.monotonic_ms())
    fakes.clock.advance(61_000)
    fakes.uncommitted.batch_ended(1, commit_interval_ms=100)
    fakes.on_commit = raising(error)
    # The first one is of a revoked task, the second one waits for what is in flight.
    fakes.on_drain = lambda tasks: None if tasks else fakes.clock.advance(3_000)
    fakes.rebalances().next_change()
    (message,) = [record.getMessage() for record in caplog.records if told in record.getMessage()]
    took = 61_000 + (1_000 if "1000" in told else 3_000 if "3000" in told else 0)
    assert f"work has taken {took} ms; limit: 60000 ms (transaction.timeout.ms)." in message
    assert fakes.uncommitted.described() == ""


def test_corrupted_state_does_not_keep_the_member_waiting() -> None:
    fakes = Fakes(Revoked(frozenset({ONE})))
    fakes.on_commit = raising(TaskCorruptedError("bad block", task_ids=[TaskId(0, 1)]))
    with pytest.raises(TaskCorruptedError):
        fakes.rebalances().next_change()
    assert fakes.story == ["closed 0_0 dirty", "acknowledged"]


def test_lost_tasks_are_closed_without_a_commit() -> None:
    fakes = Fakes(Lost(frozenset({ONE, OTHER})))
    fakes.rebalances().next_change()
    assert fakes.story == ["closed 0_0 dirty", "closed 0_1 dirty", "forgot", "acknowledged"]


def test_what_an_assignment_takes_away_is_committed_first() -> None:
    wanted = {TaskId(0, 0): frozenset({ONE})}
    fakes = Fakes(Assigned(frozenset({ONE}), b"", 7, "me"))
    fakes.rebalances(TaskAssignment(active=wanted)).next_change()
    assert fakes.story == ["committed", "assigned ['0_0']"]


def test_a_task_that_goes_to_another_thread_may_stay_as_a_standby() -> None:
    stays = TaskAssignment(standby={TaskId(0, 0): frozenset({ONE})})
    fakes = Fakes(Revoked(frozenset({ONE, OTHER})), Assigned(frozenset(), b"", 7, "me"))
    rebalances = fakes.rebalances(stays)
    rebalances.next_change()
    rebalances.next_change()
    assert fakes.story == [
        "committed",
        "suspended 0_0",
        "suspended 0_1",
        "acknowledged",
        "assigned ['0_0 (standby)']",
    ]


def test_a_follow_up_rebalance_is_asked_for_once_and_by_its_generation() -> None:
    wanted = {TaskId(0, 0): frozenset({ONE}), TaskId(0, 1): frozenset({OTHER})}
    fakes = Fakes(Assigned(frozenset({ONE, OTHER}), b"", 7, "me"))
    rebalances = fakes.rebalances(TaskAssignment(active=wanted, next_rebalance_ms=0))
    rebalances.next_change()
    assert rebalances.next_change() is None
    assert rebalances.next_change() is None
    assert fakes.rejoined == [7]


def test_a_wish_to_join_anew_waits_for_its_time() -> None:
    """The pause is none of the caller's, and the wish is that of the rebalance before it."""
    fakes = Fakes(Assigned(frozenset(), b"", 7, "me"))
    rebalances = fakes.rebalances()
    rebalances.next_change()
    rebalances.rejoin("fenced", 400)
    fakes.events.append(Assigned(frozenset(), b"", 8, "me"))
    fakes.clock.advance(399)
    rebalances.next_change()
    assert fakes.rejoined == []
    fakes.clock.advance(1)
    rebalances.next_change()
    rebalances.next_change()
    assert fakes.rejoined == [7]
    rebalances.rejoin("at once")
    assert fakes.rejoined == [7, 8]


def test_a_static_member_leaves_only_when_it_goes_for_good() -> None:
    """It comes back otherwise, and takes its tasks up again."""
    member: Any = Mock()
    others: Any = Mock()
    rebalances = Rebalances(
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
