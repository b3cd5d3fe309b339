"""Values are sent often, names only after changes, and lost frames are repeated."""

from __future__ import annotations

import math
import pickle
from types import SimpleNamespace
from typing import Any

from millstream.clock import ManualClock
from millstream.metrics.metric_frames import FrameReader, FrameWriter, MetricsFrame
from millstream.metrics.registry import MetricsScope
from millstream.metrics.values import Metrics
from millstream.record import TaskId
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.task.task_meters import TaskMeters


class Values:
    """Metrics set by the test."""

    def __init__(self) -> None:
        self.now: dict[str, float | str] = {"a": 1.0, "state": "RUNNING", "none": math.nan}
        self.scope = MetricsScope(ManualClock())
        for name in self.now:
            self.add(name)

    def add(self, name: str) -> None:
        self.scope.add("g", name, lambda: self.now[name])


def read_values(reader: FrameReader) -> dict[str, float | str]:
    return {each.name: each.value for each in reader.metrics()}


def test_frames_are_read_as_written() -> None:
    values = Values()
    writer, reader = FrameWriter(values.scope), FrameReader()
    for change in ({}, {"a": 2.0}, {"state": "DEAD"}, {"none": 3.0}, {"a": "text"}):
        values.now.update(change)
        reader.apply(writer.next())
        seen = read_values(reader)
        assert {n: v for n, v in seen.items() if v == v} == {
            n: v for n, v in values.now.items() if v == v
        }
        assert seen.keys() == values.now.keys()
    values.now["new"] = 5.0
    values.add("new")
    reader.apply(writer.next())
    assert read_values(reader)["new"] == 5


def test_a_lost_frame_does_not_cause_wrong_values() -> None:
    """Values are identified by their index in the last names; with other names, they would be
    wrong."""
    values = Values()
    writer, reader = FrameWriter(values.scope), FrameReader()
    reader.apply(writer.next())
    values.now = {"first": 7.0, **values.now}
    values.add("first")
    writer.next()
    values.now["a"] = 8.0
    reader.apply(writer.next())
    assert read_values(reader)["a"] == 1, "uncertain values are not returned"
    for _ in range(20):
        reader.apply(writer.next())
    assert (read_values(reader)["a"], read_values(reader)["first"]) == (8, 7)


def test_the_cost_of_200_tasks_is_small() -> None:
    """A thread with many tasks sends frames twice per second. Unchanged values cost nothing."""
    clock = ManualClock()
    thread = ThreadMeters("shop-5b9c-StreamThread-1", clock)
    tasks = [TaskMeters(TaskId(n % 4, n), clock) for n in range(200)]
    for task in tasks:
        for node in range(5):
            part = task.scope.child(processor_node_id=f"KSTREAM-AGGREGATE-{node:010}")
            part.average_minimum_maximum("stream-processor-node-metrics", "record-e2e-latency")
            part.rate_and_total("stream-processor-node-metrics", "process")
    works: list[Any] = [
        SimpleNamespace(meters=each, task_id=str(each.scope.labels)) for each in tasks
    ]
    thread.set_tasks(works)
    writer = FrameWriter(thread.scope)
    whole = writer.next()
    count = len(list(thread.scope.all_keys()))
    assert count > 5_000
    assert size(whole) < 9 * count + 20_000
    assert size(writer.next()) < 200
    tasks[7].processed(0, 10, 1)
    few = writer.next()
    assert size(few) < 300
    reader = FrameReader()
    for frame in (whole, writer.full()):
        reader.apply(frame)
    assert Metrics(reader.metrics()).total("process-total", task_id="3_7") == 10


def size(frame: MetricsFrame) -> int:
    return len(pickle.dumps(frame))
