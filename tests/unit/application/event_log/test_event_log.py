"""The event log: in order, with times, bounded."""

from __future__ import annotations

from support.owned_tasks import owned

from millstream.application.event_log.event_log import EventLog
from millstream.application.event_log.event_types import OwnedTasks
from millstream.clock import ManualClock
from millstream.errors import ProcessingError, StreamsError
from millstream.record import TaskId, TopicPartition
from millstream.runtime.states.thread_states import ClientState, ThreadState
from millstream.runtime.thread_control import RestoreEvent, RestoreStep

ONE, TWO = "app-StreamThread-1", "app-StreamThread-2"
REBALANCING, RUNNING = ClientState.REBALANCING, ClientState.RUNNING


def event_log() -> tuple[EventLog, ManualClock]:
    clock = ManualClock(1_000)
    return EventLog(clock), clock


def restore(
    kind: str, offset: int, end: int = 100, records: int = 0, partition: int = 0
) -> RestoreEvent:
    place = TopicPartition("app-counts-changelog", partition)
    task = TaskId(0, partition)
    return RestoreEvent(RestoreStep(kind), place, "counts", offset, end, records, task)


def test_a_rebalance_shows_the_tasks_of_threads_before_and_after() -> None:
    """From the first thread that stops until all are running, including assignments reported a
    moment later."""
    log, clock = event_log()
    log.state_changed(REBALANCING, ClientState.CREATED, "start requested")
    log.tasks_changed(ONE, owned({"0_1": "CREATED", "0_10": "CREATED", "0_2": "STANDBY"}))
    clock.advance(500)
    log.state_changed(RUNNING, REBALANCING, "all run")
    clock.advance(5_000)
    log.state_changed(REBALANCING, RUNNING, "revoked")
    log.tasks_changed(ONE, owned({"0_1": "RUNNING"}))
    clock.advance(700)
    log.state_changed(RUNNING, REBALANCING, "all run")
    log.tasks_changed(TWO, owned({"0_10": "RUNNING"}))
    clock.advance(60_000)
    log.tasks_changed(TWO, {})

    first, second = log.snapshot().rebalances
    assert (first.before, first.after) == ({}, {ONE: OwnedTasks(("0_1", "0_10"), ("0_2",))})
    assert (first.began_ms, first.ended_ms) == (1_000, 1_500)
    assert second.number == 2
    assert second.before == first.after
    assert second.after == {ONE: OwnedTasks(("0_1",)), TWO: OwnedTasks(("0_10",))}
    assert (second.began_ms, second.ended_ms, second.why) == (6_500, 7_200, "revoked")


def test_a_failure_is_recorded_until_recovery() -> None:
    """The record's position, the handler's answer, and each step until the thread is running
    again."""
    log, clock = event_log()
    error = ProcessingError(
        "The function raised.", task_id=TaskId(0, 3), topic="in", partition=3, offset=42, node="N"
    )
    error.__cause__ = ZeroDivisionError("division by zero")
    log.add_failure(ONE, error, "REPLACE_THREAD")
    clock.advance(10)
    log.thread_state_changed(ONE, ThreadState.DEAD, "failed")
    log.add_step(ONE, "runs in process 7 on here")
    log.thread_state_changed(ONE, ThreadState.RUNNING, "has its tasks")
    log.thread_state_changed(ONE, ThreadState.PARTITIONS_REVOKED, "of another story")
    log.add_step(TWO, "has not failed")

    (failure,) = log.snapshot().failures
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


def test_restorations_progress_and_end() -> None:
    """Offsets count from the start; a standby's restoration continues until it becomes active or
    moves."""
    log, clock = event_log()
    log.restore_progressed(ONE, restore("start", 20))
    log.restore_progressed(ONE, restore("standby start", 5, end=-1, partition=1))
    clock.advance(100)
    log.restore_progressed(ONE, restore("batch", 59, records=40))
    active, standby = log.snapshot().restores
    assert (active.kind, active.start, active.at, active.end, active.records, active.state) == (
        "active",
        20,
        60,
        100,
        40,
        "running",
    )
    assert (standby.kind, standby.at, standby.end) == ("standby", 5, 5)
    log.restore_progressed(ONE, restore("end", 100, records=80))
    log.restore_progressed(ONE, restore("standby batch", 49, end=60, records=10, partition=1))
    standby, active = log.snapshot().restores
    assert (active.state, active.at, active.told_ms) == ("done", 100, 1_100)
    assert (standby.state, standby.at, standby.end) == ("running", 50, 60)
    log.thread_state_changed(ONE, ThreadState.DEAD, "gone")
    assert [each.state for each in log.snapshot().restores] == ["suspended", "done"]


def test_rates_cover_the_last_seconds() -> None:
    """A thread's first report has no rate; a counter that restarts does not yield a negative
    rate."""
    log, clock = event_log()
    log.records_processed(ONE, {"0_0": 5_000})
    assert log.snapshot().rates == {(ONE, "0_0"): 0.0}
    for total in (5_100, 5_200, 5_300):
        clock.advance(1_000)
        log.records_processed(ONE, {"0_0": total})
    assert log.snapshot().rates == {(ONE, "0_0"): 100.0}
    log.records_processed(ONE, {"0_0": 3})
    clock.advance(1_000)
    log.records_processed(ONE, {"0_0": 53})
    clock.advance(1_000)
    assert log.snapshot().rates == {(ONE, "0_0"): 50.0}
    assert log.snapshot().history == (0, 100, 100, 100, 50)
    log.thread_state_changed(ONE, ThreadState.DEAD, "gone")
    assert log.snapshot().rates == {}


def test_the_event_log_is_bounded() -> None:
    """Regardless of an application's lifetime and number of failures."""
    log, clock = event_log()
    for number in range(1_000):
        clock.advance(1_000)
        log.state_changed(REBALANCING, RUNNING, "again")
        log.state_changed(RUNNING, REBALANCING, "again")
        log.add_failure(ONE, StreamsError("x" * 100_000), "REPLACE_THREAD")
        for _ in range(50):
            log.add_step(ONE, "tries")
        log.records_processed(ONE, {f"0_{number}": number})
        log.restore_progressed(ONE, restore("start", 0, partition=number))
        log.restore_progressed(ONE, restore("end", 100, partition=number))
    seen = log.snapshot()
    assert len(seen.states) == 200
    assert [each.number for each in seen.rebalances] == list(range(901, 1_001))
    assert [each.number for each in seen.failures] == list(range(901, 1_001))
    assert all(len(each.steps) == 40 for each in seen.failures)
    assert all(sum(map(len, each.stack)) <= 12_000 for each in seen.failures)
    assert all(len(each.message) <= 4_000 for each in seen.failures)
    assert len(seen.restores) == 200
    assert len(seen.rates) == 1
    assert 299 <= len(seen.history) <= 300
