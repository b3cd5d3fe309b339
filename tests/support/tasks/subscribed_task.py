"""One partition of a subscription as a task that does what it is told, without a broker."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from millstream import StreamsConfig
from millstream.clock import Clock, Deadline, SystemClock
from millstream.parallel import Properties, Retry
from millstream.parallel.subscription_topology import subscription_topology
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import STRING, Serde
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.subscriptions.plan import OnError, SubscriptionPlan
from millstream.subscriptions.processors import Chain, ProcessorLike
from millstream.subscriptions.share import SubscriptionShare
from millstream.subscriptions.tasks.extraction import TaskReader
from millstream.subscriptions.tracing import Tracing
from millstream.testing.driver_topics import Captured, CapturingCollector, RawColumns

TOPIC = "tasks"
PLACE = TopicPartition(TOPIC, 0)
_WAIT_S = 10


class SubscribedTask:
    """A subscription's partition 0. Records are queued, taken, and committed when told.

    Args:
        processor: the user's.
        concurrency: `partition_concurrency`.
        retry: the policy.
        on_error: what becomes of tasks that fail.
        tracing: is told of tasks.
        value: decodes tasks.
        clock: the time.
        collector: what stands for Kafka.
        settings: of the application.
        cancel_running: whether coroutines are cancelled at the end.
        shaping: the topic for tasks of keys above their quota.
        properties: further properties.
    """

    def __init__(
        self,
        processor: ProcessorLike | Sequence[ProcessorLike],
        *,
        concurrency: int = 1,
        retry: Retry | None = None,
        on_error: OnError = "fail",
        tracing: Tracing | None = None,
        value: Serde[Any] = STRING,
        clock: Clock | None = None,
        collector: Any = None,
        settings: dict[str, Any] | None = None,
        cancel_running: bool = True,
        shaping: str | None = None,
        **properties: Any,
    ) -> None:
        given = Properties(partition_concurrency=concurrency, **properties)
        plan = SubscriptionPlan(
            "sub",
            Chain.of(processor),
            TaskReader(value),
            given,
            retry,
            on_error,
            tracing,
            cancel_running,
        )
        config = StreamsConfig(
            application_id="app", bootstrap_servers="unused:1", **(settings or {})
        )
        self.clock = clock or SystemClock()
        self.share = SubscriptionShare(given)
        self.collector: Any = collector or CapturingCollector()
        self._folder = tempfile.mkdtemp(prefix="millstream-subscribed-")
        self._services = TaskServices(
            config=config,
            clock=self.clock,
            collector=self.collector,
            changelog_writer=self.collector.changelog_writer,
            directory=StateDirectory(self._folder, "app"),
            budget=CacheBudget(0),
            share=self.share,
        )
        parts = subscription_topology(plan, TOPIC, shaping)._subtopologies()
        self._parts = {next(iter(part.source_topics)): part for part in parts}
        self._offset = 0
        self.task = self._task_of(TOPIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.task.close(clean=True)
        self.share.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _task_of(self, topic: str) -> StreamTask:
        part = self._parts[topic]
        place = TopicPartition(topic, 0)
        task = build_task(part, TaskId(part.id, 0), frozenset({place}), self._services)
        task.open_stores()
        task.start({})
        return task

    def begin_anew(self) -> None:
        """Give the partition up without a commit, and take it again at its start."""
        self.task.close(clean=False)
        self._offset = 0
        self.task = self._task_of(TOPIC)

    def feed(self, *values: str, key: str | None = None, headers: Headers = ()) -> None:
        """Queue tasks, each under its own value as the key unless one is given."""
        count = len(values)
        columns = RawColumns(
            [(key or value).encode() for value in values],
            [value.encode() for value in values],
            [1_000] * count,
            list(range(self._offset, self._offset + count)),
            [headers] * count if headers else None,
        )
        self._offset += count
        self.task.add_records(PLACE, columns)

    def feed_keyless(self, *values: str) -> None:
        """Queue tasks without keys."""
        count, first = len(values), self._offset
        self._offset += count
        self.task.add_records(
            PLACE,
            RawColumns(
                [None] * count,
                [value.encode() for value in values],
                [1_000] * count,
                list(range(first, self._offset)),
                None,
            ),
        )

    def step(self, limit: int = 1_000) -> int:
        """Take what waits."""
        if not self.task.is_processable(lambda _: True, 0):
            return 0
        return self.task.step(limit)

    def drain(self, within_ms: int = _WAIT_S * 1_000) -> bool:
        """Wait for what is in flight."""
        return self.task.drain(Deadline(SystemClock(), within_ms))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Step until something is so."""
        deadline = time.monotonic() + _WAIT_S
        while not condition():
            self.step()
            assert time.monotonic() < deadline, f"{what}: not within {_WAIT_S} s"
            time.sleep(0.001)

    def commit(self) -> int:
        """What a thread does, with a producer that answers at once; up to where it is committed."""
        if not self.task.commit_needed:
            return self.task.committed.get(PLACE, 0)
        assert self.task.may_commit()
        self.task.prepare_commit()
        if self.task.awaits_sent:
            self.task.sent()
        offsets = self.task.offsets_to_commit()
        self.task.commit_begun()
        self.task.post_commit(offsets, {})
        return offsets[PLACE].offset if PLACE in offsets else 0

    @property
    def committable(self) -> int:
        """Up to where the topic may be committed."""
        offsets = self.task.offsets_to_commit()
        return offsets[PLACE].offset if PLACE in offsets else 0

    def written(self, topic: str) -> list[Captured]:
        """What was written to a topic since the last time."""
        return [record for record in self.collector.take() if record.topic == topic]

    def counted(self, name: str) -> float:
        """The value of a metric, of all labels together."""
        return sum(value for (known, _), value in self.share.metrics.all().items() if known == name)
