"""Making tasks of the records of a partition; what becomes of those that hold none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.kafka.data.record_columns import RecordColumns
from millstream.operators.batch import Batch
from millstream.record import TopicPartition
from millstream.subscriptions.complaints import Complaints
from millstream.subscriptions.metrics import PartitionMetrics
from millstream.subscriptions.plan import SubscriptionPart
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.tasks.extraction import DecatonTask

Tasks = Sequence[DecatonTask[Any] | None]


class Reading:
    """Makes tasks of the records of a partition.

    Args:
        part: what the subscription does with the topic.
        place: the partition.
        metrics: of the partition.
        complaints: told of records that are passed over.
        failed: leaves a record out that has failed, or raises.
    """

    def __init__(
        self,
        part: SubscriptionPart,
        place: TopicPartition,
        metrics: PartitionMetrics,
        complaints: Complaints,
        failed: Callable[[Batch, int, Exception], None],
    ) -> None:
        self._part = part
        self._place = place
        self._metrics = metrics
        self._complaints = complaints
        self._failed = failed

    def read(
        self, batch: Batch, properties: Properties
    ) -> tuple[Tasks, Sequence[tuple[int, Exception]]]:
        """Make tasks of the records of a batch.

        Returns:
            The tasks, None for each record that holds none; and the indices of those that are to
            go to the dead-letter topic, with what is wrong with them.

        Raises:
            ProcessingError: a record holds no task, which ends the thread.
        """
        plan, origin = self._part.plan, batch.origin
        headers = batch.all_headers()
        offsets = [origin.offsets[row] for row in batch.rows]
        columns = RecordColumns(
            batch.keys, batch.values, batch.timestamps, offsets, list(headers or ()) or None, None
        )
        reader = plan.reader
        reader.legacy_parse_fallback = properties.legacy_parse_fallback_enabled
        extracted = reader.read(self._place, columns, retried=self._part.role == "retry")
        buried: list[tuple[int, Exception]] = []
        for index, error in extracted.failures.items():
            self._metrics.count("tasks.discarded")
            if plan.on_error == "fail":
                self._failed(batch, index, error)
            elif plan.on_error == "retry" and self._part.dead_letters is not None:
                # A retry would not help: it is the same record then.
                buried.append((index, error))
            else:
                self._complaints.tell(
                    f"a record at offset {offsets[index]} of {self._place} holds no task", error
                )
        return extracted.tasks, buried
