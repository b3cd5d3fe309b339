"""One task with concurrent calls that a test completes, and an in-memory topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millstream.clock import Deadline, ManualClock
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import Headers, TopicPartition
from millstream.runtime.task.stream_task import StreamTask
from millstream.subscriptions.thread_state import SubscriptionThreadState
from millstream.testing.driver_topics import CapturedRecord, CapturingCollector, RawColumns
from millstream.topology.physical.topology import Topology
from support.tasks.concurrent_calls import ManualCalls
from support.tasks.task_setup import app_config, commit_task, start_task, task_services

IN = TopicPartition("in", 0)


class ConcurrentBench:
    """A task of the sub-topology that reads the topic `in`, and its output.

    `crash` restarts it at its committed offset. Without transactions its output is visible at once,
    with transactions after a commit.
    """

    def __init__(self, topology: Topology, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock(1_000)
        config = app_config(**settings)
        self._exactly_once = config.exactly_once
        (self._part,) = [p for p in topology._subtopologies() if "in" in p.source_topics]
        self._collector = CapturingCollector()
        self.held = ManualCalls()
        self.share = SubscriptionThreadState()
        self._services = task_services(
            folder,
            self._collector,
            self.clock,
            config,
            config.statestore_cache_max_bytes,
            make_runners=lambda: self.held,
            subscription_state=self.share,
        )
        self.log: list[tuple[bytes | None, bytes | None, int, Headers]] = []
        #: Headers of the records that are fed from now on.
        self.headers: Headers = ()
        self._fetched = 0
        self.committed: CommitOffset | None = None
        #: The records that a read-committed consumer sees.
        self.outputs: list[CapturedRecord] = []
        self._open: list[CapturedRecord] = []
        self.task = self._start_task()

    def _start_task(self) -> StreamTask:
        self._fetched = self.offset
        return start_task(self._part, self._services, committed={IN: self.committed})

    @property
    def offset(self) -> int:
        """The committed offset."""
        return 0 if self.committed is None else self.committed.offset

    def feed(self, key: bytes | None, value: bytes | None, timestamp: int = 0) -> None:
        """Append a record to the topic."""
        self.log.append((key, value, timestamp, self.headers))

    def fetch(self) -> None:
        """Pass the new records of the topic to the task."""
        if self._fetched == len(self.log):
            return
        keys, values, timestamps, headers = map(list, zip(*self.log[self._fetched :], strict=True))
        offsets = list(range(self._fetched, len(self.log)))
        self.task.add_records(IN, RawColumns(keys, values, timestamps, offsets, headers))
        self._fetched = len(self.log)

    def step(self, limit: int = 1_000) -> None:
        """Do the work of the loop between two polls."""
        self.fetch()
        if self.task.is_processable(lambda place: True, 0):
            self.task.step(limit)
        self._take_output()

    def drain(self) -> bool:
        """Wait up to one second until nothing is in flight."""
        try:
            return self.task.drain(Deadline(self.clock, 1_000))
        finally:
            self._take_output()

    def commit(self) -> bool:
        """Commit, unless the task must wait, and return whether it has committed."""
        if not self.task.commit_needed:
            return True
        can_commit = self.task.can_commit()
        if can_commit:
            self.task.prepare_commit()
        self._take_output()
        if not can_commit:
            return False
        if self.task.awaits_delivery:
            self.task.on_delivered()
        offsets = commit_task(self.task, self._collector.acked_offsets())
        self.committed = offsets.get(IN, self.committed)
        self.outputs += self._open
        self._open = []
        return True

    def crash(self) -> None:
        """Restart at the committed offset; results of running calls are discarded."""
        self.task.close(clean=False)
        self._open = []
        self.task = self._start_task()

    def settle(self) -> None:
        """Step and commit until everything is processed and committed."""
        for _ in range(1_000):
            self.step()
            self.held.end_all()
            # A task whose commit is requested takes no records before it.
            if self.commit() and not self.task.in_flight and not self.task.buffered:
                return
        raise AssertionError(f"offset {self.offset} of {len(self.log)} after 1,000 steps")

    def _take_output(self) -> None:
        written = self._collector.take()
        if self._exactly_once:
            self._open += written
        else:
            self.outputs += written

    def close(self) -> None:
        """Close the task without a commit."""
        self.task.close(clean=False)
