"""Thread metrics of the loop, rebalances and restorations."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.metrics.registry import RecordingLevel, RecordingSettings
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.rebalances import RebalanceResult
from millstream.runtime.loop.thread_meters import InputLag, ThreadMeters
from millstream.runtime.states.thread_states import ThreadState
from millstream.runtime.task.task_meters import TaskMeters
from millstream.runtime.task_management.restore_reports import RestoreMeters
from millstream.runtime.thread_control import RestoreEvent, RestoreStep

THREAD, TASK, UPDATER = (
    "stream-thread-metrics",
    "stream-task-metrics",
    "stream-state-updater-metrics",
)


class Thread:
    """Meters of a thread with two tasks."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000)
        recording = RecordingSettings(RecordingLevel.DEBUG)
        self.meters = ThreadMeters("thread", self.clock, recording)
        self.works: list[Any] = [
            Mock(
                task_id=TaskId(0, number),
                meters=TaskMeters(
                    TaskId(0, number),
                    self.clock,
                    recording,
                    self.meters.scope.labels,
                    self.meters.task_sensors,
                ),
            )
            for number in range(2)
        ]
        self.meters.set_tasks(self.works)

    def of(self, name: str, group: str = THREAD, task: str | None = None) -> float | str:
        (value,) = (
            value
            for key, value in self.meters.scope.read().items()
            if (key.name, key.group) == (name, group)
            and (task is None or ("task-id", task) in key.labels)
        )
        return value

    def after(self, milliseconds: int) -> int:
        """Advance the clock, and return its previous time."""
        began_ms = self.clock.monotonic_ms()
        self.clock.advance(milliseconds)
        return began_ms


def test_the_loop_time_is_divided_into_ratios() -> None:
    thread = Thread()
    meters = thread.meters
    records: Any = {TopicPartition("in", 0): Mock(offsets=range(30))}
    meters.record_poll(records, thread.after(100))
    meters.processed(thread.works[0], 20, thread.after(400))
    meters.processed(thread.works[1], 10, thread.after(100))
    thread.works[1].meters.punctuated(50)
    meters.committed.record(200)
    thread.after(400)
    meters.begin_round()
    assert thread.of("poll-ratio") == pytest.approx(0.1)
    assert thread.of("process-ratio") == pytest.approx(0.5)
    assert thread.of("punctuate-ratio") == pytest.approx(0.05)
    assert thread.of("commit-ratio") == pytest.approx(0.2)
    assert thread.of("active-process-ratio", TASK, "0_0") == pytest.approx(0.8)
    assert thread.of("active-process-ratio", TASK, "0_1") == pytest.approx(0.2)
    assert thread.of("process-total") == 30
    assert thread.of("process-total", TASK, "0_1") == 10
    assert thread.of("process-records-avg") == 15
    assert thread.of("process-records-max") == 20
    assert thread.of("process-latency-avg") == pytest.approx(500 / 30)
    assert thread.of("process-latency-max") == 20
    assert thread.of("process-latency-max", TASK, "0_1") == 10
    assert thread.of("poll-records-max") == 30
    assert thread.of("poll-total") == thread.of("commit-total") == 1
    assert thread.of("punctuate-total") == thread.of("punctuate-total", TASK, "0_1") == 1
    assert thread.of("commit-latency-max") == 200


def test_created_and_closed_tasks_are_counted() -> None:
    thread = Thread()
    assert (thread.of("task-created-total"), thread.of("task-closed-total")) == (2, 0)
    thread.meters.set_tasks(thread.works[1:])
    assert (thread.of("task-created-total"), thread.of("task-closed-total")) == (2, 1)
    left = {key.labels for key in thread.meters.scope.read() if key.group == TASK}
    assert left == {(("thread-id", "thread"), ("task-id", "0_1"))}
    for change in (
        RebalanceResult("r", revoked=True),
        RebalanceResult("l", revoked=True, lost=True),
        RebalanceResult("a", assigned=True),
    ):
        thread.meters.record_rebalance(change, thread.after(len(change.why) * 7))
    for change_name in ("revoked", "lost", "assigned"):
        assert thread.of(f"tasks-{change_name}-latency-max") == 7
    thread.meters.set_state(ThreadState.RUNNING)
    assert (thread.of("state"), thread.of("thread-state")) == ("RUNNING", 4)
    assert thread.of("thread-start-time") == 1_000


def test_restorations_are_measured_until_their_end() -> None:
    thread = Thread()
    reported: list[RestoreEvent] = []
    meters = thread.meters
    restored = RestoreMeters(
        meters.scope,
        meters.rounds,
        meters.restoring,
        meters.task,
        lambda: meters.paused,
        reported.append,
    )

    def report(step: RestoreStep, task: int, offset: int, records: int = 0) -> None:
        place = TopicPartition("log", task)
        restored(RestoreEvent(step, place, "counts", offset, 100, records, TaskId(0, task)))

    report(RestoreStep.START, 0, 40)
    report(RestoreStep.STANDBY_START, 1, 0)
    assert thread.of("restore-remaining-records-total", TASK, "0_0") == 60
    assert thread.of("restore-remaining-records-total", TASK, "0_1") == 0
    report(RestoreStep.BATCH, 0, 69, 30)
    report(RestoreStep.STANDBY_BATCH, 1, 9, 10)
    assert thread.of("restore-remaining-records-total", TASK, "0_0") == 30
    assert thread.of("restore-total", TASK, "0_0") == 30
    assert thread.of("update-total", TASK, "0_1") == 10
    assert thread.of("restore-records-rate", UPDATER) == pytest.approx(40 / 30)
    assert thread.of("restore-call-rate", UPDATER) == pytest.approx(2 / 30)
    names = ("active-restoring-tasks", "standby-updating-tasks")
    paused = ("active-paused-tasks", "standby-paused-tasks")
    assert [thread.of(name, UPDATER) for name in (*names, *paused)] == [1, 1, 0, 0]
    meters.paused = True
    assert [thread.of(name, UPDATER) for name in (*names, *paused)] == [0, 0, 1, 1]
    meters.paused = False
    meters.record_restoring(thread.after(300), standby=False)
    meters.record_restoring(thread.after(100), standby=True)
    thread.after(600)
    meters.begin_round()
    assert thread.of("active-restore-ratio", UPDATER) == pytest.approx(0.3)
    assert thread.of("standby-update-ratio", UPDATER) == pytest.approx(0.1)
    assert thread.of("idle-ratio", UPDATER) == pytest.approx(0.6)
    report(RestoreStep.END, 0, 100, 60)
    report(RestoreStep.STANDBY_PROMOTED, 1, 10)
    assert [thread.of(name, UPDATER) for name in names] == [0, 0]
    assert thread.of("restore-remaining-records-total", TASK, "0_0") == 0
    assert len(reported) == 6


def test_lags_are_current() -> None:
    thread = Thread()
    first, other = TopicPartition("in", 0), TopicPartition("in", 1)
    thread.meters.set_lags([InputLag(TaskId(0, 0), first, 7), InputLag(TaskId(0, 1), other, 9)])
    assert thread.of("records-lag", "consumer-fetch-manager-metrics", "0_1") == 9
    thread.meters.set_lags([InputLag(TaskId(0, 0), first, 3)])
    assert thread.of("records-lag", "consumer-fetch-manager-metrics") == 3


def test_subscription_metrics_are_replaced() -> None:
    thread = Thread()
    labels = (("topic", "emails"), ("partition", "0"))
    thread.meters.set_subscription_metrics(
        [("tasks.processed", labels, 1.0), ("tasks.pending", labels, 7.0)]
    )
    assert thread.of("tasks.pending", "subscription-metrics") == 7
    thread.meters.set_subscription_metrics([("tasks.processed", labels, 2.0)])
    names = {key.name for key in thread.meters.scope.read() if "." in key.name}
    assert names == {"tasks.processed"}
    assert thread.of("tasks.processed", "subscription-metrics") == 2
