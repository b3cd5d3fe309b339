"""One partition of a subscription as a task that a test controls, without a broker."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from millstream.clock import Clock, Deadline, SystemClock
from millstream.parallel import Properties, Retry
from millstream.record import Headers, TopicPartition
from millstream.serdes import STRING, Serde
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.subscription_plan import OnError, SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain, ProcessorLike
from millstream.subscriptions.tasks.task_extraction import TaskReader
from millstream.subscriptions.thread_state import SubscriptionThreadState
from millstream.subscriptions.tracing import Tracing
from millstream.testing.driver_topics import CapturedRecord, CapturingCollector, RawColumns
from support.tasks.task_setup import app_config, commit_task, start_task, task_services

TOPIC = "tasks"
PLACE = TopicPartition(TOPIC, 0)
_WAIT_S = 10


class SubscribedTask:
    """Partition 0 of a subscription. A test queues records, steps and commits.

    Args:
        collector: replaces the producer.
        shaping: the topic for tasks of keys above their quota.
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
            ProcessorChain.of(processor),
            TaskReader(value),
            given,
            retry,
            on_error,
            tracing,
            cancel_running,
        )
        self.clock = clock or SystemClock()
        self.share = SubscriptionThreadState(given)
        self.collector: Any = collector or CapturingCollector()
        self._folder = tempfile.mkdtemp(prefix="millstream-subscribed-")
        self._services = task_services(
            self._folder,
            self.collector,
            self.clock,
            app_config(**(settings or {})),
            subscription_state=self.share,
        )
        parts = subscription_topology(plan, TOPIC, shaping)._subtopologies()
        self._parts = {next(iter(part.source_topics)): part for part in parts}
        self._offset = 0
        self.task = start_task(self._parts[TOPIC], self._services)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.task.close(clean=True)
        self.share.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def restart(self) -> None:
        """Close the partition without a commit, and start it at its beginning."""
        self.task.close(clean=False)
        self._offset = 0
        self.task = start_task(self._parts[TOPIC], self._services)

    def feed(self, *values: str, key: str | None = None, headers: Headers = ()) -> None:
        """Queue tasks; each value is also the key unless a key is given."""
        self._queue([(key or value).encode() for value in values], values, headers)

    def feed_keyless(self, *values: str) -> None:
        """Queue tasks without keys."""
        self._queue([None] * len(values), values, ())

    def _queue(self, keys: list[bytes | None], values: Sequence[str], headers: Headers) -> None:
        count = len(values)
        offsets = list(range(self._offset, self._offset + count))
        self._offset += count
        data: list[bytes | None] = [value.encode() for value in values]
        all_headers = [headers] * count if headers else None
        self.task.add_records(PLACE, RawColumns(keys, data, [1_000] * count, offsets, all_headers))

    def step(self, limit: int = 1_000) -> int:
        """Process queued records."""
        if not self.task.is_processable(lambda _: True, 0):
            return 0
        return self.task.step(limit)

    def drain(self, within_ms: int = _WAIT_S * 1_000) -> bool:
        """Wait until nothing is in flight."""
        return self.task.drain(Deadline(SystemClock(), within_ms))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Step until the condition is true."""
        deadline = time.monotonic() + _WAIT_S
        while not condition():
            self.step()
            assert time.monotonic() < deadline, f"{what}: not within {_WAIT_S} s"
            time.sleep(0.001)

    def commit(self) -> int:
        """Commit as a thread does, with a producer that acknowledges at once; return the offset."""
        if not self.task.commit_needed:
            return self.task.committed.get(PLACE, 0)
        assert self.task.can_commit()
        self.task.prepare_commit()
        if self.task.awaits_delivery:
            self.task.on_delivered()
        offsets = commit_task(self.task)
        return offsets[PLACE].offset if PLACE in offsets else 0

    @property
    def committable(self) -> int:
        """The committable offset."""
        offsets = self.task.offsets_to_commit()
        return offsets[PLACE].offset if PLACE in offsets else 0

    def written(self, topic: str) -> list[CapturedRecord]:
        """The records written to a topic since the last call."""
        return [record for record in self.collector.take() if record.topic == topic]

    def counted(self, name: str) -> float:
        """The sum of a metric over all labels."""
        return sum(value for (known, _), value in self.share.metrics.all().items() if known == name)
