"""One task whose calls beside it end when a test says so, above a topic that is a list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.clock import Deadline, ManualClock
from millstream.config import StreamsConfig
from millstream.kafka.member.events import CommitOffset
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.subscriptions.share import SubscriptionShare
from millstream.testing.driver_topics import Captured, CapturingCollector, RawColumns
from millstream.topology.physical.topology import Topology
from support.tasks.held_calls import HeldCalls

IN = TopicPartition("in", 0)


class ApartBench:
    """A task of the sub-topology that reads the topic `in`, and what it has written.

    It begins anew at its committed offset as often as a test likes (`crash`). Without a transaction
    whatever it writes is there at once, with one when it is committed.

    Args:
        topology: of which the sub-topology is run.
        folder: for state.
        settings: of the application.
    """

    def __init__(self, topology: Topology, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock(1_000)
        config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)
        self._exactly_once = config.exactly_once
        (self._part,) = [p for p in topology._subtopologies() if "in" in p.source_topics]
        self._collector = CapturingCollector()
        self.held = HeldCalls()
        self.share = SubscriptionShare()
        self._services = TaskServices(
            config=config,
            clock=self.clock,
            collector=self._collector,
            changelog_writer=self._collector.changelog_writer,
            directory=StateDirectory(folder, "app"),
            budget=CacheBudget(config.statestore_cache_max_bytes),
            make_apart=lambda: self.held,
            share=self.share,
        )
        self.log: list[tuple[bytes | None, bytes | None, int, Headers]] = []
        #: Of the records that are fed from now on.
        self.headers: Headers = ()
        self._fetched = 0
        self.committed: CommitOffset | None = None
        #: What consumers that read committed have.
        self.outputs: list[Captured] = []
        self._open: list[Captured] = []
        self.task = self._begun()

    def _begun(self) -> StreamTask:
        self._fetched = self.offset
        task = build_task(self._part, TaskId(self._part.id, 0), frozenset({IN}), self._services)
        task.open_stores()
        task.start({IN: self.committed})
        return task

    @property
    def offset(self) -> int:
        """What is committed."""
        return 0 if self.committed is None else self.committed.offset

    def feed(self, key: bytes | None, value: bytes | None, timestamp: int = 0) -> None:
        """Append a record to the topic."""
        self.log.append((key, value, timestamp, self.headers))

    def fetch(self) -> None:
        """Hand over what is in the topic."""
        if self._fetched == len(self.log):
            return
        keys, values, timestamps, headers = map(list, zip(*self.log[self._fetched :], strict=True))
        offsets = list(range(self._fetched, len(self.log)))
        self.task.add_records(IN, RawColumns(keys, values, timestamps, offsets, headers))
        self._fetched = len(self.log)

    def step(self, limit: int = 1_000) -> None:
        """What the loop does between two polls."""
        self.fetch()
        if self.task.is_processable(lambda place: True, 0):
            self.task.step(limit)
        self._take()

    def drain(self) -> bool:
        """Wait for what is in flight, for one second at most."""
        try:
            return self.task.drain(Deadline(self.clock, 1_000))
        finally:
            self._take()

    def commit(self) -> bool:
        """Commit, unless the task wants to wait; whether it did."""
        if not self.task.commit_needed:
            return True
        may_commit = self.task.may_commit()
        if may_commit:
            self.task.prepare_commit()
        self._take()
        if not may_commit:
            return False
        if self.task.awaits_sent:
            self.task.sent()
        offsets: Mapping[TopicPartition, CommitOffset] = self.task.offsets_to_commit()
        self.committed = offsets.get(IN, self.committed)
        self.outputs += self._open
        self._open = []
        self.task.commit_begun()
        self.task.post_commit(offsets, self._collector.acked_offsets())
        return True

    def crash(self) -> None:
        """Begin anew: what was not committed is done again, and what runs ends for nobody."""
        self.task.close(clean=False)
        self._open = []
        self.task = self._begun()

    def settle(self) -> None:
        """Until everything is done and committed."""
        for _ in range(1_000):
            self.step()
            self.held.end_all()
            # One that has asked for it takes nothing before.
            if self.commit() and not self.task.in_flight and not self.task.buffered:
                return
        raise AssertionError(f"offset {self.offset} of {len(self.log)} after 1,000 steps")

    def _take(self) -> None:
        written = self._collector.take()
        if self._exactly_once:
            self._open += written
        else:
            self.outputs += written

    def close(self) -> None:
        """Give the task up."""
        self.task.close(clean=False)
