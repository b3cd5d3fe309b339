"""The numbers and rates of the console, computed from metrics."""

from __future__ import annotations

from millstream.application.console.metric_summary import RateMeter, summarize
from millstream.clock import ManualClock
from millstream.dataframes.progress import DATAFRAME_GROUP
from millstream.metrics.metric_frames import FrameReader, FrameWriter
from millstream.metrics.values import Metric
from millstream.record import TaskId
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.task.task_meters import TaskMeters
from millstream.state.storage.rocksdb_statistics import STORE_GROUP


def test_metrics_of_user_code_are_not_counted_regardless_of_their_names() -> None:
    """Metrics of user code are in their task's scope, with a group and labels chosen by the
    user."""
    meters = TaskMeters(TaskId(0, 0), ManualClock())
    meters.processed(0, 100, 5)
    names = ("process", "commit", "state-rebuilt", "dropped-records", "dead-letters")
    for name in (*names, "records-consumed", "records-produced"):
        sensor = meters.user_metrics.add_rate_total_sensor(
            *("http", "prices", name), processor_node_id="node", topic="orders"
        )
        sensor.record(7)
    reader = FrameReader()
    reader.apply(FrameWriter(meters.scope).full())
    found = summarize(reader.metrics())
    assert (found.processed, found.commits, found.rebuilt, found.dropped) == (0, 0, 0, 0)
    assert (found.read, found.written, found.through) == ({}, {}, {})
    assert found.dead_letters == {}


def test_dead_letters_of_all_threads_are_added() -> None:
    """By node, kind of exception handler, and topic."""
    values = []
    for thread in ("t1", "t2"):
        meters = ThreadMeters(thread, ManualClock())
        for _ in range(2):
            meters.dead_letters.add("map", "processing", "letters")
        meters.dead_letters.add("read", "deserialization", "letters")
        reader = FrameReader()
        reader.apply(FrameWriter(meters.scope).full())
        values += reader.metrics()
    assert summarize(values).dead_letters == {
        ("map", "processing", "letters"): 4,
        ("read", "deserialization", "letters"): 2,
    }


def test_metrics_of_user_code_do_not_create_dataframe_functions() -> None:
    """The group of a user's metrics may have the same name, but it lacks most metrics of a
    DataFrame function."""
    labels = {"thread-id": "t1", "task-id": "0_0", "dataframe-id": "score"}
    assert summarize([Metric("rows-total", labels, 5.0, DATAFRAME_GROUP)]).dataframes == {}


def test_standbys_do_not_create_entries() -> None:
    """A task and its standby may be in one application, on two of its hosts."""
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
    assert summarize(values).entries == {"counts": 400}
    assert summarize(values, {("t1", "0_1"), ("t2", "0_0")}).entries == {"counts": 200}


def test_a_rate_covers_the_last_seconds() -> None:
    """There is no rate at the first sample, after a long pause, or after a counter has
    restarted."""
    meter = RateMeter()
    assert meter.rate("edge", 100, 0) is None
    assert meter.rate("edge", 300, 1_000) == 200
    for second in range(2, 10):
        meter.rate("edge", 300, 1_000 * second)
    assert meter.rate("edge", 300, 10_000) == 0
    assert meter.rate("edge", 90_000, 60_000) is None
    assert meter.rate("edge", 90_050, 61_000) == 50
    assert meter.rate("edge", 7, 62_000) is None
