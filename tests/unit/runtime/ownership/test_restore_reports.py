"""What is restored is told to those who listen, and costs nothing where nobody does."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.record import TaskId, TopicPartition
from millstream.runtime.control import RestoreEvent, RestoreStep
from millstream.runtime.ownership.restore_reports import RestoreAudience, RestoreReports

RARE = ["start", "end", "suspended", "standby start", "standby migrated", "standby promoted"]
BATCHES = ["batch", "standby batch"]


def event(kind: str, partition: int = 0, offset: int = 0) -> RestoreEvent:
    place = TopicPartition("app-counts-changelog", partition)
    return RestoreEvent(RestoreStep(kind), place, "counts", offset, 100, 1, TaskId(0, partition))


@pytest.mark.parametrize(
    ("audience", "wanted"),
    [
        (RestoreAudience(), []),
        (RestoreAudience(restore_listener=True), ["batch"]),
        (RestoreAudience(standby_listener=True), ["standby batch"]),
        (RestoreAudience(restore_listener=True, standby_listener=True, bars=True), BATCHES),
    ],
)
def test_batches_go_to_those_who_listen(audience: RestoreAudience, wanted: list[str]) -> None:
    """All of them; starts and ends go always."""
    control = Mock()
    reports = RestoreReports(control, audience, ManualClock())
    for kind in [*RARE, *BATCHES, *BATCHES]:
        reports(event(kind))
    assert [call.args[0].step.value for call in control.report.call_args_list] == [
        *RARE,
        *wanted,
        *wanted,
    ]


def test_a_bar_moves_some_times_a_second() -> None:
    """Each of its own, and the next restoration's at once."""
    control, clock = Mock(), ManualClock()
    reports = RestoreReports(control, RestoreAudience(bars=True), clock)
    for _ in range(100):
        reports(event("batch", 0))
        reports(event("batch", 1))
        reports(event("standby batch", 2))
        clock.advance(10)
    places = [call.args[0].place.partition for call in control.report.call_args_list]
    assert places == [0, 1] * 5
    for partition in (0, 1):
        clock.advance(1)
        reports(event("end", partition))
        reports(event("batch", partition))
    assert control.report.call_count == 10 + 4


def test_the_driver_remembers_how_far_all_copies_are() -> None:
    """Once a second for each, standbys included: nobody waits for these."""
    control, clock = Mock(), ManualClock()
    reports = RestoreReports(control, RestoreAudience(story=True), clock)
    for _ in range(30):
        reports(event("batch", 0))
        reports(event("standby batch", 1))
        clock.advance(100)
    places = [call.args[0].place.partition for call in control.report.call_args_list]
    assert places == [0, 1] * 3
