"""The data client that reads: assigned partition by partition, outside the group's protocol.

The member of the group (`member`) decides which partitions are ours and commits; this client only
fetches. Partitions come and go one by one without disturbing the others, which keep what was
fetched of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock, Deadline, SystemClock
from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    OffsetOutOfRangeError,
    StreamsError,
    UnknownTopicError,
)
from millstream.kafka.data.partition_ends import PartitionEnds
from millstream.kafka.data.record_columns import RecordColumns, message_columns
from millstream.kafka.librdkafka_errors import TRANSIENT, client_error, is_access_error, login_error
from millstream.kafka.rights import Needs, user_of
from millstream.kafka.settings.clients import create_client
from millstream.record import UNKNOWN, TopicPartition
from millstream.waker import Waker

__all__ = ["OFFSET_BEGINNING", "OFFSET_END", "RecordConsumer"]

_log = logging.getLogger(__name__)

_error = Message.error

_OUT_OF_RANGE: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,
    }
)
#: Longer than any pause between two polls: the member watches over `max.poll.interval.ms`, not
#: librdkafka.
_POLL_INTERVAL_MS: Final = 86_400_000
_REQUEST_TIMEOUT_MS: Final = 30_000
#: How soon it shows that an empty partition ends in an open transaction. Costs 0.6 % of a processor
#: with 50 partitions.
_STATISTICS_MS: Final = 100
#: librdkafka's wait for records cannot be ended from Python: so long it may be in one piece. A
#: command reaches an idle thread in 4.9 ms (the median of 200; 14 ms at the 99th percentile, 32 at
#: most), one that restores in 6.5 (51 at most), and one that waits for no records, as it is paused
#: or has no task, in 0.2 to 0.3 (11 at most). A thread that is idle takes 1.4 % of a processor, a
#: paused one 0.7 %: all on a machine with six times as much to do as it has processors; on a quiet
#: one 2.2 % when idle. Slices of 5 ms take 0.3 % more and halve the median.
_DEAF_MS: Final = 10
_MOST_NAMED: Final = 12


class RecordConsumer:
    """Reads records of partitions that are assigned to it explicitly, each from a given offset.

    What is fetched ahead is bounded by `queued.max.messages.kbytes`. Not thread-safe. Errors of the
    connection are logged and retried; what cannot be retried is raised by `poll`, after the records
    that were read before it.

    Args:
        settings: from `librdkafka_settings`.
        clock: where deadlines are measured.
        waker: ends a wait for records, within `_DEAF_MS`; None if nobody does.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        clock: Clock | None = None,
        waker: Waker | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._waker = waker
        self._settings = settings
        self._needs = Needs(user_of(settings), "Read")
        self._access_failure: StreamsError | None = None
        #: What librdkafka has said of partitions; it says it once and then reads them no further.
        self._failures: dict[TopicPartition | None, StreamsError] = {}
        self._out_of_range: dict[TopicPartition, int] = {}
        #: The last error of the connection: why a request that timed out probably did.
        self._connection_error = ""
        own: dict[str, Any] = {
            "max.poll.interval.ms": _POLL_INTERVAL_MS,
            "error_cb": self._on_client_error,
        }
        # As librdkafka has it when nothing is said.
        read_committed = settings.get("isolation.level") != "read_uncommitted"
        if read_committed:
            own |= {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self._on_statistics}
        self._client: Consumer = create_client(Consumer, {**settings, **own})
        self._ends = PartitionEnds(self._client, read_committed=read_committed)
        self._consume = self._client.consume
        #: The partitions and where reading of each began.
        self._assigned: dict[TopicPartition, int] = {}
        #: Whether any was taken away: from then on it is looked where each record is from.
        self._had_others = False
        self._paused: set[TopicPartition] = set()
        self._partition_counts: dict[str, int] = {}

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(self._assigned)

    def assign(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout_ms: int = _REQUEST_TIMEOUT_MS,
        leader_epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Add partitions, each with the offset of the next record to read.

        Looks up topics that are new to this client first: librdkafka would do so only at its next
        second, and would never say that one does not exist.

        Args:
            offsets: an offset, `OFFSET_BEGINNING` or `OFFSET_END` for each partition.
            timeout_ms: how long the look-up may take.
            leader_epochs: of the record before an offset, where it is known. If the log was cut
                below that record since, `poll` reports the offset as out of range (KIP-320).

        Raises:
            UnknownTopicError: a topic or partition does not exist. Nothing was added.
            BrokerUnavailableError: no broker answered in time. Nothing was added.
            IllegalStateError: a partition is assigned already.
        """
        if not offsets:
            return
        twice = self._assigned.keys() & offsets.keys()
        if twice:
            raise IllegalStateError(
                f"Already assigned: {_listed(twice)}. Unassign first, to read from elsewhere."
            )
        deadline = Deadline(self._clock, timeout_ms)
        for partition in offsets:
            if self._partition_counts.get(partition.topic, 0) <= partition.partition:
                self._look_up(partition, deadline)
        epochs = leader_epochs or {}
        positions = [
            ClientPartition(*place, offset, leader_epoch=epochs.get(place, UNKNOWN))
            for place, offset in offsets.items()
        ]
        self._client.incremental_assign(positions)
        for position in positions:
            if position.leader_epoch is not None and position.leader_epoch >= 0:
                self._have_checked(position)
        self._assigned.update(offsets)
        self._ends.add(offsets)

    def _have_checked(self, position: ClientPartition) -> None:
        """Have librdkafka compare an epoch with the log: of itself it does so only when it hears of
        the partition's leader, which the look-up has told it already."""
        try:
            self._client.seek(position)
        except KafkaException as error:
            _log.debug("The leader epoch of %s is not checked: %s", position, error)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions, and forget what was fetched of them and what went wrong with
        them. Those not assigned are left out."""
        leaving = [partition for partition in partitions if partition in self._assigned]
        if not leaving:
            return
        # librdkafka remembers a pause beyond the assignment.
        self.resume(leaving)
        self._client.incremental_unassign([ClientPartition(*partition) for partition in leaving])
        self._ends.remove(leaving)
        self._had_others = True
        for partition in leaving:
            del self._assigned[partition]
            self._failures.pop(partition, None)
            self._out_of_range.pop(partition, None)

    def poll(self, max_records: int, timeout_ms: int) -> list[Message]:
        """The next records, in order within each partition.

        Waits for a first record, then takes what is there without waiting: a lone record passes at
        once. Returns early and perhaps empty when the end of a partition was reached.

        With `message_columns` 420 ns a record of 75 bytes, of which telling events from records
        takes 28; 650 while Python's garbage collector runs at its default thresholds, since every
        message is an object it looks at. Batches of 1,000 to 2,000 records are fastest.

        Args:
            max_records: the most records to return.
            timeout_ms: how long to wait for the first.

        Raises:
            OffsetOutOfRangeError: partitions do not have the offset to read from; names them all.
            UnknownTopicError: a topic was deleted.
            AccessDeniedError: the broker refuses this user.
            StreamsError: another error that trying again does not solve.
        """
        self._raise_failure()
        try:
            batch = self._consume_first(timeout_ms)
            if self._ends.in_doubt:
                batch += self._drain(max_records - len(batch))
            elif batch and max_records > 1:
                # consume(n, timeout) waits until it has all n, so the rest is taken with none.
                batch += self._consume(max_records - 1, 0)
        except KafkaException as error:
            raise client_error(error.args[0], "Reading records", needs=self._needs) from error
        if any(map(_error, batch)):
            batch = self._without_events(batch)
        if not batch:
            self._raise_failure()
        return batch

    def _consume_first(self, timeout_ms: int) -> list[Message]:
        """Wait for a record, in slices where somebody may end the wait."""
        waker = self._waker
        if waker is None or timeout_ms <= _DEAF_MS:
            return self._consume(1, timeout_ms / 1_000)
        deadline = Deadline(self._clock, timeout_ms)
        while True:
            batch = self._consume(1, deadline.remaining_ms(_DEAF_MS) / 1_000)
            if batch or waker.is_set or deadline.passed:
                return batch

    def poll_columns(
        self, max_records: int, timeout_ms: int
    ) -> dict[TopicPartition, RecordColumns]:
        """`poll`, with the records of each assigned partition as columns (see `message_columns`).

        librdkafka hands out nothing that it fetched of a partition before that was unassigned, even
        if it is assigned again elsewhere. A record that came all the same would never be taken for
        another partition's: it is left out.
        """
        records = self.poll(max_records, timeout_ms)
        if not self._had_others:
            return message_columns(records, self._assigned)
        columns = message_columns(records)
        return {place: columns[place] for place in columns if place in self._assigned}

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that `poll` has not returned.

        Passes over transaction markers and compacted records once the partition's end was seen.
        None before the first record when reading began at the beginning or end.
        """
        known = self._client.position([ClientPartition(*partition)])[0].offset
        start = self._assigned.get(partition, OFFSET_BEGINNING)
        position = max(known, start, self._ends.last_reported(partition))
        return position if position >= 0 else None

    def at_end(self, partition: TopicPartition) -> bool:
        """Whether everything readable was returned that the partition held at the last fetch.

        False before the end was seen since the partition was assigned or resumed. Under
        read_committed, what follows the beginning of an open transaction is not readable. Where
        this is False, it becomes True by further polls.
        """
        return self._ends.reached(partition)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The end of an assigned partition as of the last fetch, without asking the broker; None
        before the first."""
        high = self._ends.high_watermark(partition)
        return high if high >= 0 else None

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """The offset after the last readable record of each partition, asked of the brokers at
        once.

        Raises:
            UnknownTopicError: a partition does not exist.
            BrokerUnavailableError: not all brokers answered in time.
        """
        return self._list_offsets(dict.fromkeys(partitions, OFFSET_END), timeout_ms)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """The offset of the first record each partition still has; raises as `end_offsets`."""
        return self._list_offsets(dict.fromkeys(partitions, OFFSET_BEGINNING), timeout_ms)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """The offset of the first record at or after a time in each partition that has one.

        Args:
            timestamps: milliseconds since the epoch.
            timeout_ms: how long the brokers may take.

        Raises:
            UnknownTopicError: a partition does not exist.
            BrokerUnavailableError: not all brokers answered in time.
        """
        found = self._list_offsets(timestamps, timeout_ms)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching assigned partitions. Throws away what was fetched of them and not polled:
        for long stops only."""
        stopping = [partition for partition in partitions if partition in self._assigned]
        self._client.pause([ClientPartition(*partition) for partition in stopping])
        self._paused.update(stopping)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch paused partitions again, from where `poll` got to. Those not paused are left
        out."""
        going_on = [partition for partition in partitions if partition in self._paused]
        if not going_on:
            return
        self._client.resume([ClientPartition(*partition) for partition in going_on])
        self._paused.difference_update(going_on)
        self._ends.forget(going_on)

    def close(self) -> None:
        """Close the client and its connections. Further calls do nothing."""
        self._client.close()

    def _without_events(self, batch: list[Message]) -> list[Message]:
        records = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends.report(_partition_of(message), message.offset() or 0)
            else:
                self._note(error, message)
        return records

    def _drain(self, room: int) -> list[Message]:
        """Take what is there, and see whether it was all."""
        watermarks = self._ends.sight()
        batch = self._consume(room, 0) if room > 0 else []
        if len(batch) < room:
            self._ends.nothing_left(watermarks)
        return batch

    def _note(self, error: KafkaError, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error.code() in TRANSIENT:
            _log.warning("Reading %s-%s: %s; librdkafka tries again", topic, partition, error.str())
        elif error.code() in _OUT_OF_RANGE:
            self._out_of_range[_partition_of(message)] = offset or 0
        else:
            known = topic is not None and partition is not None
            self._failures.setdefault(
                _partition_of(message) if known else None,
                client_error(
                    error,
                    "Reading records",
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    needs=self._needs,
                ),
            )

    def _raise_failure(self) -> None:
        """Raise what went wrong, if anything did: each thing once."""
        if self._access_failure is not None:
            failure, self._access_failure = self._access_failure, None
            raise failure
        if self._out_of_range:
            offsets, self._out_of_range = self._out_of_range, {}
            raise _out_of_range_error(offsets)
        if self._failures:
            raise self._failures.pop(next(iter(self._failures)))

    def _on_statistics(self, statistics: str) -> None:
        self._ends.learn(statistics)

    def _on_client_error(self, error: KafkaError) -> None:
        # The client's own log tells of each; here only what a later error may be explained with.
        if is_access_error(error):
            self._access_failure = self._access_failure or login_error(error, self._settings)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error.str().rstrip(".")

    def _look_up(self, partition: TopicPartition, deadline: Deadline) -> None:
        topic = partition.topic
        left_ms = deadline.remaining_ms(_REQUEST_TIMEOUT_MS)
        try:
            found = self._client.list_topics(topic, timeout=left_ms / 1_000).topics[topic]
        except KafkaException as error:
            raise self._request_error(error, f"Looking up topic {topic!r}") from error
        if found.error is not None and found.error.code() not in TRANSIENT:
            raise client_error(found.error, "Reading records", topic=topic, needs=self._needs)
        if partition.partition not in found.partitions:
            raise UnknownTopicError(
                f"The topic has {len(found.partitions)} partitions, so it cannot be read from "
                "this one. Was it deleted and created anew with fewer?",
                topic=topic,
                partition=partition.partition,
            )
        self._partition_counts[topic] = len(found.partitions)

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        # In the protocol, the latest and earliest offsets are those "at" the times -1 and -2, so
        # one request per broker asks for all of them: 0.8 ms for four partitions, 2.8 ms each with
        # get_watermark_offsets.
        asked = [ClientPartition(*partition, value) for partition, value in wanted.items()]
        if not asked:
            return {}
        try:
            answered = self._client.offsets_for_times(asked, timeout=timeout_ms / 1_000)
        except KafkaException as error:
            raise self._request_error(error, "Asking for offsets") from error
        for found in answered:
            if found.error is not None:
                raise client_error(
                    found.error,
                    "Asking for offsets",
                    topic=found.topic,
                    partition=found.partition,
                    needs=self._needs,
                )
        return {TopicPartition(found.topic, found.partition): found.offset for found in answered}

    def _request_error(self, raised: KafkaException, what: str) -> StreamsError:
        error: KafkaError = raised.args[0]
        if error.code() not in TRANSIENT:
            return client_error(error, what, needs=self._needs)
        because = f" ({self._connection_error})" if self._connection_error else ""
        return BrokerUnavailableError(
            f"{what} failed: {error.str()}{because}. Check that the brokers run and can be reached."
        )


def _partition_of(message: Message) -> TopicPartition:
    topic, partition = message.topic(), message.partition()
    # An event of a partition names it.
    assert topic is not None
    assert partition is not None
    return TopicPartition(topic, partition)


def _out_of_range_error(offsets: Mapping[TopicPartition, int]) -> OffsetOutOfRangeError:
    named = [f"{partition} at {offset}" for partition, offset in offsets.items()]
    others = f", and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return OffsetOutOfRangeError(
        f"Offsets to read from are not in the log: {', '.join(named[:_MOST_NAMED])}{others}. They "
        "were deleted by retention, or the topic was cut or created anew. What to read instead is "
        "up to the topic's reset policy.",
        offsets=offsets,
    )


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
