"""Times of operators in committed metadata: final results are emitted once (KIP-825)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from support.tasks.task_setup import app_config, commit_task, start_task, task_services

from millstream.clock import ManualClock
from millstream.kafka.membership.member_events import CommitOffset
from millstream.operators.result_records import WINDOW_CLOSE_INTERVAL
from millstream.record import TopicPartition
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.serdes import STRING
from millstream.testing.driver_topics import CapturedRecord, CapturingCollector, RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.options.windows import EmitStrategy, TimeWindows
from millstream.topology.physical.topology import Topology

MS = timedelta(milliseconds=1)
PLACE = TopicPartition("in", 0)


def final_counts() -> Topology:
    """Windows of 10 ms that are emitted when they close, and kept on disk much longer."""
    builder = StreamsBuilder()
    windows = builder.stream("in", key=STRING, value=STRING).group_by_key()
    final = windows.windowed_by(TimeWindows(10 * MS)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    store = Materialized("s", retention=timedelta(days=1), logging=False)
    final.count(store=store).to_stream().to("out")
    return builder.build()


class TaskRunner:
    """Runs the task between restarts; `interval_ms` is the pause between searches for windows."""

    def __init__(self, folder: Path, interval_ms: int = 0) -> None:
        self.collector = CapturingCollector()
        self.clock = ManualClock()
        config = app_config(extra={WINDOW_CLOSE_INTERVAL: interval_ms})
        self._services = task_services(folder, self.collector, self.clock, config)
        self._offset = 0
        self._committed: dict[TopicPartition, CommitOffset] = {}

    def run(self, *steps: int | timedelta) -> tuple[list[int], CommitMetadata]:
        """Return the start times of the emitted windows, and the committed metadata.

        A step is the timestamp of a record, or a time in which nothing happens.
        """
        (part,) = final_counts()._subtopologies()
        task = start_task(part, self._services, committed=self._committed)
        for step in steps:
            if isinstance(step, timedelta):
                self.clock.advance(step // MS)
                continue
            record = CapturedRecord("in", b"k", b"v", step, ())
            task.add_records(PLACE, RawColumns.of(record, self._offset))
            task.step(1)
            self._offset += 1
        task.prepare_commit()
        offsets = commit_task(task)
        self._committed.update(offsets)
        task.close(clean=True)
        sent = [int.from_bytes((r.key or b"")[-8:], "big") for r in self.collector.take()]
        return sent, CommitMetadata.decode(offsets[PLACE].metadata)


def test_restart_does_not_repeat_final_results(tmp_path: Path) -> None:
    """The store still has the emitted windows, but the commit contains the time of the last one."""
    runner = TaskRunner(tmp_path)
    sent, committed = runner.run(1, 12)
    assert sent == [0]
    assert committed == CommitMetadata(12, {"s": 12})
    assert runner.run(13, 25)[0] == [10]


def test_searches_for_closed_windows_keep_their_interval(tmp_path: Path) -> None:
    """By wall clock: windows that have closed since the last search are emitted by the next one."""
    runner = TaskRunner(tmp_path, interval_ms=1_000)
    assert runner.run(1, 12, 23, 999 * MS, 24)[0] == []
    assert runner.run(25, 999 * MS, 36, MS, 37)[0] == [0, 10, 20]
