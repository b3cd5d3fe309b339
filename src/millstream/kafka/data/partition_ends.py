"""Where the partitions that a consumer reads end, and whether it has got there.

Three offsets matter. The high watermark is the end of what is replicated. The last stable offset
is where the first open transaction begins: the end for those who read committed records only. The
position is the offset after the last record that was handed out; markers of transactions and
aborted records may follow it, which are never handed out.

librdkafka reports an end when a fetch finds nothing beyond it, and tells the high watermark at any
time, but the last stable offset only in its statistics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from millstream.record import TopicPartition

#: Before any offset.
NOWHERE: Final = -1


class PartitionEnds:
    """The ends of the partitions that one consumer reads.

    Args:
        client: the consumer, which reports ends (`enable.partition.eof`).
        read_committed: whether it passes over records of open and aborted transactions.
    """

    def __init__(self, client: Consumer, *, read_committed: bool) -> None:
        self._position = client.position
        self._watermarks = client.get_watermark_offsets
        self._read_committed = read_committed
        #: What is read, in the client's form: to make one costs as much as to ask for it.
        self._asked: dict[TopicPartition, ClientPartition] = {}
        #: The end that was last reported of each partition.
        self._ends: dict[TopicPartition, int] = {}
        #: Partitions where a transaction seemed to be open behind the end, and up to which high
        #: watermark it is certain that nothing readable follows.
        self._doubtful: dict[TopicPartition, int] = {}
        #: Their last stable offsets, as far as heard of.
        self._stable: dict[TopicPartition, int] = {}

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are read from now on."""
        for partition in partitions:
            self._asked[partition] = ClientPartition(*partition)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are not read any more."""
        for partition in partitions:
            for known in (self._asked, self._ends, self._doubtful, self._stable):
                known.pop(partition, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """What the partitions have got meanwhile is not known; the client will report again."""
        for partition in partitions:
            self._ends.pop(partition, None)

    def report(self, partition: TopicPartition, end: int) -> None:
        """The client found nothing beyond an offset, and has handed out what lies before it."""
        if partition in self._asked:
            self._ends[partition] = end

    def last_reported(self, partition: TopicPartition) -> int:
        """The end that was last reported; `NOWHERE` before that."""
        return self._ends.get(partition, NOWHERE)

    def high_watermark(self, partition: TopicPartition) -> int:
        """As of the last fetch; negative before it."""
        asked = self._asked.get(partition)
        # Positional arguments: 180 ns, with keywords 350.
        watermarks = None if asked is None else self._watermarks(asked, 0, True)
        return NOWHERE if watermarks is None else watermarks[1]

    def reached(self, partition: TopicPartition) -> bool:
        """Whether everything readable was handed out that the last fetch knew of.

        500 ns where nothing came since the end was reported, 1,000 with an open transaction.
        """
        end = self._ends.get(partition)
        if end is None:
            return False
        high = self.high_watermark(partition)
        # The watermark rises before the records below it can be polled: it tells that there are
        # some, whatever waits in the client.
        if high <= end:
            return True
        position = self._position([self._asked[partition]])[0].offset
        if position >= high:
            return True
        # Otherwise there are records to come, or else a marker and then the report of another end.
        if position > end or not self._read_committed:
            return False
        # Or a transaction is open, perhaps for hours, and nothing will be reported until it ends.
        return self._doubtful.setdefault(partition, NOWHERE) == high

    @property
    def in_doubt(self) -> bool:
        """Whether `sight` and `nothing_left` can tell anything."""
        return bool(self._doubtful)

    def learn(self, statistics: str) -> None:
        """Take the last stable offsets from the client's statistics.

        A transaction is open behind an end if that is still the last stable offset. Since that only
        moves when a marker moves the high watermark, this holds as long as the latter stays.
        """
        if not self._doubtful:
            return
        topics = orjson.loads(statistics)["topics"]
        for place in self._doubtful:
            known = topics.get(place.topic, {}).get("partitions", {}).get(str(place.partition))
            if known is None:
                # Deleted, of which the client tells by itself.
                continue
            self._stable[place] = known["ls_offset"]
            if known["ls_offset"] == self._ends.get(place):
                self._doubtful[place] = known["hi_offset"]

    def sight(self) -> dict[TopicPartition, int]:
        """The high watermarks where a transaction may be open."""
        return {partition: self.high_watermark(partition) for partition in self._doubtful}

    def nothing_left(self, watermarks: dict[TopicPartition, int]) -> None:
        """The client has handed out all that it had when `watermarks` were sighted.

        Statistics are rarer than fetches: where others go on writing behind an open transaction,
        the watermark has always moved on since the last. But records come out in the order in which
        they were fetched, so those behind a transaction that ended meanwhile would have come; in
        the short time until the next statistics, only those behind many aborted ones can be missed.
        """
        for partition, high in watermarks.items():
            if self._stable.get(partition) == self._ends.get(partition, NOWHERE):
                self._doubtful[partition] = high
