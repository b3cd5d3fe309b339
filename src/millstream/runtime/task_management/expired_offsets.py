"""Detects tasks that have state while their group has no committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from millstream.errors import BrokerUnavailableError, UnknownTopicError
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.stream_task import StreamTask

logger = logging.getLogger(__name__)

_MAX_LISTED = 6


class ExpiredOffsetsCheck:
    """Warns once about each task that rereads its input on top of existing state.

    Brokers delete the offsets of a group without members after `offsets.retention.minutes`, but
    state directories and changelogs stay. Kafka Streams starts such a task without a warning.

    A committed offset for any of the task's partitions prevents the warning: the other partitions
    belong to topics that are new to the task or have had no records so far. Empty input prevents
    the warning as well: a task without input may have state from its punctuators but commits no
    offsets.
    """

    def __init__(self, have_records: Callable[[Collection[TopicPartition]], bool]) -> None:
        self._have_records = have_records
        self._warned: set[TaskId] = set()

    def check(
        self,
        task: StreamTask,
        committed: Mapping[TopicPartition, CommitOffset | None],
        starts: Mapping[TopicPartition, int],
    ) -> None:
        """Warn if a restored task has state but no committed offset."""
        if task.task_id in self._warned:
            return
        if any(committed.get(partition) is not None for partition in task.partitions):
            return
        # A store whose source topic serves as its changelog would not be updated twice.
        held = [
            f"'{restorer.store_name}' (offset {restorer.reached} of {partition})"
            for partition, restorer in sorted(task.stores.restorers().items())
            if restorer.reached is not None and partition not in task.partitions
        ]
        if not held or not self._are_read_again(task.partitions):
            return
        self._warned.add(task.task_id)
        inputs = [_input(partition, starts[partition]) for partition in sorted(task.partitions)]
        logger.warning(
            "task %s has state, but its group has no committed offsets: its input is read "
            "according to the offset reset policy, on top of that state, so records may be "
            "processed twice or skipped. Stores: %s. Input: %s. The offsets were deleted, expired "
            "after offsets.retention.minutes without running members, or the application was "
            "killed before its first commit. To start over with empty stores, close the "
            "application and run `millstream reset`; to continue from specific offsets, close it "
            "and set them with kafka-consumer-groups --reset-offsets. If the application may be "
            "closed for a long time, raise offsets.retention.minutes on the brokers.",
            task.task_id,
            _listed(held),
            _listed(inputs),
        )

    def _are_read_again(self, partitions: Collection[TopicPartition]) -> bool:
        try:
            return self._have_records(partitions)
        except (BrokerUnavailableError, UnknownTopicError):
            # An unnecessary warning is acceptable: the next start has committed offsets.
            return True


def _input(partition: TopicPartition, start: int) -> str:
    where = {OFFSET_BEGINNING: "its beginning", OFFSET_END: "its end"}
    return f"{partition} from {where.get(start, f'offset {start}')}"


def _listed(items: list[str]) -> str:
    more = f" and {len(items) - _MAX_LISTED} more" * (len(items) > _MAX_LISTED)
    return f"{', '.join(items[:_MAX_LISTED])}{more}"
