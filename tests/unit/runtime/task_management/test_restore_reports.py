"""Restoration is reported to its listeners, and costs nothing without listeners."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task_management.restore_reports import RestoreReportOptions, RestoreReports
from millstream.runtime.thread_control import RestoreEvent, RestoreStep

RARE = ["start", "end", "suspended", "standby start", "standby migrated", "standby promoted"]
BATCHES = ["batch", "standby batch"]


def event(kind: str, partition: int = 0, offset: int = 0) -> RestoreEvent:
    place = TopicPartition("app-counts-changelog", partition)
    return RestoreEvent(RestoreStep(kind), place, "counts", offset, 100, 1, TaskId(0, partition))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (RestoreReportOptions(), []),
        (RestoreReportOptions(restore_listener=True), ["batch"]),
        (RestoreReportOptions(standby_listener=True), ["standby batch"]),
        (
            RestoreReportOptions(restore_listener=True, standby_listener=True, progress_bars=True),
            BATCHES,
        ),
    ],
)
def test_batches_are_reported_to_their_listeners(
    options: RestoreReportOptions, expected: list[str]
) -> None:
    """All batches; starts and ends are always reported."""
    control = Mock()
    reports = RestoreReports(control, options, ManualClock())
    for kind in [*RARE, *BATCHES, *BATCHES]:
        reports(event(kind))
    assert [call.args[0].step.value for call in control.report.call_args_list] == [
        *RARE,
        *expected,
        *expected,
    ]


def test_progress_bars_move_several_times_per_second() -> None:
    """Independently of each other; a new restoration is reported at once."""
    control, clock = Mock(), ManualClock()
    reports = RestoreReports(control, RestoreReportOptions(progress_bars=True), clock)
    for _ in range(100):
        reports(event("batch", 0))
        reports(event("batch", 1))
        reports(event("standby batch", 2))
        clock.advance(10)
    places = [call.args[0].topic_partition.partition for call in control.report.call_args_list]
    assert places == [0, 1] * 5
    for partition in (0, 1):
        clock.advance(1)
        reports(event("end", partition))
        reports(event("batch", partition))
    assert control.report.call_count == 10 + 4


def test_event_log_receives_the_progress_of_all_copies() -> None:
    """Once per second for each copy, including standbys."""
    control, clock = Mock(), ManualClock()
    reports = RestoreReports(control, RestoreReportOptions(event_log=True), clock)
    for _ in range(30):
        reports(event("batch", 0))
        reports(event("standby batch", 1))
        clock.advance(100)
    places = [call.args[0].topic_partition.partition for call in control.report.call_args_list]
    assert places == [0, 1] * 3
