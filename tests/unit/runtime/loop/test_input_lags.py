"""Input lags: records on the broker and in the queues of tasks."""

from __future__ import annotations

from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.thread_meters import InputLag, ThreadMeters, input_lags

TASK = TaskId(0, 0)
FIRST, SECOND, THIRD = (TopicPartition("in", partition) for partition in range(3))


def task_with(*places: TopicPartition, waiting: int) -> Mock:
    return Mock(task_id=TASK, partitions=frozenset(places), buffered_in=lambda place: waiting)


def test_lag_counts_records_on_the_broker_and_in_queues() -> None:
    """A partition without a position has no lag, and a truncated partition no negative lag."""
    consumer = Mock()
    consumer.position = {FIRST: 40, SECOND: 10, THIRD: -1001}.get
    consumer.high_watermark = {FIRST: 100, SECOND: 7, THIRD: 5}.get
    tasks = [task_with(FIRST, waiting=5), task_with(SECOND, THIRD, waiting=0)]
    assert input_lags(consumer, tasks) == [(TASK, FIRST, 65), (TASK, SECOND, 0)]


def test_lag_metric_is_removed_with_its_partition() -> None:
    """The metric is labeled with the topic and the partition."""
    meters = ThreadMeters("thread", ManualClock())

    def lags() -> dict[str, float | str]:
        keys, values = meters.scope.all_keys(), meters.scope.values()
        return {
            dict(key.labels)["partition"]: value
            for key, value in zip(keys, values, strict=True)
            if key.name == "records-lag" and dict(key.labels)["topic"] == "in"
        }

    meters.set_lags([InputLag(TASK, FIRST, 3), InputLag(TASK, SECOND, 4)])
    assert lags() == {"0": 3, "1": 4}
    meters.set_lags([InputLag(TASK, SECOND, 9)])
    assert lags() == {"1": 9}
    meters.set_lags([InputLag(TASK, SECOND, 0), InputLag(TASK, THIRD, 1)])
    assert lags() == {"1": 0, "2": 1}
