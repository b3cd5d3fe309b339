"""What goes to changelogs: to which partition, and with which time."""

from __future__ import annotations

from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.record import TaskId
from millstream.runtime.collector import KafkaCollector


def test_a_change_without_a_time_gets_that_of_the_threads_clock() -> None:
    producer = Mock()
    collector = KafkaCollector(producer, Mock(), ManualClock(5_000))
    changelogs = collector.changelog_writer(TaskId(0, 3), {"counts": "app-counts-changelog"})
    changelogs.log_many("counts", [b"a", b"b"], [b"1", None], None)
    producer.send_many.assert_called_once_with(
        "app-counts-changelog", 3, [b"a", b"b"], [b"1", None], [5_000, 5_000], None
    )
    producer.send_many.reset_mock()
    changelogs.log_many("not logged", [b"a"], [b"1"], None)
    producer.send_many.assert_not_called()
