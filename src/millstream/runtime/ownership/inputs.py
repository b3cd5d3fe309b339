"""The input partitions of work that runs: fetched, handed over, paused where too much waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.errors import BrokerUnavailableError, UnknownTopicError
from millstream.kafka.protocols import Consumer
from millstream.record import TopicPartition
from millstream.runtime.ownership.start_offsets import CommittedOffsets
from millstream.runtime.retry import Retry
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.work import Work

#: How long the loop may stand still for one request.
_REQUEST_TIMEOUT_MS = 3_000


class Inputs:
    """Stands between the main consumer and the work that reads from it.

    Args:
        consumer: the main consumer.
        offsets: where to go on after an offset that is gone.
        resetting: when that is asked again, of brokers that did not answer.
        max_buffered: with more records than this waiting in a partition it is paused, until the
            half of them are taken. Only partitions that wait for another one get so far.
    """

    def __init__(
        self,
        consumer: Consumer,
        offsets: CommittedOffsets,
        resetting: Retry,
        *,
        max_buffered: int,
    ) -> None:
        self._consumer = consumer
        self._offsets = offsets
        self._resetting = resetting
        #: The offsets that partitions do not have and were to be read from.
        self._displaced: dict[TopicPartition, int] = {}
        self._max_buffered = max_buffered
        self._readers: dict[TopicPartition, Work] = {}
        self._paused: set[TopicPartition] = set()
        # With hundreds of tasks, of which few have records, nobody asks all of them each batch.
        # In the order in which they came, so that a simulation repeats itself.
        self._waiting: dict[Work, None] = {}

    def fetch(
        self,
        works: Iterable[Work],
        starts: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int],
    ) -> None:
        """Begin to fetch for works.

        Args:
            works: which.
            starts: the offset to read each of their partitions from.
            leader_epochs: those of the committed ones, as far as they are known.

        Raises:
            BrokerUnavailableError: no answer in time.
        """
        self._consumer.assign(starts, _REQUEST_TIMEOUT_MS, leader_epochs)
        self._readers.update((place, work) for work in works for place in work.partitions)

    def stop(self, work: Work) -> None:
        """Fetch for this work no more."""
        fetched = [p for p in work.partitions if self._readers.pop(p, None) is not None]
        for place in fetched:
            self._displaced.pop(place, None)
        self._paused.difference_update(fetched)
        self._waiting.pop(work, None)
        self._consumer.unassign(fetched)

    def look_anew(self) -> None:
        """Take nothing for the end of a partition that was seen before now.

        What was fetched and not polled is fetched again.
        """
        reading = self._readers.keys() - self._paused
        self._consumer.pause(reading)
        self._consumer.resume(reading)

    def add_records(self, records: Mapping[TopicPartition, RawRecords]) -> None:
        """Hand fetched records to the work that reads them, then retry a reset that is due.

        The consumer never returns these records again, so nothing may raise before all of them are
        handed over.

        Raises:
            StreamsError: as `reset_position`, for partitions that could not be reset before.
        """
        for place, columns in records.items():
            work = self._readers.get(place)
            # A partition may have been given up between the fetch and the poll.
            if work is not None:
                work.add_records(place, columns)
                self._waiting[work] = None
                if work.waiting_in(place) > self._max_buffered and place not in self._paused:
                    self._paused.add(place)
                    self._consumer.pause([place])
        if self._displaced and self._resetting.is_due:
            self._reset_positions()

    def was_called(self, work: Work) -> None:
        """The work may have something in flight that none of its records has brought about."""
        if work.in_flight:
            self._waiting[work] = None

    @property
    def room(self) -> int:
        """How many more records may wait, in the partition where it is most, before that is
        paused."""
        reading = [p for p in self._readers if p not in self._paused]
        fewest = min((self._readers[p].waiting_in(p) for p in reading), default=0)
        return max(0, self._max_buffered - fewest)

    def were_taken(self, work: Work) -> None:
        """The work has taken some of its records."""
        # What was sent and is refused begins again.
        if not (work.buffered or work.in_flight or work.awaits_sent):
            self._waiting.pop(work, None)
        for place in work.partitions & self._paused:
            if work.waiting_in(place) <= self._max_buffered // 2:
                self._paused.discard(place)
                self._consumer.resume([place])

    def pass_over_ends(self) -> None:
        """Let works know where they are in partitions of which they have taken everything.

        1 us a partition.
        """
        for place, work in self._readers.items():
            if not work.waiting_in(place):
                position = self._consumer.position(place)
                if position is not None:
                    work.pass_over(place, position)

    def processable(self, max_idle_ms: int) -> list[Work]:
        """The works that could take records now, by id."""
        at_end = self._consumer.at_end
        ready = [work for work in self._waiting if work.is_processable(at_end, max_idle_ms)]
        return sorted(ready, key=lambda work: work.task_id)

    def reset_position(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on elsewhere where partitions do not have the offset to read from, as soon as the
        brokers tell where that is.

        Args:
            offsets: of each partition the one that it does not have. Those that are not read any
                more are left out.

        Raises:
            OffsetOutOfRangeError: no reset policy was chosen for some of them.
            BrokerUnavailableError: the brokers have not answered for the whole timeout.
        """
        self._displaced.update({p: offsets[p] for p in offsets if p in self._readers})
        if self._displaced:
            self._reset_positions()

    def _reset_positions(self) -> None:
        try:
            starts = self._offsets.out_of_range(self._displaced)
            self._consumer.unassign(starts)
            self._consumer.assign(starts, _REQUEST_TIMEOUT_MS)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            self._resetting.failed(error)
            return
        self._resetting.worked()
        self._paused.difference_update(starts)
        self._displaced.clear()
