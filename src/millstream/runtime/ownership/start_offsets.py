"""From which offset a task's input partitions are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple, Protocol

from millstream.clock import Clock
from millstream.errors import OffsetOutOfRangeError, StreamsError, TaskMigratedError
from millstream.kafka.data.consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.member.events import CommitOffset
from millstream.record import TopicPartition
from millstream.runtime.ownership.topic_incarnations import TopicIncarnations
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.topology.physical.nodes import OffsetReset

logger = logging.getLogger(__name__)

#: How long the loop may stand still for one request.
_TIMEOUT_MS = 3_000
_MOST_NAMED = 6


class ResetPolicy(NamedTuple):
    """Where a topic is read from when the group's offset is of no use.

    Args:
        start: the beginning, the end, a time before now, or an error.
        chosen: whether the user said so. What is only a default says where a new group begins, and
            not that records may be left out.
    """

    start: OffsetReset
    chosen: bool


class GroupOffsets(Protocol):
    """The group member, as far as reading committed offsets goes."""

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> Mapping[TopicPartition, CommitOffset | None]: ...


class OffsetIndex(Protocol):
    """The main consumer, as far as looking offsets up goes."""

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
    """Where the group stands, and where to begin where it never was."""

    def topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[str, str]:
        """The ids of the topics, as far as the brokers tell."""
        ...

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommitOffset | None]: ...

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset | None],
        topic_ids: Mapping[str, str],
    ) -> Mapping[TopicPartition, int]:
        """The offset to read each partition from."""
        ...

    def expect(self, partitions: Collection[TopicPartition]) -> None:
        """A task will read these partitions once it is restored."""
        ...

    def have_records(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether any of the partitions has records."""
        ...

    def out_of_range(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Where to go on when offsets are not in their topics."""
        ...


class StartOffsets:
    """The group's committed offset, or, where there is none, what the source's reset policy says.

    Where the group's offset is not in the topic, records were lost. Only a policy that the user has
    chosen answers that; Kafka Streams takes its default, `earliest`, for an answer as well.

    Args:
        group: knows committed offsets.
        index: looks up the first and last offsets, and offsets by time.
        policy_of: the reset policy of a topic.
        incarnations: tell whether a topic is still the one that offsets were committed of.
        clock: for policies relative to now.
    """

    def __init__(
        self,
        group: GroupOffsets,
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
        #: Where reading a partition began last, and the id of the topic that it was then.
        self._begun: dict[TopicPartition, tuple[str, int]] = {}

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommitOffset | None]:
        """What the group has committed, None where it has not."""
        return self._group.committed(partitions, _TIMEOUT_MS) if partitions else {}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[str, str]:
        """The ids of the topics, as far as the brokers tell.

        Raises:
            BrokerUnavailableError: they do not answer.
        """
        return self._incarnations.ids({place.topic for place in partitions})

    def expect(self, partitions: Collection[TopicPartition]) -> None:
        """Note where partitions end that are read from their end.

        Restoring a task takes a while, and what arrives meanwhile is not to be skipped.

        Raises:
            BrokerUnavailableError: the brokers do not answer.
        """
        latest = [place for place in partitions if self._start_of(place) == "latest"]
        if latest:
            self._ends.update(self._index.end_offsets(latest, _TIMEOUT_MS))

    def have_records(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether any of the partitions has records.

        Raises:
            BrokerUnavailableError: the brokers do not answer.
        """
        first = self._index.beginning_offsets(partitions, _TIMEOUT_MS)
        end = self._index.end_offsets(partitions, _TIMEOUT_MS)
        return any(first[place] < end[place] for place in partitions)

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset | None],
        topic_ids: Mapping[str, str],
    ) -> Mapping[TopicPartition, int]:
        """The offset to read each partition from.

        Args:
            partitions: which.
            committed: where the group stands.
            topic_ids: the ids of the topics, as far as they are known.

        Raises:
            StreamsError: nothing is committed and the policy is `none`.
            OffsetOutOfRangeError: as `out_of_range`, of what was committed, or read before by this
                thread, of a topic that was deleted and created again.
            BrokerUnavailableError: the brokers do not answer.
        """
        starts: dict[TopicPartition, int] = {}
        replaced: dict[TopicPartition, int] = {}
        for place in partitions:
            offset = committed.get(place)
            if self._is_of_another(place, offset, topic_ids.get(place.topic)):
                begun = self._begun[place][1] if offset is None else offset.offset
                replaced[place] = max(0, begun)
            elif offset is not None:
                starts[place] = offset.offset
            else:
                starts[place] = self._first_start(place)
        if replaced:
            starts |= self._elsewhere(replaced, replaced.keys())
        self._begun.update(
            (place, (topic_ids[place.topic], start))
            for place, start in starts.items()
            if place.topic in topic_ids
        )
        return starts

    def out_of_range(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Where to go on when offsets that were to be read next are not in their topics.

        Args:
            offsets: of each partition the one that it does not have.

        Raises:
            OffsetOutOfRangeError: no policy was chosen for some of them, or `none`: names those,
                what they still have, and how much was lost.
            TaskMigratedError: the group has gone on without this member, and deleted what it has
                processed.
            BrokerUnavailableError: the brokers do not answer.
            UnknownTopicError: a partition does not exist any more.
        """
        committed = self.committed(list(offsets))
        for place, offset in offsets.items():
            group = committed.get(place)
            if group is not None and group.offset > offset:
                raise TaskMigratedError(
                    f"The group has committed offset {group.offset}, so another member has "
                    "processed this partition meanwhile.",
                    topic=place.topic,
                    partition=place.partition,
                    offset=offset,
                )
        ids = self.topic_ids(list(offsets))
        anew = {
            place
            for place in offsets
            if self._is_of_another(place, committed.get(place), ids.get(place.topic))
        }
        return self._elsewhere(offsets, anew)

    def _is_of_another(
        self, place: TopicPartition, committed: CommitOffset | None, topic_id: str | None
    ) -> bool:
        """Whether the group stands in a topic that was deleted and created again since.

        Brokers forget what was committed of a deleted topic, sooner or later; then what this thread
        began to read tells.
        """
        if committed is not None:
            return not _is_of(committed, topic_id)
        begun_of, _ = self._begun.get(place, (topic_id, 0))
        return topic_id not in (None, begun_of)

    def _elsewhere(
        self, offsets: Mapping[TopicPartition, int], created_anew: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        first = self._index.beginning_offsets(offsets, _TIMEOUT_MS)
        end = self._index.end_offsets(offsets, _TIMEOUT_MS)
        stories = {
            place: _story(
                place, offset, first[place], end[place], created_anew=place in created_anew
            )
            for place, offset in offsets.items()
        }
        unanswered = {
            place: offset
            for place, offset in offsets.items()
            if not self._policy_of(place.topic).chosen or self._start_of(place) == "none"
        }
        if unanswered:
            raise OffsetOutOfRangeError(
                _refusal([stories[place] for place in unanswered]), offsets=unanswered
            )
        starts = {place: self._start_by_policy(place) for place in offsets}
        for place, start in starts.items():
            where = {OFFSET_BEGINNING: "its beginning", OFFSET_END: "its end"}.get(start, start)
            logger.warning(
                "%s. Reading goes on at %s, by the offset reset policy", stories[place], where
            )
        return starts

    def _start_of(self, place: TopicPartition) -> OffsetReset:
        return self._policy_of(place.topic).start

    def _first_start(self, place: TopicPartition) -> int:
        """Where a group begins that was never there."""
        if self._start_of(place) == "none":
            raise StreamsError(
                "A partition has no committed offset, and its offset reset policy is 'none'. "
                "Commit an offset for the group, or choose offset_reset='earliest' or 'latest' for "
                "the source.",
                topic=place.topic,
                partition=place.partition,
            )
        start = self._start_by_policy(place)
        return self._ends.get(place, start) if start == OFFSET_END else start

    def _start_by_policy(self, place: TopicPartition) -> int:
        policy = self._start_of(place)
        if isinstance(policy, timedelta):
            then_ms = self._clock.now_ms() - policy // timedelta(milliseconds=1)
            found = self._index.offsets_for_times({place: then_ms}, _TIMEOUT_MS)
            offset = found.get(place)
            return OFFSET_END if offset is None else offset
        return OFFSET_BEGINNING if policy == "earliest" else OFFSET_END


def _is_of(offset: CommitOffset, topic_id: str | None) -> bool:
    """Whether an offset was committed of this very topic, as far as that is known."""
    known = CommitMetadata.decode(offset.metadata).topic_ids
    return topic_id is None or not known or topic_id in known


def _story(place: TopicPartition, offset: int, first: int, end: int, *, created_anew: bool) -> str:
    """What has become of an offset that was to be read next."""
    if created_anew:
        return (
            f"offset {offset} of {place}, where the group stood, is of a topic that was deleted; "
            f"the one that was created under its name has the offsets {first} to {end}"
        )
    begin = f"offset {offset} of {place}, where the group was to go on, "
    if offset < first:
        return (
            f"{begin}is no longer in the topic, whose first offset is {first}: {first - offset} "
            "records were deleted before they were processed, by retention or by somebody"
        )
    if offset > end:
        return (
            f"{begin}lies {offset - end} beyond the end of the topic, which is {end}: the topic "
            "was created anew, or its log was cut"
        )
    return (
        f"{begin}is not the record that it was: the topic was created anew, or its log was cut "
        f"before it and has been written anew since; it has the offsets {first} to {end} now"
    )


def _refusal(stories: list[str]) -> str:
    told = "; ".join(stories[:_MOST_NAMED])
    others = f"; and {len(stories) - _MOST_NAMED} partitions more" * (len(stories) > _MOST_NAMED)
    return (
        f"{told[0].upper()}{told[1:]}{others}. Nothing is left out without being asked for: to go "
        "on with what the topic has now, choose offset_reset='earliest' for the source, or "
        "'latest', or a timedelta (for all sources: consumer={'auto.offset.reset': 'earliest'}); "
        "or set the group's offsets yourself (kafka-consumer-groups --reset-offsets)."
    )


def epochs_of(committed: Mapping[TopicPartition, CommitOffset | None]) -> dict[TopicPartition, int]:
    """The leader epochs in which offsets were committed, where they are known."""
    return {
        place: offset.leader_epoch
        for place, offset in committed.items()
        if offset is not None and offset.leader_epoch is not None
    }
