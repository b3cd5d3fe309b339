"""What waits for tasks: on the broker and here, as far as it is known."""

from __future__ import annotations

from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.input_lags import input_lags
from millstream.runtime.loop.thread_meters import ThreadMeters

TASK = TaskId(0, 0)
FIRST, SECOND, THIRD = (TopicPartition("in", partition) for partition in range(3))


def work(*places: TopicPartition, waiting: int) -> Mock:
    return Mock(task_id=TASK, partitions=frozenset(places), waiting_in=lambda place: waiting)


def test_records_wait_on_the_broker_and_in_queues() -> None:
    """A partition that was not begun yet has no lag; one that was truncated has no negative
    one."""
    consumer = Mock()
    consumer.position = {FIRST: 40, SECOND: 10, THIRD: -1001}.get
    consumer.high_watermark = {FIRST: 100, SECOND: 7, THIRD: 5}.get
    tasks = [work(FIRST, waiting=5), work(SECOND, THIRD, waiting=0)]
    assert input_lags(consumer, tasks) == [(TASK, FIRST, 65), (TASK, SECOND, 0)]


def test_the_lag_of_a_partition_goes_with_it() -> None:
    """It is told as long as the partition is read, with its topic and number."""
    meters = ThreadMeters("thread", ManualClock())

    def told() -> dict[str, float | str]:
        keys, values = meters.scope.all_keys(), meters.scope.values()
        return {
            dict(key.labels)["partition"]: value
            for key, value in zip(keys, values, strict=True)
            if key.name == "records-lag" and dict(key.labels)["topic"] == "in"
        }

    meters.lags_are([(TASK, FIRST, 3), (TASK, SECOND, 4)])
    assert told() == {"0": 3, "1": 4}
    meters.lags_are([(TASK, SECOND, 9)])
    assert told() == {"1": 9}
    meters.lags_are([(TASK, SECOND, 0), (TASK, THIRD, 1)])
    assert told() == {"1": 0, "2": 1}
