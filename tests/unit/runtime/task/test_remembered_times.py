"""What operators remember beside the committed offsets: final results are sent once (KIP-825)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.kafka.member.events import CommitOffset
from millstream.operators.emit_interval import WINDOW_CLOSE_INTERVAL
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskParts, TaskServices
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.serdes import STRING
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.testing.driver_topics import Captured, CapturingCollector, RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.options.windows import EmitStrategy, TimeWindows
from millstream.topology.physical.topology import Topology

MS = timedelta(milliseconds=1)
PLACE = TopicPartition("in", 0)


def final_counts() -> Topology:
    """Windows of 10 ms, each sent when it is closed; kept long after that, on disk."""
    builder = StreamsBuilder()
    windows = builder.stream("in", key=STRING, value=STRING).group_by_key()
    final = windows.windowed_by(TimeWindows(10 * MS)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    store = Materialized("s", retention=timedelta(days=1), logging=False)
    final.count(store=store).to_stream().to("out")
    return builder.build()


class Program:
    """Runs the task from one restart to the next; `interval_ms` is the pause between searches."""

    def __init__(self, folder: Path, interval_ms: int = 0) -> None:
        self.collector = CapturingCollector()
        self.clock = ManualClock()
        config = StreamsConfig(
            application_id="app",
            bootstrap_servers="not-used:9092",
            extra={WINDOW_CLOSE_INTERVAL: interval_ms},
        )
        self._services = TaskServices(
            config=config,
            clock=self.clock,
            collector=self.collector,
            changelog_writer=self.collector.changelog_writer,
            directory=StateDirectory(str(folder), "app"),
            budget=CacheBudget(0),
        )
        self._offset = 0
        self._committed: dict[TopicPartition, CommitOffset] = {}

    def run(self, *steps: int | timedelta) -> tuple[list[int], CommitMetadata]:
        """The starts of the windows that are sent, and what is committed at the end.

        A step is the time of a record, or how long nothing happens.
        """
        part = final_counts()._subtopologies()[0]
        task = TaskParts(part, TaskId(0, 0), frozenset([PLACE]), self._services).task
        task.open_stores()
        task.start(self._committed)
        for step in steps:
            if isinstance(step, timedelta):
                self.clock.advance(step // MS)
                continue
            record = Captured("in", b"k", b"v", step, ())
            task.add_records(PLACE, RawColumns.of(record, self._offset))
            task.step(1)
            self._offset += 1
        task.prepare_commit()
        offsets = task.offsets_to_commit()
        self._committed.update(offsets)
        task.commit_begun()
        task.post_commit(offsets, {})
        task.close(clean=True)
        sent = [int.from_bytes((r.key or b"")[-8:], "big") for r in self.collector.take()]
        return sent, CommitMetadata.decode(offsets[PLACE].metadata)


def test_a_restart_does_not_repeat_final_results(tmp_path: Path) -> None:
    """The store still has the windows that were sent, but the commit says up to when."""
    program = Program(tmp_path)
    sent, committed = program.run(1, 12)
    assert sent == [0]
    assert committed == CommitMetadata(12, {"s": 12})
    assert program.run(13, 25)[0] == [10]


def test_closed_windows_are_looked_for_at_most_so_often(tmp_path: Path) -> None:
    """By wall clock: what has closed in between comes with the next search."""
    program = Program(tmp_path, interval_ms=1_000)
    assert program.run(1, 12, 23, 999 * MS, 24)[0] == []
    assert program.run(25, 999 * MS, 36, MS, 37)[0] == [0, 10, 20]
