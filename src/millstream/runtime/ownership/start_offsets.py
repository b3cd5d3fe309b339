"""From which offset a task's input partitions are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import StreamsError
from millstream.kafka.data.consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.member.events import CommitOffset
from millstream.record import TopicPartition
from millstream.topology.physical.nodes import OffsetReset

logger = logging.getLogger(__name__)

#: How long the loop may stand still for one request.
_TIMEOUT_MS = 3_000


class GroupOffsets(Protocol):
    """The group member, as far as reading committed offsets goes."""

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> Mapping[TopicPartition, CommitOffset | None]: ...


class OffsetIndex(Protocol):
    """The main consumer, as far as looking offsets up goes."""

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, /
    ) -> Mapping[TopicPartition, int]: ...

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_ms: int, /
    ) -> Mapping[TopicPartition, int | None]: ...


class CommittedOffsets(Protocol):
    """Where the group stands, and where to begin where it never was."""

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommitOffset | None]: ...

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset | None],
    ) -> Mapping[TopicPartition, int]:
        """The offset to read each partition from."""
        ...

    def expect(self, partitions: Collection[TopicPartition]) -> None:
        """A task will read these partitions once it is restored."""
        ...

    def out_of_range(self, place: TopicPartition, offset: int) -> int:
        """Where to go on when an offset is not in the topic."""
        ...


class StartOffsets:
    """The group's committed offset, or, where there is none, what the source's reset policy says.

    Args:
        group: knows committed offsets.
        index: looks up ends, and offsets by time.
        reset_of: the reset policy of a topic.
        clock: for policies relative to now.
    """

    def __init__(
        self,
        group: GroupOffsets,
        index: OffsetIndex,
        reset_of: Callable[[str], OffsetReset],
        clock: Clock,
    ) -> None:
        self._group = group
        self._index = index
        self._reset_of = reset_of
        self._clock = clock
        self._ends: dict[TopicPartition, int] = {}

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommitOffset | None]:
        """What the group has committed, None where it has not."""
        return self._group.committed(partitions, _TIMEOUT_MS) if partitions else {}

    def expect(self, partitions: Collection[TopicPartition]) -> None:
        """Note where partitions end that are read from their end.

        Restoring a task takes a while, and what arrives meanwhile is not to be skipped.

        Raises:
            BrokerUnavailableError: the brokers do not answer.
        """
        latest = [place for place in partitions if self._reset_of(place.topic) == "latest"]
        if latest:
            self._ends.update(self._index.end_offsets(latest, _TIMEOUT_MS))

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset | None],
    ) -> Mapping[TopicPartition, int]:
        """The offset to read each partition from.

        Raises:
            StreamsError: nothing is committed and the policy is `none`.
        """
        starts: dict[TopicPartition, int] = {}
        for place in partitions:
            offset = committed.get(place)
            starts[place] = self.reset(place) if offset is None else offset.offset
        return starts

    def out_of_range(self, place: TopicPartition, offset: int) -> int:
        """Where to go on when the committed offset is no longer in the topic."""
        start = self.reset(place, offset)
        logger.warning(
            "offset %d of %s is no longer in the topic: reading goes on at %s, by the offset reset "
            "policy; the records in between were deleted by the topic's retention before they were "
            "processed",
            offset,
            place,
            {OFFSET_BEGINNING: "its beginning", OFFSET_END: "its end"}.get(start, start),
        )
        return start

    def reset(self, place: TopicPartition, lost_offset: int | None = None) -> int:
        """Where the source's policy says to begin."""
        policy = self._reset_of(place.topic)
        if isinstance(policy, timedelta):
            then_ms = self._clock.now_ms() - policy // timedelta(milliseconds=1)
            found = self._index.offsets_for_times({place: then_ms}, _TIMEOUT_MS)
            offset = found.get(place)
            return OFFSET_END if offset is None else offset
        if policy == "earliest":
            return OFFSET_BEGINNING
        if policy == "latest":
            return OFFSET_END if lost_offset is not None else self._ends.get(place, OFFSET_END)
        what = "no committed offset" if lost_offset is None else "a committed offset out of range"
        raise StreamsError(
            f"A partition has {what}, and its offset reset policy is 'none'. Commit an offset for "
            "the group, or choose offset_reset='earliest' or 'latest' for the source.",
            topic=place.topic,
            partition=place.partition,
            offset=lost_offset,
        )
