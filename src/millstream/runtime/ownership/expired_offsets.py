"""Tasks that hold state though their group has no committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from millstream.errors import BrokerUnavailableError, UnknownTopicError
from millstream.kafka.data.consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.member.events import CommitOffset
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.stream_task import StreamTask

logger = logging.getLogger(__name__)

_MOST_NAMED = 6


class ExpiredOffsets:
    """Warns once of each task whose input is read again on top of the state that it already holds.

    Brokers delete the offsets of a group without members after `offsets.retention.minutes`, but
    state directories and changelogs stay. Kafka Streams starts such a task without a warning.

    A task with a committed offset for any of its partitions is not concerned: the others are of
    topics that are new to it, or without records so far.

    Args:
        have_records: whether any of some partitions has records. A task whose input is empty may
            hold state by its punctuators alone, and commits nothing.
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
        """Warn if a restored task holds state without any committed offset.

        Args:
            task: its stores are up to date with their changelogs.
            committed: the group's offset of each input partition.
            starts: the offset that each input partition is read from.
        """
        if task.task_id in self._warned:
            return
        if any(committed.get(place) is not None for place in task.partitions):
            return
        # A topic that a table reads instead of a changelog is no state that counts twice.
        held = [
            f"'{restorer.store_name}' (offset {restorer.reached} of {place})"
            for place, restorer in sorted(task.stores.restorers().items())
            if restorer.reached is not None and place not in task.partitions
        ]
        if not held or not self._are_read_again(task.partitions):
            return
        self._warned.add(task.task_id)
        inputs = [_input(place, starts[place]) for place in sorted(task.partitions)]
        logger.warning(
            "task %s has state, but its group has no committed offsets: its input is read again by "
            "the offset reset policy, on top of that state, so records may be processed twice or "
            "left out. Stores: %s. Input: %s. The offsets were deleted, expired after "
            "offsets.retention.minutes without running members, or the application was killed "
            "before its first commit. To begin anew with empty stores, close the application and "
            "run `millstream reset`; to go on from certain offsets, close it and set them with "
            "kafka-consumer-groups --reset-offsets. If the application may be closed for long, "
            "raise offsets.retention.minutes of the brokers.",
            task.task_id,
            _named(held),
            _named(inputs),
        )

    def _are_read_again(self, partitions: Collection[TopicPartition]) -> bool:
        try:
            return self._have_records(partitions)
        except (BrokerUnavailableError, UnknownTopicError):
            # Rather a warning too many: the next start has committed offsets.
            return True


def _input(place: TopicPartition, start: int) -> str:
    where = {OFFSET_BEGINNING: "its beginning", OFFSET_END: "its end"}
    return f"{place} from {where.get(start, f'offset {start}')}"


def _named(things: list[str]) -> str:
    more = f" and {len(things) - _MOST_NAMED} more" * (len(things) > _MOST_NAMED)
    return f"{', '.join(things[:_MOST_NAMED])}{more}"
