"""What an application remembers: in order, with times, within bounds."""

from __future__ import annotations

from support.owned_tasks import owned

from millstream.application.story.events import OwnedTasks
from millstream.application.story.story import ApplicationStory
from millstream.clock import ManualClock
from millstream.errors import ProcessingError, StreamsError
from millstream.record import TaskId, TopicPartition
from millstream.runtime.control import RestoreEvent, RestoreStep
from millstream.runtime.states import ClientState, ThreadState

ONE, TWO = "app-StreamThread-1", "app-StreamThread-2"
REBALANCING, RUNNING = ClientState.REBALANCING, ClientState.RUNNING


def story() -> tuple[ApplicationStory, ManualClock]:
    clock = ManualClock(1_000)
    return ApplicationStory(clock), clock


def restore(
    kind: str, offset: int, end: int = 100, records: int = 0, partition: int = 0
) -> RestoreEvent:
    place = TopicPartition("app-counts-changelog", partition)
    task = TaskId(0, partition)
    return RestoreEvent(RestoreStep(kind), place, "counts", offset, end, records, task)


def test_a_rebalance_tells_who_had_and_who_has_which_tasks() -> None:
    """From the first thread that stops until all run, with what is told a moment later."""
    told, clock = story()
    told.state_changed(REBALANCING, ClientState.CREATED, "told to start")
    told.tasks_are(ONE, owned({"0_1": "CREATED", "0_10": "CREATED", "0_2": "STANDBY"}))
    clock.advance(500)
    told.state_changed(RUNNING, REBALANCING, "all run")
    clock.advance(5_000)
    told.state_changed(REBALANCING, RUNNING, "revoked")
    told.tasks_are(ONE, owned({"0_1": "RUNNING"}))
    clock.advance(700)
    told.state_changed(RUNNING, REBALANCING, "all run")
    told.tasks_are(TWO, owned({"0_10": "RUNNING"}))
    clock.advance(60_000)
    told.tasks_are(TWO, {})

    first, second = told.told().rebalances
    assert (first.before, first.after) == ({}, {ONE: OwnedTasks(("0_1", "0_10"), ("0_2",))})
    assert (first.began_ms, first.ended_ms) == (1_000, 1_500)
    assert second.number == 2
    assert second.before == first.after
    assert second.after == {ONE: OwnedTasks(("0_1",)), TWO: OwnedTasks(("0_10",))}
    assert (second.began_ms, second.ended_ms, second.why) == (6_500, 7_200, "revoked")


def test_a_failure_is_told_to_its_end() -> None:
    """The record's place, what was decided, and each step until the thread runs again."""
    told, clock = story()
    error = ProcessingError(
        "The function raised.", task_id=TaskId(0, 3), topic="in", partition=3, offset=42, node="N"
    )
    error.__cause__ = ZeroDivisionError("division by zero")
    told.failed(ONE, error, "REPLACE_THREAD")
    clock.advance(10)
    told.thread_is(ONE, ThreadState.DEAD, "failed")
    told.step(ONE, "runs in process 7 on here")
    told.thread_is(ONE, ThreadState.RUNNING, "has its tasks")
    told.thread_is(ONE, ThreadState.PARTITIONS_REVOKED, "of another story")
    told.step(TWO, "has not failed")

    (failure,) = told.told().failures
    assert (failure.thread, failure.error, failure.answer) == (
        ONE,
        "ProcessingError",
        "REPLACE_THREAD",
    )
    assert (failure.task, failure.topic, failure.partition, failure.offset, failure.node) == (
        "0_3",
        "in",
        3,
        42,
        "N",
    )
    assert any("division by zero" in line for line in failure.stack)
    assert [step.text for step in failure.steps] == [
        "DEAD: failed",
        "runs in process 7 on here",
        "RUNNING: has its tasks",
    ]
    assert failure.steps[0].at_ms == 1_010
    assert failure.over


def test_restorations_move_and_end() -> None:
    """Offsets count from the start; a standby goes on until it becomes active or moves."""
    told, clock = story()
    told.restored(ONE, restore("start", 20))
    told.restored(ONE, restore("standby start", 5, end=-1, partition=1))
    clock.advance(100)
    told.restored(ONE, restore("batch", 59, records=40))
    active, standby = told.told().restores
    assert (active.kind, active.start, active.at, active.end, active.records, active.state) == (
        "active",
        20,
        60,
        100,
        40,
        "running",
    )
    assert (standby.kind, standby.at, standby.end) == ("standby", 5, 5)
    told.restored(ONE, restore("end", 100, records=80))
    told.restored(ONE, restore("standby batch", 49, end=60, records=10, partition=1))
    standby, active = told.told().restores
    assert (active.state, active.at, active.told_ms) == ("done", 100, 1_100)
    assert (standby.state, standby.at, standby.end) == ("running", 50, 60)
    told.thread_is(ONE, ThreadState.DEAD, "gone")
    assert [each.state for each in told.told().restores] == ["suspended", "done"]


def test_rates_are_of_the_last_seconds() -> None:
    """A thread's first report is no rate; one that counts anew does not go back."""
    told, clock = story()
    told.counted(ONE, {"0_0": 5_000})
    assert told.told().rates == {(ONE, "0_0"): 0.0}
    for total in (5_100, 5_200, 5_300):
        clock.advance(1_000)
        told.counted(ONE, {"0_0": total})
    assert told.told().rates == {(ONE, "0_0"): 100.0}
    told.counted(ONE, {"0_0": 3})
    clock.advance(1_000)
    told.counted(ONE, {"0_0": 53})
    clock.advance(1_000)
    assert told.told().rates == {(ONE, "0_0"): 50.0}
    assert told.told().history == (0, 100, 100, 100, 50)
    told.thread_is(ONE, ThreadState.DEAD, "gone")
    assert told.told().rates == {}


def test_all_of_it_is_bounded() -> None:
    """However long an application lives, and however badly."""
    told, clock = story()
    for number in range(1_000):
        clock.advance(1_000)
        told.state_changed(REBALANCING, RUNNING, "again")
        told.state_changed(RUNNING, REBALANCING, "again")
        told.failed(ONE, StreamsError("x" * 100_000), "REPLACE_THREAD")
        for _ in range(50):
            told.step(ONE, "tries")
        told.counted(ONE, {f"0_{number}": number})
        told.restored(ONE, restore("start", 0, partition=number))
        told.restored(ONE, restore("end", 100, partition=number))
    seen = told.told()
    assert len(seen.states) == 200
    assert [each.number for each in seen.rebalances] == list(range(901, 1_001))
    assert [each.number for each in seen.failures] == list(range(901, 1_001))
    assert all(len(each.steps) == 40 for each in seen.failures)
    assert all(sum(map(len, each.stack)) <= 12_000 for each in seen.failures)
    assert all(len(each.message) <= 4_000 for each in seen.failures)
    assert len(seen.restores) == 200
    assert len(seen.rates) == 1
    assert 299 <= len(seen.history) <= 300
