"""Start offsets of a task's input partitions, and detection of recreated topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, Protocol, TypeVar

from millstream.clock import Clock, Deadline
from millstream.errors import (
    BrokerUnavailableError,
    OffsetOutOfRangeError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TopicPartition
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.topology.physical.nodes import OffsetReset

logger = logging.getLogger(__name__)

#: How long one request may block the loop.
_REQUEST_TIMEOUT_MS: Final = 3_000


class TopicIndex(Protocol):
    """The admin client's lookup of topic ids."""

    def topic_ids(self, topics: Iterable[str], timeout_ms: int, /) -> Mapping[str, str]: ...


class TopicReader(Protocol):
    """A task that reads topics."""

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the task's topics when it started to read them, where known."""


R = TypeVar("R", bound=TopicReader)


class TopicIncarnations:
    """Detects recreated topics by their ids (KIP-516), every `metadata.max.age.ms`.

    The offsets of a recreated topic start at 0 again, so an old position would skip its first
    records. Brokers older than Kafka 2.8 have no topic ids, so recreated topics are not detected.
    """

    def __init__(self, index: TopicIndex, clock: Clock, interval_ms: int) -> None:
        self._index = index
        self._clock = clock
        self._interval_ms = interval_ms
        self._next = Deadline(clock, interval_ms)

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of existing topics.

        Raises BrokerUnavailableError if the brokers do not respond.
        """
        return self._index.topic_ids(sorted(topics), _REQUEST_TIMEOUT_MS)

    def outdated(self, readers: Sequence[R]) -> list[R]:
        """Return the readers of topics that were recreated after the readers started.

        The check runs once per interval; if no broker responds, the next check repeats the request.
        """
        if not readers or not self._next.passed:
            return []
        self._next = Deadline(self._clock, self._interval_ms)
        try:
            ids = self.ids({topic for reader in readers for topic in reader.topic_ids})
        except BrokerUnavailableError as error:
            logger.debug("cannot check whether topics were recreated: %s", error)
            return []
        return [
            reader
            for reader in readers
            if any(ids.get(topic, known) != known for topic, known in reader.topic_ids.items())
        ]


_MAX_LISTED = 6


class ResetPolicy(NamedTuple):
    """The start position in a topic without a valid committed offset.

    Args:
        start: the beginning, the end, a time before now, or an error.
        explicit: whether the user set the policy. A default only applies to new groups; it does not
            allow skipping records.
    """

    start: OffsetReset
    explicit: bool


class CommittedOffsetLookup(Protocol):
    """Looks up the committed offsets of the group."""

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> Mapping[TopicPartition, CommitOffset | None]: ...


class OffsetIndex(Protocol):
    """Looks up the offsets of partitions with the main consumer."""

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, /
    ) -> Mapping[TopicPartition, int]: ...
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, /
    ) -> Mapping[TopicPartition, int]: ...
    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_ms: int, /
    ) -> Mapping[TopicPartition, int | None]: ...


class CommittedOffsets(Protocol):
    """The committed offsets and start offsets of partitions; see `StartOffsets`."""

    def topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[str, str]: ...
    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommitOffset | None]: ...
    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset | None],
        topic_ids: Mapping[str, str],
    ) -> Mapping[TopicPartition, int]: ...
    def note_end_offsets(self, partitions: Collection[TopicPartition]) -> None: ...
    def have_records(self, partitions: Collection[TopicPartition]) -> bool: ...
    def out_of_range(
        self, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]: ...


class StartOffsets:
    """Determines start offsets from committed offsets or the offset reset policy.

    If the committed offset is out of range, records were lost. In this case, only an explicit
    policy applies; Kafka Streams also applies its default, `earliest`.

    All methods raise BrokerUnavailableError if the brokers do not respond.
    """

    def __init__(
        self,
        group: CommittedOffsetLookup,
        index: OffsetIndex,
        policy_of: Callable[[str], ResetPolicy],
        incarnations: TopicIncarnations,
        clock: Clock,
    ) -> None:
        self._group = group
        self._index = index
        self._policy_of = policy_of
        self._incarnations = incarnations
        self._clock = clock
        self._ends: dict[TopicPartition, int] = {}
        #: The latest start offset of each partition, and the topic's id at that time.
        self._last_starts: dict[TopicPartition, tuple[str, int]] = {}

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommitOffset | None]:
        """Return the group's committed offsets; None for partitions without one."""
        return self._group.committed(partitions, _REQUEST_TIMEOUT_MS) if partitions else {}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[str, str]:
        return self._incarnations.ids({partition.topic for partition in partitions})

    def note_end_offsets(self, partitions: Collection[TopicPartition]) -> None:
        """Record the end offsets of partitions that are read from their end.

        Restoring a task takes a while, and records that arrive in the meantime must not be skipped.
        """
        latest = [partition for partition in partitions if self._start_of(partition) == "latest"]
        if latest:
            self._ends.update(self._index.end_offsets(latest, _REQUEST_TIMEOUT_MS))

    def have_records(self, partitions: Collection[TopicPartition]) -> bool:
        first = self._index.beginning_offsets(partitions, _REQUEST_TIMEOUT_MS)
        end = self._index.end_offsets(partitions, _REQUEST_TIMEOUT_MS)
        return any(first[partition] < end[partition] for partition in partitions)

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset | None],
        topic_ids: Mapping[str, str],
    ) -> Mapping[TopicPartition, int]:
        """Return the offset from which to read each partition.

        Raises:
            StreamsError: no offset is committed, and the policy is `none`.
            OffsetOutOfRangeError: as in `out_of_range`, if a topic was recreated after its offset
                was committed or this thread last read the topic.
        """
        starts: dict[TopicPartition, int] = {}
        replaced: dict[TopicPartition, int] = {}
        for partition in partitions:
            offset = committed.get(partition)
            if self._is_recreated(partition, offset, topic_ids.get(partition.topic)):
                begun = self._last_starts[partition][1] if offset is None else offset.offset
                replaced[partition] = max(0, begun)
            elif offset is not None:
                starts[partition] = offset.offset
            else:
                starts[partition] = self._initial_start(partition)
        if replaced:
            starts |= self._reset_starts(replaced, replaced.keys())
        self._last_starts.update(
            (partition, (topic_ids[partition.topic], start))
            for partition, start in starts.items()
            if partition.topic in topic_ids
        )
        return starts

    def out_of_range(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets from which to continue if the next offsets are out of range.

        Raises:
            OffsetOutOfRangeError: some partitions have no explicit policy, or the policy `none`.
                The error lists them with their remaining offsets and the number of lost records.
            TaskMigratedError: another member has processed the partition in the meantime.
            UnknownTopicError: a partition no longer exists.
        """
        committed = self.committed(list(offsets))
        for partition, offset in offsets.items():
            group = committed.get(partition)
            if group is not None and group.offset > offset:
                raise TaskMigratedError(
                    f"The group has committed offset {group.offset}: another member has processed "
                    "this partition in the meantime.",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=offset,
                )
        ids = self.topic_ids(list(offsets))
        recreated = {
            partition
            for partition in offsets
            if self._is_recreated(partition, committed.get(partition), ids.get(partition.topic))
        }
        return self._reset_starts(offsets, recreated)

    def _is_recreated(
        self, partition: TopicPartition, committed: CommitOffset | None, topic_id: str | None
    ) -> bool:
        """Return whether the topic of the group's offset was deleted and recreated.

        Brokers eventually delete the committed offsets of a deleted topic; then the id at this
        thread's latest start is decisive.
        """
        if committed is not None:
            known = CommitMetadata.decode(committed.metadata).topic_ids
            return topic_id is not None and bool(known) and topic_id not in known
        last_topic_id, _ = self._last_starts.get(partition, (topic_id, 0))
        return topic_id not in (None, last_topic_id)

    def _reset_starts(
        self, offsets: Mapping[TopicPartition, int], recreated: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        first = self._index.beginning_offsets(offsets, _REQUEST_TIMEOUT_MS)
        end = self._index.end_offsets(offsets, _REQUEST_TIMEOUT_MS)
        losses = {
            partition: _describe_loss(
                partition,
                offset,
                first[partition],
                end[partition],
                recreated=partition in recreated,
            )
            for partition, offset in offsets.items()
        }
        unresolved = {
            partition: offset
            for partition, offset in offsets.items()
            if not self._policy_of(partition.topic).explicit or self._start_of(partition) == "none"
        }
        if unresolved:
            raise OffsetOutOfRangeError(
                _no_policy_message([losses[partition] for partition in unresolved]),
                offsets=unresolved,
            )
        starts = {partition: self._start_by_policy(partition) for partition in offsets}
        for partition, start in starts.items():
            where = {OFFSET_BEGINNING: "its beginning", OFFSET_END: "its end"}.get(start, start)
            logger.warning(
                "%s. Continuing at %s according to the offset reset policy",
                losses[partition],
                where,
            )
        return starts

    def _start_of(self, partition: TopicPartition) -> OffsetReset:
        return self._policy_of(partition.topic).start

    def _initial_start(self, partition: TopicPartition) -> int:
        if self._start_of(partition) == "none":
            raise StreamsError(
                "A partition has no committed offset, and its offset reset policy is 'none'. "
                "Commit an offset for the group, or set offset_reset='earliest' or 'latest' for "
                "the source.",
                topic=partition.topic,
                partition=partition.partition,
            )
        start = self._start_by_policy(partition)
        return self._ends.get(partition, start) if start == OFFSET_END else start

    def _start_by_policy(self, partition: TopicPartition) -> int:
        policy = self._start_of(partition)
        if isinstance(policy, timedelta):
            then_ms = self._clock.now_ms() - policy // timedelta(milliseconds=1)
            found = self._index.offsets_for_times({partition: then_ms}, _REQUEST_TIMEOUT_MS)
            offset = found.get(partition)
            return OFFSET_END if offset is None else offset
        return OFFSET_BEGINNING if policy == "earliest" else OFFSET_END


def _describe_loss(
    partition: TopicPartition, offset: int, first: int, end: int, *, recreated: bool
) -> str:
    if recreated:
        return (
            f"offset {offset} of {partition}, the next offset of the group, belongs to a deleted "
            f"topic; the recreated topic has offsets {first} to {end}"
        )
    begin = f"offset {offset} of {partition}, the next offset of the group, "
    if offset < first:
        return (
            f"{begin}is no longer in the topic, whose first offset is {first}: {first - offset} "
            "records were deleted before they were processed, by retention or explicitly"
        )
    if offset > end:
        return (
            f"{begin}lies {offset - end} beyond the end of the topic, which is {end}: the topic "
            "was recreated, or its log was truncated"
        )
    return (
        f"{begin}now has a different record: the topic was recreated, or its log was truncated and "
        f"rewritten from an earlier offset; the topic now has offsets {first} to {end}"
    )


def _no_policy_message(losses: list[str]) -> str:
    listed = "; ".join(losses[:_MAX_LISTED])
    others = f"; and {len(losses) - _MAX_LISTED} more partitions" * (len(losses) > _MAX_LISTED)
    return (
        f"{listed[0].upper()}{listed[1:]}{others}. Records are only skipped on request: to "
        "continue with the records that the topic has now, set offset_reset='earliest' for the "
        "source, or 'latest', or a timedelta (for all sources: "
        "consumer={'auto.offset.reset': 'earliest'}); or set the group's offsets yourself "
        "(kafka-consumer-groups --reset-offsets)."
    )


def epochs_of(committed: Mapping[TopicPartition, CommitOffset | None]) -> dict[TopicPartition, int]:
    """Return the leader epochs of committed offsets, where known."""
    return {
        partition: offset.leader_epoch
        for partition, offset in committed.items()
        if offset is not None and offset.leader_epoch is not None
    }
