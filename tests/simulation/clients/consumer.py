"""The consumer of the simulated cluster; behaves like `RecordConsumer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millstream.errors import IllegalStateError, OffsetOutOfRangeError
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.record import TopicPartition
from simulation.broker.cluster import Cluster
from simulation.broker.log import Entry
from simulation.clients.requests import BrokerRequests, WaitPoint
from simulation.scheduler import Process

_TIMEOUT_MS: Final = 30_000
#: The probability that a partition has no fetched records when it is polled.
_LATE_PROBABILITY: Final = 0.15
_NEXT_FETCH_US: Final = 20_000


class SimulatedConsumer:
    """Reads assigned partitions.

    Args:
        cluster: the cluster.
        process: the consumer's process.
        wait_point: the wait point of its thread.
        read_committed: whether to skip records of open and aborted transactions.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: Process,
        wait_point: WaitPoint,
        *,
        read_committed: bool = False,
    ) -> None:
        self._requests = BrokerRequests(cluster, process)
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._process = process
        self._committed = read_committed
        self._positions: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        #: The high watermark and the end in the last fetch.
        self._high: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        #: Offsets that are not in the log; reported once, and not read further.
        self._out_of_range: dict[TopicPartition, int] = {}
        self._stuck: set[TopicPartition] = set()
        self._wait_point = wait_point
        self._known_topics: set[str] = set()
        self._closed = False

    # --- assignment ----------------------------------------------------------------------------

    def assign(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout_ms: int = _TIMEOUT_MS,
        leader_epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        if not offsets:
            return
        twice = self._positions.keys() & offsets.keys()
        if twice:
            raise IllegalStateError(f"Already assigned: {sorted(twice)}.")
        if any(place.topic not in self._known_topics for place in offsets):
            self._requests.send(lambda: (), lambda: None, timeout_ms, "Looking up topics")
            self._requests.leaders(offsets, "Reading records")
            self._known_topics.update(place.topic for place in offsets)
        for place, offset in offsets.items():
            self._positions[place] = offset
            self._starts[place] = offset
            self._cluster.logs[place].on_change.append(self._wake)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for place in list(partitions):
            if place not in self._positions:
                continue
            for known in (self._positions, self._starts, self._high, self._ends):
                known.pop(place, None)
            self._out_of_range.pop(place, None)
            self._stuck.discard(place)
            self._paused.discard(place)
            self._cluster.logs[place].on_change.remove(self._wake)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(place for place in partitions if place in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for place in list(partitions):
            if place in self._paused:
                self._paused.discard(place)
                self._ends.pop(place, None)

    # --- reading -------------------------------------------------------------------------------

    def poll_columns(
        self, max_records: int, timeout_ms: int
    ) -> dict[TopicPartition, RecordColumns]:
        scheduler = self._scheduler
        scheduler.step(scheduler.random.randrange(20, 300))
        self._raise_out_of_range()
        until_us = scheduler.now_us + timeout_ms * 1000
        while True:
            columns, ended, late = self._fetch(max_records)
            if columns:
                return columns
            self._raise_out_of_range()
            left_us = until_us - scheduler.now_us
            if ended or left_us <= 0 or self._wait_point.is_woken:
                return {}
            self._wait_point.wait(min(left_us, _NEXT_FETCH_US) if late else left_us)

    def _fetch(self, limit: int) -> tuple[dict[TopicPartition, RecordColumns], bool, bool]:
        """Fetched records, whether a partition's end was reached, and whether records are late."""
        rng = self._scheduler.random
        places = [p for p in self._positions if p not in self._paused and p not in self._stuck]
        if len(places) > 1:
            rng.shuffle(places)
        found: dict[TopicPartition, RecordColumns] = {}
        ended, late = False, False
        for place in places:
            if not self._cluster.reaches(self._process, self._cluster.leader(place)):
                late = True
                continue
            if rng.random() < _LATE_PROBABILITY:
                late = True
                continue
            entries, at_end = self._fetch_one(place, limit)
            ended = ended or at_end
            if entries:
                found[place] = _columns(entries)
                limit -= len(entries)
                if limit <= 0:
                    break
        return found, ended, late

    def _fetch_one(self, place: TopicPartition, limit: int) -> tuple[list[Entry], bool]:
        log = self._cluster.logs[place]
        position = self._positions[place]
        if position == OFFSET_BEGINNING:
            position = log.start
        elif position == OFFSET_END:
            position = log.end_for(committed=self._committed)
        if not log.has(position):
            self._out_of_range[place] = position
            self._stuck.add(place)
            return [], False
        some = min(limit, self._scheduler.random.choice((1, 5, 20, 100, 1000)))
        entries, position = log.read(position, some, committed=self._committed)
        self._positions[place] = position
        self._high[place] = log.end
        end = log.end_for(committed=self._committed)
        news = position >= end and self._ends.get(place) != end
        if position >= end:
            self._ends[place] = end
        return entries, news

    def _wake(self) -> None:
        """Wake the thread after a write to an assigned partition."""
        self._wait_point.end(self._scheduler.random.randrange(200, 4_000))

    def _raise_out_of_range(self) -> None:
        if self._out_of_range:
            offsets, self._out_of_range = self._out_of_range, {}
            raise OffsetOutOfRangeError(
                f"Offsets to read from are not in the log: {sorted(offsets.items())}.",
                offsets=offsets,
            )

    def position(self, partition: TopicPartition) -> int | None:
        position = self._positions.get(partition, OFFSET_BEGINNING)
        return position if position >= 0 else None

    def at_end(self, partition: TopicPartition) -> bool:
        end = self._ends.get(partition)
        if end is None:
            return False
        return self._positions[partition] >= end and (
            self._high.get(partition, 0) <= end or self._committed
        )

    def high_watermark(self, partition: TopicPartition) -> int | None:
        return self._high.get(partition)

    # --- offsets -------------------------------------------------------------------------------

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        return self._request(
            list(partitions),
            lambda place: self._cluster.logs[place].end_for(committed=self._committed),
            timeout_ms,
        )

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        return self._request(
            list(partitions), lambda place: self._cluster.logs[place].start, timeout_ms
        )

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        found = self._request(
            list(timestamps),
            lambda place: self._cluster.logs[place].offset_for_time(timestamps[place]),
            timeout_ms,
        )
        return {place: offset for place, offset in found.items() if offset >= 0}

    def _request(
        self, places: Sequence[TopicPartition], answer: object, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        assert callable(answer)
        if not places:
            return {}
        return self._requests.send(
            lambda: self._requests.leaders(places, "Listing offsets"),
            lambda: {place: answer(place) for place in places},
            timeout_ms,
            "Listing offsets",
        )

    def close(self) -> None:
        self.unassign(list(self._positions))
        self._closed = True


def _columns(entries: Sequence[Entry]) -> RecordColumns:
    first, last = entries[0].offset, entries[-1].offset
    has_headers = any(entry.headers for entry in entries)
    return RecordColumns(
        keys=[entry.key for entry in entries],
        values=[entry.value for entry in entries],
        timestamps=[entry.timestamp for entry in entries],
        offsets=(
            range(first, last + 1)
            if last - first + 1 == len(entries)
            else [entry.offset for entry in entries]
        ),
        headers=[entry.headers or () for entry in entries] if has_headers else None,
        leader_epoch=entries[-1].epoch,
    )
