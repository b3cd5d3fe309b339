"""The consumer of records, with manual assignment outside of the group protocol.

The group member (`membership`) determines the partitions and commits offsets; this client only
fetches. Adding or removing partitions does not discard the fetched records of the other partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import Clock, Deadline, SystemClock, Waker
from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    OffsetOutOfRangeError,
    StreamsError,
    UnknownTopicError,
)
from millstream.kafka.clients.partition_ends import PartitionEnds
from millstream.kafka.clients.reader import (
    ColumnReader,
    FetchEvents,
    FetchReader,
    FetchResult,
    MessageReader,
)
from millstream.kafka.clients.record_columns import RecordColumns, append_columns
from millstream.kafka.librdkafka_errors import TRANSIENT, client_error, is_access_error, login_error
from millstream.kafka.settings.librdkafka_settings import create_client
from millstream.kafka.speedups import chosen_speedups
from millstream.kafka.user_permissions import AccessContext, user_of
from millstream.record import UNKNOWN, TopicPartition

__all__ = ["OFFSET_BEGINNING", "OFFSET_END", "RecordConsumer"]

_log = logging.getLogger(__name__)

_OUT_OF_RANGE: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)
#: Longer than any pause between two polls, because the member, not librdkafka, enforces
#: `max.poll.interval.ms`.
_POLL_INTERVAL_MS: Final = 86_400_000
_REQUEST_TIMEOUT_MS: Final = 30_000
#: The interval of librdkafka's statistics, which show whether a partition ends with an open
#: transaction. They take 0.6 % of a CPU with 50 partitions.
_STATISTICS_MS: Final = 100
#: The maximum length of one wait in librdkafka, which Python cannot interrupt. Longer waits for
#: records consist of several such slices. Measured with 10 ms: a command reaches an idle thread in
#: 4.9 ms (median of 200; 99th percentile: 14 ms; maximum: 32 ms), a restoring thread in 6.5 ms
#: (maximum: 51 ms), and a thread that does not wait for records, because it is paused or has no
#: task, in 0.2 to 0.3 ms (maximum: 11 ms). At a load of six times the number of CPUs, an idle
#: thread uses 1.4 % of a CPU and a paused thread 0.7 %; on an idle machine, an idle thread uses 2.2
#: %. Slices of 5 ms would halve the median and use another 0.3 % of a CPU.
_SLICE_MS: Final = 10
_MAX_NAMED: Final = 12


class RecordConsumer:
    """Reads records of explicitly assigned partitions, each from a given offset.

    Not thread-safe. `queued.max.messages.kbytes` limits the prefetched records. Connection errors
    are logged and retried; `poll_columns` raises permanent errors, after returning the records that
    were read before them. A `waker` ends a wait for records within `_SLICE_MS`. The constructor
    raises ConfigError if librdkafka rejects a setting, or if `speedups` requires the extension and
    it is missing.
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
        self._access = AccessContext(user_of(settings), "Read")
        self._access_failure: StreamsError | None = None
        #: Errors of partitions. librdkafka reports each error once and stops reading the partition.
        self._failures: dict[TopicPartition | None, StreamsError] = {}
        self._out_of_range: dict[TopicPartition, int] = {}
        #: The latest connection error: the probable reason for a request timeout.
        self._connection_error = ""
        own: dict[str, Any] = {
            "max.poll.interval.ms": _POLL_INTERVAL_MS,
            "error_cb": self._on_client_error,
        }
        # librdkafka's default is read_committed.
        read_committed = settings.get("isolation.level") != "read_uncommitted"
        if read_committed:
            own |= {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self._on_statistics}
        self._client, self._reader = self._opened({**settings, **own}, speedups)
        self._ends = PartitionEnds(self._client, read_committed=read_committed)
        #: The partitions with their start offsets.
        self._assigned: dict[TopicPartition, int] = {}
        #: Whether a partition was unassigned. If so, the partition of each record is checked.
        self._has_unassigned = False
        self._paused: set[TopicPartition] = set()
        self._partition_counts: dict[str, int] = {}

    def _opened(
        self, settings: Mapping[str, Any], speedups_setting: bool | None
    ) -> tuple[Consumer, FetchReader]:
        events = FetchEvents(self._on_end, self._note, self._on_client_error)
        speedups = chosen_speedups(speedups_setting)
        if speedups is None:
            client: Consumer = create_client(Consumer, settings)
            return client, MessageReader(client, events)
        client, native = speedups.create(Consumer, settings)
        return client, ColumnReader(client, native, events)

    @property
    def _sources(self) -> Collection[TopicPartition] | None:
        return None if self._has_unassigned else self._assigned

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    def assign(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout_ms: int = _REQUEST_TIMEOUT_MS,
        leader_epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Assign additional partitions, each with the offset of the next record to read.

        An offset may be `OFFSET_BEGINNING` or `OFFSET_END`. New topics are looked up first:
        librdkafka's own lookup may start up to a second later, and never reports a missing topic.
        `leader_epochs` contains the epoch of the record before each offset, if known. If the log
        has since been truncated below that record, the offset is reported as out of range
        (KIP-320).

        Raises:
            UnknownTopicError: a topic or partition does not exist. Nothing was assigned.
            BrokerUnavailableError: no broker responded in time. Nothing was assigned.
            IllegalStateError: a partition is already assigned.
        """
        if not offsets:
            return
        twice = self._assigned.keys() & offsets.keys()
        if twice:
            raise IllegalStateError(
                f"Already assigned: {', '.join(map(str, sorted(twice)))}. Unassign them first "
                "to change the offset."
            )
        deadline = Deadline(self._clock, timeout_ms)
        for partition in offsets:
            if self._partition_counts.get(partition.topic, 0) <= partition.partition:
                self._look_up(partition, deadline)
        epochs = leader_epochs or {}
        positions = [
            ClientPartition(
                *topic_partition, offset, leader_epoch=epochs.get(topic_partition, UNKNOWN)
            )
            for topic_partition, offset in offsets.items()
        ]
        self._reader.begin(offsets)
        self._client.incremental_assign(positions)
        for position in positions:
            if position.leader_epoch is not None and position.leader_epoch >= 0:
                self._check_leader_epoch(position)
        self._assigned.update(offsets)
        self._ends.add(offsets)

    def _check_leader_epoch(self, position: ClientPartition) -> None:
        """Make librdkafka compare an epoch with the log.

        Otherwise, librdkafka compares them only when it finds the partition's leader, which has
        already happened in the lookup.
        """
        try:
            self._client.seek(position)
        except KafkaException as error:
            _log.debug("The leader epoch of %s was not checked: %s", position, error)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions, and drop their fetched records and errors.

        Ignores partitions that are not assigned.
        """
        leaving = [partition for partition in partitions if partition in self._assigned]
        if not leaving:
            return
        # In librdkafka, a paused partition stays paused after it is unassigned.
        self.resume(leaving)
        self._client.incremental_unassign([ClientPartition(*partition) for partition in leaving])
        self._reader.end(leaving)
        self._ends.remove(leaving)
        self._has_unassigned = True
        for partition in leaving:
            del self._assigned[partition]
            self._failures.pop(partition, None)
            self._out_of_range.pop(partition, None)

    def poll_columns(
        self, max_records: int, timeout_ms: int
    ) -> dict[TopicPartition, RecordColumns]:
        """Return the next records of each assigned partition, in order, as columns.

        Waits for the first record, then returns the available records without waiting, so a single
        record has no extra latency. Returns early, possibly without records, at the end of a
        partition.

        Records of unassigned partitions are not returned. If a partition is assigned again,
        librdkafka discards the records that were fetched before.

        Raises:
            OffsetOutOfRangeError: one or more partitions do not contain the offset to read from;
                the error contains all these partitions.
            UnknownTopicError: a topic was deleted.
            AccessDeniedError: the broker rejects this user.
            StreamsError: another permanent error.
        """
        self._raise_failure()
        try:
            fetched = self._read(max_records, timeout_ms)
            columns = fetched.columns
            if self._ends.has_uncertain:
                self._drain(columns, max_records - fetched.taken)
        except KafkaException as error:
            raise client_error(error.args[0], "Reading records", access=self._access) from error
        if not columns:
            self._raise_failure()
        if self._has_unassigned:
            return {
                topic_partition: columns[topic_partition]
                for topic_partition in columns
                if topic_partition in self._assigned
            }
        return columns

    def _read(self, max_records: int, timeout_ms: int) -> FetchResult:
        """Read the available records.

        If there is a waker, wait for the first record in slices.
        """
        reader, waker, sources = self._reader, self._waker, self._sources
        deadline = Deadline(self._clock, timeout_ms)
        left_ms = timeout_ms
        while True:
            slice_ms = reader.longest_wait_ms if waker is None else _SLICE_MS
            fetched = reader.read(max_records, min(left_ms, slice_ms), sources)
            if fetched.taken or (waker is not None and waker.is_set) or left_ms <= slice_ms:
                return fetched
            left_ms = deadline.remaining_ms(timeout_ms)

    def _drain(self, columns: dict[TopicPartition, RecordColumns], room: int) -> None:
        watermarks = self._ends.uncertain_watermarks()
        if room <= 0:
            return
        fetched = self._reader.read(room, 0, self._sources)
        for topic_partition, more in fetched.columns.items():
            columns[topic_partition] = (
                append_columns(columns[topic_partition], more)
                if topic_partition in columns
                else more
            )
        if fetched.is_all:
            self._ends.mark_drained(watermarks)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first record that `poll_columns` has not returned yet.

        Once the partition's end has been reached, the position is after any transaction markers and
        compacted records before that end. None before the first record if reading started at
        `OFFSET_BEGINNING` or `OFFSET_END`.
        """
        current = self._client.position([ClientPartition(*partition)])[0].offset
        start = self._assigned.get(partition, OFFSET_BEGINNING)
        position = max(current, start, self._ends.last_reported(partition))
        return position if position >= 0 else None

    def at_end(self, partition: TopicPartition) -> bool:
        """Whether all records that were readable at the last fetch have been returned.

        False until the end has been reached after the assignment or a resume. Under read_committed,
        records after the beginning of an open transaction are not readable. The result only becomes
        True through further polls.
        """
        return self._ends.reached(partition)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the end of an assigned partition at the last fetch, without a request.

        None before the first fetch.
        """
        high = self._ends.high_watermark(partition)
        return high if high >= 0 else None

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Request the end offset of each partition, after the last readable record.

        Raises:
            UnknownTopicError: a topic or partition does not exist.
            BrokerUnavailableError: no broker responded in time.
        """
        return self._list_offsets(dict.fromkeys(partitions, OFFSET_END), timeout_ms)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Request the first offset of each partition.

        Raises the same errors as `end_offsets`.
        """
        return self._list_offsets(dict.fromkeys(partitions, OFFSET_BEGINNING), timeout_ms)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition at or after a timestamp.

        Timestamps are in milliseconds since the epoch. Omits partitions without a record at or
        after the timestamp. Raises the same errors as `end_offsets`.
        """
        # For partitions without such a record, the broker returns OFFSET_END.
        found = self._list_offsets(timestamps, timeout_ms, lowest=OFFSET_END)
        return {partition: offset for partition, offset in found.items() if offset != OFFSET_END}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching assigned partitions.

        Drops fetched records that have not been polled, so only use this for long pauses.
        """
        stopping = [partition for partition in partitions if partition in self._assigned]
        self._client.pause([ClientPartition(*partition) for partition in stopping])
        self._paused.update(stopping)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch paused partitions again, from their position.

        Ignores partitions that are not paused.
        """
        resuming = [partition for partition in partitions if partition in self._paused]
        if not resuming:
            return
        self._client.resume([ClientPartition(*partition) for partition in resuming])
        self._paused.difference_update(resuming)
        self._ends.reset(resuming)

    def close(self) -> None:
        """Close the client and its connections. Can be called several times."""
        self._reader.close()
        self._client.close()

    def _note(
        self, error: KafkaError, topic: str | None, partition: int | None, offset: int | None
    ) -> None:
        if error.code() in TRANSIENT:
            _log.warning("Reading %s-%s: %s; librdkafka retries", topic, partition, error.str())
            return
        topic_partition = (
            None if topic is None or partition is None else TopicPartition(topic, partition)
        )
        if error.code() in _OUT_OF_RANGE and topic_partition is not None:
            if offset is None:
                offset = self.position(topic_partition) or 0
            self._out_of_range[topic_partition] = offset
            return
        self._failures.setdefault(
            topic_partition,
            client_error(
                error,
                "Reading records",
                topic=topic,
                partition=partition,
                offset=offset,
                access=self._access,
            ),
        )

    def _raise_failure(self) -> None:
        """Raise a pending error, once."""
        if self._access_failure is not None:
            failure, self._access_failure = self._access_failure, None
            raise failure
        if self._out_of_range:
            offsets, self._out_of_range = self._out_of_range, {}
            raise _out_of_range_error(offsets)
        if self._failures:
            raise self._failures.pop(next(iter(self._failures)))

    def _on_end(self, topic_partition: TopicPartition, end: int) -> None:
        self._ends.report(topic_partition, end)

    def _on_statistics(self, statistics: str) -> None:
        self._ends.update_stable_offsets(statistics)

    def _on_client_error(self, error: KafkaError) -> None:
        # librdkafka logs every error. Keep only errors that may explain a later error.
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
            raise client_error(found.error, "Reading records", topic=topic, access=self._access)
        if partition.partition not in found.partitions:
            raise UnknownTopicError(
                f"The topic has only {len(found.partitions)} partitions. Check whether it "
                "was deleted and created again with fewer partitions.",
                topic=topic,
                partition=partition.partition,
            )
        self._partition_counts[topic] = len(found.partitions)

    def _list_offsets(
        self, specs: Mapping[TopicPartition, int], timeout_ms: int, lowest: int = 0
    ) -> dict[TopicPartition, int]:
        # In the protocol, the timestamps -1 and -2 mean the latest and earliest offsets, so one
        # request per broker returns all offsets: 0.8 ms for four partitions, instead of 2.8 ms per
        # partition with get_watermark_offsets.
        requested = [ClientPartition(*partition, value) for partition, value in specs.items()]
        if not requested:
            return {}
        try:
            results = self._client.offsets_for_times(requested, timeout=timeout_ms / 1_000)
        except KafkaException as error:
            raise self._request_error(error, "Listing offsets") from error
        for found in results:
            if found.error is not None:
                raise client_error(
                    found.error,
                    "Listing offsets",
                    topic=found.topic,
                    partition=found.partition,
                    access=self._access,
                )
            if found.offset < lowest:
                # librdkafka does not report an unknown offset (-1001) as an error.
                raise BrokerUnavailableError(
                    "Listing offsets failed: the brokers returned no offset. Check that the "
                    "partition has a leader.",
                    topic=found.topic,
                    partition=found.partition,
                )
        return {TopicPartition(found.topic, found.partition): found.offset for found in results}

    def _request_error(self, raised: KafkaException, action: str) -> StreamsError:
        error: KafkaError = raised.args[0]
        if error.code() not in TRANSIENT:
            return client_error(error, action, access=self._access)
        hint = f" ({self._connection_error})" if self._connection_error else ""
        return BrokerUnavailableError(
            f"{action} failed: {error.str()}{hint}. Check that the brokers are reachable."
        )


def _out_of_range_error(offsets: Mapping[TopicPartition, int]) -> OffsetOutOfRangeError:
    named = [f"{partition} at {offset}" for partition, offset in offsets.items()]
    others = f", and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return OffsetOutOfRangeError(
        f"Offsets to read from are not in the log: {', '.join(named[:_MAX_NAMED])}{others}. They "
        "were deleted by retention, or the topic was truncated or recreated. The topic's reset "
        "policy determines where to continue.",
        offsets=offsets,
    )
