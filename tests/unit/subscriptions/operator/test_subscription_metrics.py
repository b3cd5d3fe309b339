"""The metrics of a subscription."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.tasks.subscribed_task import PLACE, SubscribedTask

from millstream.clock import ManualClock, SystemClock
from millstream.parallel import Metric, Metrics, ProcessingContext, Retry
from millstream.subscriptions.api.subscription import aggregate_metrics

LABELS = (("topic", "tasks"), ("partition", "0"))


def work(context: ProcessingContext, task: str) -> None:
    if task == "fails":
        raise RuntimeError("no")
    if task == "again":
        context.retry()


@pytest.mark.parametrize("concurrency", [1, 3])
def test_counters_and_gauges(concurrency: int) -> None:
    retry = Retry(backoff=timedelta(seconds=9))
    with SubscribedTask(
        work,
        concurrency=concurrency,
        retry=retry,
        on_error="skip",
        ignore_keys=["ignored"],
        clock=ManualClock(1_500),
    ) as sub:
        sub.feed("one", "fails", "again", "ignored", "two")
        sub.until(lambda: sub.counted("tasks.processed") == 4, "all are processed")
        sub.drain()
        gauges = {"tasks.pending": 1, "partition.paused": 0, "offset.latest.consumed": 4}
        assert {name: sub.counted(name) for name in gauges} == gauges
        sub.commit()
        counts = {
            "records.consumed": 5,
            "tasks.processed": 4,
            "tasks.error": 1,
            "tasks.ignored": 1,
            "retry.queued.tasks": 1,
            "retry.task.retries.count": 1,
            "retry.task.retries.max": 1,
            "tasks.process.duration.count": 4,
            "tasks.complete.duration.count": 4,
            "tasks.delivery.latency.count": 4,
            "tasks.delivery.latency.max": 500,
            "tasks.pending": 0,
        }
        assert {name: sub.counted(name) for name in counts} == counts
        all_values = {
            (name, labels): value
            for name, labels, value in sub.share.all_metrics([sub.task.committed])
        }
        assert all_values["offset.last.committed", LABELS] == 4
        assert all_values["tasks.error", LABELS] == 1
    names = {name for name, _ in sub.share.metrics.all()}
    assert "tasks.pending" not in names, "the state of a released partition is unknown"
    assert "tasks.processed" in names


def test_times_are_in_milliseconds() -> None:
    with SubscribedTask(lambda context, task: SystemClock().sleep_ms(20)) as sub:
        sub.feed("one", "two")
        sub.step()
        assert 40 <= sub.counted("tasks.process.duration.sum") < 4_000
        assert 20 <= sub.counted("tasks.process.duration.max") < 2_000


def test_metrics_of_threads_are_merged() -> None:
    """A partition that has moved was counted by both threads; the highest maximum counts."""
    other = (("topic", "tasks"), ("partition", "1"))
    threads = [
        ("tasks.processed", "1", LABELS, 3.0),
        ("tasks.process.duration.max", "1", LABELS, 7.0),
        ("tasks.processed", "1", other, 1.0),
        ("tasks.processed", "2", LABELS, 4.0),
        ("tasks.process.duration.max", "2", LABELS, 5.0),
    ]
    group = "subscription-metrics"
    metrics = aggregate_metrics(
        "sub",
        [
            *(
                Metric(n, {"thread-id": t, **dict(partition_labels)}, value, group)
                for n, t, partition_labels, value in threads
            ),
            Metric("process-total", {"thread-id": "1"}, 9.0, "stream-thread-metrics"),
        ],
    )
    labels = {"subscription": "sub", "topic": "tasks", "partition": "0"}
    assert list(metrics) == [
        Metric("tasks.process.duration.max", labels, 7.0, group),
        Metric("tasks.processed", labels, 7.0, group),
        Metric("tasks.processed", {**labels, "partition": "1"}, 1.0, group),
    ]
    assert metrics.total("tasks.processed") == 8
    assert metrics.total("tasks.processed", partition="1") == 1
    assert metrics.total("tasks.process.duration.max") == 7
    assert (len(metrics), metrics[0].value, repr(metrics)) == (
        3,
        7.0,
        "<Metrics: 3 values>",
    )
    assert isinstance(metrics, Metrics)
    assert PLACE.topic == "tasks"
