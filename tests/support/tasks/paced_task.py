"""One task whose functions take simulated time, in a loop that gives up what takes too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.errors import TaskMigratedError
from millstream.kafka.member.events import CommitOffset
from millstream.record import TaskId, TopicPartition
from millstream.runtime.rocksdb_tuning import rocksdb_storages
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.time_limits import TimeLimits
from millstream.serdes import STRING
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.testing.driver_topics import CapturingCollector, RawColumns
from millstream.testing.driver_views import as_one_subtopology
from millstream.topology.dsl.builder import StreamsBuilder

TASK: Final = TaskId(0, 0)
#: More lives than any test needs.
_MOST_LIVES: Final = 50


class PacedTask:
    """A task that reads its topics in a loop with simulated time.

    Args:
        build: declares the topology, with the bench for the time that its functions take.
        folder: for its state.
        limit_ms: the shortest of the limits on work.
        commit_interval_ms: how often the loop commits.
        transactional: whether a commit fails that comes later than the limit after the last one.
        settings: further settings of the application.

    Attributes:
        calls: the arguments of `spend`, in the order of the calls.
        rounds_ms: how long each round of the loop took.
        given_up: how often uncommitted work was given up.
        reasons: the messages of the errors that it was given up for.
        committed: the offsets to go on from.
    """

    def __init__(
        self,
        build: Callable[[StreamsBuilder, PacedTask], Any],
        folder: Path,
        limit_ms: int = 10_000,
        *,
        commit_interval_ms: int = 100,
        transactional: bool = False,
        **settings: Any,
    ) -> None:
        self._commit_interval_ms = commit_interval_ms
        self._transactional = transactional
        self._last_commit_ms = 0
        self.clock = ManualClock()
        self.limits = TimeLimits(self.clock, limit_ms, progress=self._progress)
        self.calls: list[Any] = []
        self.rounds_ms: list[int] = []
        self.silences_ms: list[int] = []
        self.given_up = 0
        self.reasons: list[str] = []
        self.committed: dict[TopicPartition, CommitOffset] = {}
        self.collector = CapturingCollector()
        self._progress_ms = 0
        self._limit_ms = limit_ms
        builder = StreamsBuilder()
        build(builder, self)
        self._whole = as_one_subtopology(builder.build())
        self.config = StreamsConfig(
            application_id="app",
            bootstrap_servers="unused:9092",
            default_key_serde=STRING,
            default_value_serde=STRING,
            **settings,
        )
        self._services = TaskServices(
            config=self.config,
            clock=self.clock,
            collector=self.collector,
            changelog_writer=self.collector.changelog_writer,
            directory=StateDirectory(str(folder), "app"),
            budget=CacheBudget(self.config.statestore_cache_max_bytes),
            storages=rocksdb_storages(self.config),
            limits=self.limits,
        )
        self._partitions = frozenset(
            TopicPartition(self._whole.decorate(topic, "app"), 0)
            for topic in self._whole.source_topics
        )
        self._inputs: dict[TopicPartition, RawColumns] = {}

    def spend(self, milliseconds: int, what: Any = None) -> Any:
        """What a function of the topology does: take time."""
        self.calls.append(what)
        self.clock.advance(milliseconds)
        # As the watchdog does beside a real thread.
        self.limits.look()
        return what

    def feed(self, topic: str, values: Iterable[str]) -> None:
        """The records of a topic, each under its value as its key."""
        datas: list[bytes | None] = [value.encode() for value in values]
        numbers = list(range(len(datas)))
        self._inputs[TopicPartition(topic, 0)] = RawColumns(datas, datas, numbers, numbers, None)

    def run(self) -> None:
        """Process and commit everything.

        Raises:
            StreamsError: the task has failed.
            AssertionError: the same work is given up again and again.
        """
        while self._run_once():
            self.given_up += 1
            assert self.given_up < _MOST_LIVES, "the task makes no progress"

    def outputs(self) -> list[Any]:
        """The values that were written to topic `out`."""
        written = [each for each in self.collector.take() if each.topic == "out"]
        return [each.value for each in written]

    def _run_once(self) -> bool:
        """Run one life of the task; whether it was given up."""
        task = build_task(self._whole, TASK, self._partitions, self._services)
        task.open_stores()
        task.start(self.committed)
        for place, raw in self._inputs.items():
            start = self.committed[place].offset if place in self.committed else 0
            if start < len(raw.offsets):
                task.add_records(place, _from(raw, start))
        try:
            self._loop(task)
        except TaskMigratedError as error:
            self.reasons.append(error.message)
            task.close(clean=False)
            return True
        except BaseException:
            task.close(clean=False)
            raise
        task.close(clean=True)
        return False

    def _loop(self, task: StreamTask) -> None:
        self._last_commit_ms = self.clock.monotonic_ms()
        while task.buffered or task.commit_needed:
            began_ms = self._progress_ms = self.clock.monotonic_ms()
            try:
                if task.is_processable(lambda _: True, 0):
                    task.step(1_000)
            finally:
                self.rounds_ms.append(self.clock.monotonic_ms() - began_ms)
            waits_ms = self.clock.monotonic_ms() - self._last_commit_ms
            is_due = waits_ms >= self._commit_interval_ms
            if is_due or task.commit_requested or not task.buffered:
                self._commit(task)
                self._last_commit_ms = self.clock.monotonic_ms()

    def _commit(self, task: StreamTask) -> None:
        silent_ms = self.rounds_ms[-1] if self.rounds_ms else 0
        if self._transactional:
            silent_ms = max(silent_ms, self.clock.monotonic_ms() - self._last_commit_ms)
        if silent_ms > self._limit_ms:
            raise TaskMigratedError("The group and the broker have not waited for this commit.")
        began_ms = self.clock.monotonic_ms()
        try:
            task.prepare_commit()
        finally:
            self.rounds_ms.append(self.clock.monotonic_ms() - began_ms)
        offsets = task.offsets_to_commit()
        task.commit_begun()
        self.committed |= offsets
        task.post_commit(offsets, self.collector.acked_offsets())

    def _progress(self) -> None:
        self.silences_ms.append(self.clock.monotonic_ms() - self._progress_ms)
        self._progress_ms = self.clock.monotonic_ms()


def _from(raw: RawColumns, start: int) -> RawColumns:
    return RawColumns(
        raw.keys[start:],
        raw.values[start:],
        raw.timestamps[start:],
        list(raw.offsets)[start:],
        None,
    )
