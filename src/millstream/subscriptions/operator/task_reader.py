"""Task extraction from a partition's records, and handling of unreadable records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.kafka.clients.record_columns import RecordColumns
from millstream.operators.record_batch import Batch
from millstream.record import TopicPartition
from millstream.subscriptions.properties.subscription_properties import Properties
from millstream.subscriptions.rate_limited_log import RateLimitedLog
from millstream.subscriptions.subscription_metrics import PartitionMetrics
from millstream.subscriptions.subscription_plan import SubscriptionPart
from millstream.subscriptions.tasks.task_extraction import DecatonTask

TaskList = Sequence[DecatonTask[Any] | None]


@dataclass(frozen=True, eq=False)
class TaskBatchReader:
    """Extracts tasks from the records of a partition."""

    part: SubscriptionPart
    partition: TopicPartition
    metrics: PartitionMetrics
    log: RateLimitedLog
    #: Handles a failed record: skips it or raises.
    failed: Callable[[Batch, int, Exception], None]

    def read(
        self, batch: Batch, properties: Properties
    ) -> tuple[TaskList, Sequence[tuple[int, Exception]]]:
        """Return the tasks, and the unreadable records for the dead-letter topic.

        The tasks contain None for each unreadable record. The second item lists the index and error
        of each record for the dead-letter topic.

        Raises:
            ProcessingError: a record is unreadable and `on_error` is "fail".
        """
        plan, origin = self.part.plan, batch.origin
        headers = batch.all_headers()
        offsets = [origin.offsets[row] for row in batch.rows]
        columns = RecordColumns(
            batch.keys, batch.values, batch.timestamps, offsets, list(headers or ()) or None, None
        )
        reader = plan.reader
        reader.legacy_parse_fallback = properties.legacy_parse_fallback_enabled
        extracted = reader.read(self.partition, columns, retried=self.part.role == "retry")
        dead_letters: list[tuple[int, Exception]] = []
        for index, error in extracted.failures.items():
            self.metrics.count("tasks.discarded")
            if plan.on_error == "fail":
                self.failed(batch, index, error)
            elif plan.on_error == "retry" and self.part.dead_letters is not None:
                # A retry would fail in the same way.
                dead_letters.append((index, error))
            else:
                self.log.warning(
                    f"a record at offset {offsets[index]} of {self.partition} contains no task",
                    error,
                )
        return extracted.tasks, dead_letters
