"""The data client that reads: assigned partition by partition, outside the group's protocol.

The member of the group (`member`) decides which partitions are ours and commits; this client only
fetches. Partitions come and go one by one without disturbing the others, which keep what was
fetched of them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock, Deadline, SystemClock
from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    OffsetOutOfRangeError,
    StreamsError,
    UnknownTopicError,
)
from millstream.kafka.data.column_reader import ColumnReader
from millstream.kafka.data.message_reader import MessageReader
from millstream.kafka.data.partition_ends import PartitionEnds
from millstream.kafka.data.reader import Events, Fetched, Reader
from millstream.kafka.data.record_columns import RecordColumns, append_columns
from millstream.kafka.librdkafka_errors import TRANSIENT, client_error, is_access_error, login_error
from millstream.kafka.rights import Needs, user_of
from millstream.kafka.settings.clients import create_client
from millstream.kafka.speedups import chosen_speedups
from millstream.record import UNKNOWN, TopicPartition
from millstream.waker import Waker

__all__ = ["OFFSET_BEGINNING", "OFFSET_END", "RecordConsumer"]

_log = logging.getLogger(__name__)

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
    connection are logged and retried; what cannot be retried is raised by `poll_columns`, after the
    records that were read before it.

    Args:
        settings: from `librdkafka_settings`.
        clock: where deadlines are measured.
        waker: ends a wait for records, within `_DEAF_MS`; None if nobody does.
        speedups: whether records are read by the C extension; None for where that can be used.

    Raises:
        ConfigError: librdkafka refuses a setting, or the extension was asked for and is not there.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        clock: Clock | None = None,
        waker: Waker | None = None,
        *,
        speedups: bool | None = None,
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
        self._client, self._reader = self._opened({**settings, **own}, speedups)
        self._ends = PartitionEnds(self._client, read_committed=read_committed)
        #: The partitions and where reading of each began.
        self._assigned: dict[TopicPartition, int] = {}
        #: Whether any was taken away: from then on it is looked where each record is from.
        self._had_others = False
        self._paused: set[TopicPartition] = set()
        self._partition_counts: dict[str, int] = {}

    def _opened(self, settings: Mapping[str, Any], asked: bool | None) -> tuple[Consumer, Reader]:
        events = Events(self._on_end, self._note, self._on_client_error)
        speedups = chosen_speedups(asked)
        if speedups is None:
            client: Consumer = create_client(Consumer, settings)
            return client, MessageReader(client, events)
        client, native = speedups.create(Consumer, settings)
        return client, ColumnReader(client, native, events)

    @property
    def _sources(self) -> Collection[TopicPartition] | None:
        """Where records can only come from, if that is known."""
        return None if self._had_others else self._assigned

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
                below that record since, the offset is reported as out of range (KIP-320).

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
        self._reader.begin(offsets)
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
        self._reader.end(leaving)
        self._ends.remove(leaving)
        self._had_others = True
        for partition in leaving:
            del self._assigned[partition]
            self._failures.pop(partition, None)
            self._out_of_range.pop(partition, None)

    def poll_columns(
        self, max_records: int, timeout_ms: int
    ) -> dict[TopicPartition, RecordColumns]:
        """The next records of each assigned partition, in order, as columns.

        Waits for a first record, then takes what is there without waiting: a lone record passes at
        once. Returns early and perhaps empty when the end of a partition was reached.

        librdkafka hands out nothing that it fetched of a partition before that was unassigned, even
        if it is assigned again elsewhere. A record that came all the same would never be taken for
        another partition's: it is left out.

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
            fetched = self._read(max_records, timeout_ms)
            columns = fetched.columns
            if self._ends.in_doubt:
                self._drain(columns, max_records - fetched.taken)
        except KafkaException as error:
            raise client_error(error.args[0], "Reading records", needs=self._needs) from error
        if not columns:
            self._raise_failure()
        if self._had_others:
            return {place: columns[place] for place in columns if place in self._assigned}
        return columns

    def _read(self, max_records: int, timeout_ms: int) -> Fetched:
        """Wait for a record, in slices where somebody may end the wait."""
        reader, waker, sources = self._reader, self._waker, self._sources
        deadline = Deadline(self._clock, timeout_ms)
        left_ms = timeout_ms
        while True:
            slice_ms = reader.longest_wait_ms if waker is None else _DEAF_MS
            fetched = reader.read(max_records, min(left_ms, slice_ms), sources)
            if fetched.taken or (waker is not None and waker.is_set) or left_ms <= slice_ms:
                return fetched
            left_ms = deadline.remaining_ms(timeout_ms)

    def _drain(self, columns: dict[TopicPartition, RecordColumns], room: int) -> None:
        """Take what is there, and see whether it was all."""
        watermarks = self._ends.sight()
        if room <= 0:
            return
        fetched = self._reader.read(room, 0, self._sources)
        for place, more in fetched.columns.items():
            columns[place] = append_columns(columns[place], more) if place in columns else more
        if fetched.is_all:
            self._ends.nothing_left(watermarks)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that `poll_columns` has not returned.

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
        # A partition without such a record is answered with its end.
        found = self._list_offsets(timestamps, timeout_ms, lowest=OFFSET_END)
        return {partition: offset for partition, offset in found.items() if offset != OFFSET_END}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching assigned partitions. Throws away what was fetched of them and not polled:
        for long stops only."""
        stopping = [partition for partition in partitions if partition in self._assigned]
        self._client.pause([ClientPartition(*partition) for partition in stopping])
        self._paused.update(stopping)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch paused partitions again, from where reading got to. Those not paused are left
        out."""
        going_on = [partition for partition in partitions if partition in self._paused]
        if not going_on:
            return
        self._client.resume([ClientPartition(*partition) for partition in going_on])
        self._paused.difference_update(going_on)
        self._ends.forget(going_on)

    def close(self) -> None:
        """Close the client and its connections. Further calls do nothing."""
        self._reader.close()
        self._client.close()

    def _note(
        self, error: KafkaError, topic: str | None, partition: int | None, offset: int | None
    ) -> None:
        if error.code() in TRANSIENT:
            _log.warning("Reading %s-%s: %s; librdkafka tries again", topic, partition, error.str())
            return
        place = None if topic is None or partition is None else TopicPartition(topic, partition)
        if error.code() in _OUT_OF_RANGE and place is not None:
            if offset is None:
                offset = self.position(place) or 0
            self._out_of_range[place] = offset
            return
        self._failures.setdefault(
            place,
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

    def _on_end(self, place: TopicPartition, end: int) -> None:
        self._ends.report(place, end)

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
        self, wanted: Mapping[TopicPartition, int], timeout_ms: int, lowest: int = 0
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
            if found.offset < lowest:
                # librdkafka's own for an unknown offset (-1001), which is no error to it.
                raise BrokerUnavailableError(
                    "Asking for offsets failed: the offset is not known to the brokers. Check that "
                    "the partition has a leader.",
                    topic=found.topic,
                    partition=found.partition,
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
