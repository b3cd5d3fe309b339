"""The numbers of the console, from metrics; and rates."""

from __future__ import annotations

from millstream.application.view.numbers import Meter, numbers_of
from millstream.clock import ManualClock
from millstream.metrics.frames import FrameReader, FrameWriter
from millstream.metrics.values import Metric
from millstream.record import TaskId
from millstream.runtime.task.task_meters import TaskMeters
from millstream.state.storage.rocksdb_statistics import STORE_GROUP
from millstream.structured.progress import DATAFRAME_GROUP


def test_metrics_of_user_code_are_not_counted_whatever_they_are_called() -> None:
    """They are in their task's scope, under a group and labels of the user's choice."""
    meters = TaskMeters(TaskId(0, 0), ManualClock())
    meters.processed(0, 100, 5)
    names = ("process", "commit", "state-rebuilt", "dropped-records")
    for name in (*names, "records-consumed", "records-produced"):
        sensor = meters.view.add_rate_total_sensor(
            *("http", "prices", name), processor_node_id="node", topic="orders"
        )
        sensor.record(7)
    reader = FrameReader()
    reader.take(FrameWriter(meters.scope).whole())
    found = numbers_of(reader.metrics())
    assert (found.processed, found.commits, found.rebuilt, found.dropped) == (0, 0, 0, 0)
    assert (found.read, found.written, found.through) == ({}, {}, {})


def test_metrics_of_user_code_are_no_dataframe_function() -> None:
    """Its groups may be called like that of DataFrame functions; it lacks most of their metrics."""
    labels = {"thread-id": "t1", "task-id": "0_0", "dataframe-id": "score"}
    assert numbers_of([Metric("rows-total", labels, 5.0, DATAFRAME_GROUP)]).dataframes == {}


def test_copies_are_no_further_entries() -> None:
    """A task and its copy may be in one application, on two of its hosts."""
    values = [
        Metric(
            "estimate-num-keys",
            {"thread-id": thread, "task-id": task, "rocksdb-state-id": "counts"},
            100,
            STORE_GROUP,
        )
        for thread in ("t1", "t2")
        for task in ("0_0", "0_1")
    ]
    assert numbers_of(values).entries == {"counts": 400}
    assert numbers_of(values, {("t1", "0_1"), ("t2", "0_0")}).entries == {"counts": 200}


def test_a_rate_is_of_the_last_seconds() -> None:
    """None at the first look, after a long pause, and where counting began anew."""
    meter = Meter()
    assert meter.rate("edge", 100, 0) is None
    assert meter.rate("edge", 300, 1_000) == 200
    for second in range(2, 10):
        meter.rate("edge", 300, 1_000 * second)
    assert meter.rate("edge", 300, 10_000) == 0
    assert meter.rate("edge", 90_000, 60_000) is None
    assert meter.rate("edge", 90_050, 61_000) == 50
    assert meter.rate("edge", 7, 62_000) is None
