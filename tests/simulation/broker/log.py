"""The log of one partition: offsets, leader epochs, transactions, compaction and retention."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.record import Headers

#: The number of batches of a producer that a leader keeps to detect duplicates.
_KEPT_BATCHES: Final = 5


class LogError(Exception):
    """The leader rejects a request; the text is the name of Kafka's error."""


@dataclass(slots=True)
class Entry:
    """A record, or the marker that ends a transaction.

    Args:
        offset: its place in the log.
        key: serialized.
        value: serialized.
        timestamp: milliseconds since the epoch.
        headers: or None.
        epoch: the leader's when it was written.
        producer_id: of a transactional producer; -1 without a transaction.
        marker: "commit" or "abort"; None for a record.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None
    epoch: int
    producer_id: int = -1
    marker: str | None = None


#: A record to be written: key, value, timestamp, headers.
Row = tuple[bytes | None, bytes | None, int, Headers | None]


@dataclass(slots=True)
class _ProducerState:
    epoch: int
    #: First and last sequence number and first offset of the latest batches.
    batches: list[tuple[int, int, int]] = field(default_factory=list)


class PartitionLog:
    """The log of a partition's leader. Records are replicated immediately, so the high watermark
    is the end.

    Args:
        cleanup: "delete", "compact" or "compact,delete".
    """

    def __init__(self, cleanup: str = "delete") -> None:
        self.cleanup = cleanup
        self.entries: list[Entry] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        #: Each leader epoch and its first offset.
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        #: The first offset of the open transaction of each producer.
        self.open: dict[int, int] = {}
        #: Producer, first offset and marker offset of aborted transactions.
        self.aborted: list[tuple[int, int, int]] = []
        self._producers: dict[int, _ProducerState] = {}
        #: Called after records were appended or became readable.
        self.on_change: list[Callable[[], None]] = []

    @property
    def last_stable(self) -> int:
        """The first offset of the first open transaction, or the end."""
        return min(self.open.values(), default=self.end)

    def end_for(self, *, committed: bool) -> int:
        """The end of the log for readers of committed or of all records."""
        return self.last_stable if committed else self.end

    # --- writing -------------------------------------------------------------------------------

    def append(
        self,
        rows: Sequence[Row],
        producer_id: int = -1,
        producer_epoch: int = 0,
        sequence: int = -1,
        *,
        transactional: bool = False,
    ) -> int:
        """Append a batch, unless it is a duplicate. Return the offset of its first record.

        Raises:
            LogError: `INVALID_PRODUCER_EPOCH` if the producer is fenced,
                `OUT_OF_ORDER_SEQUENCE_NUMBER` if a batch is missing.
        """
        if producer_id >= 0:
            known = self._checked(producer_id, producer_epoch)
            for first, last, offset in known.batches:
                if first == sequence and last == sequence + len(rows) - 1:
                    return offset
            expected = known.batches[-1][1] + 1 if known.batches else None
            if expected is not None and sequence != expected:
                raise LogError("OUT_OF_ORDER_SEQUENCE_NUMBER")
            known.batches.append((sequence, sequence + len(rows) - 1, self.end))
            del known.batches[:-_KEPT_BATCHES]
        base = self.end
        owner = producer_id if transactional else -1
        if transactional:
            self.open.setdefault(producer_id, base)
        for offset, (key, value, timestamp, headers) in enumerate(rows, base):
            self.entries.append(Entry(offset, key, value, timestamp, headers, self.epoch, owner))
        self.end = base + len(rows)
        self._changed()
        return base

    def _checked(self, producer_id: int, epoch: int) -> _ProducerState:
        known = self._producers.get(producer_id)
        if known is None or epoch > known.epoch:
            known = self._producers[producer_id] = _ProducerState(epoch)
        elif epoch < known.epoch:
            raise LogError("INVALID_PRODUCER_EPOCH")
        return known

    def mark(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Write the marker that ends a transaction, and fence the producer's older epochs."""
        self._checked(producer_id, epoch)
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        marker = Entry(self.end, None, None, 0, None, self.epoch, producer_id)
        marker.marker = "commit" if commit else "abort"
        self.entries.append(marker)
        if not commit:
            self.aborted.append((producer_id, first, self.end))
        self.end += 1
        self._changed()

    def new_leader(self) -> None:
        """Change the leader; the new one has every record."""
        self.epoch += 1
        self.epochs.append((self.epoch, self.end))

    # --- reading -------------------------------------------------------------------------------

    def has(self, offset: int) -> bool:
        """Whether an offset is in the log or at its end."""
        return self.start <= offset <= self.end

    def read(self, offset: int, max_records: int, *, committed: bool) -> tuple[list[Entry], int]:
        """Read from an offset; return the records and the next offset.

        Skips markers and, for readers of committed records, aborted records.
        """
        end = self.end_for(committed=committed)
        entries = self.entries
        index = bisect_left(entries, offset, key=_offset)
        found: list[Entry] = []
        while index < len(entries) and len(found) < max_records and entries[index].offset < end:
            entry = entries[index]
            index += 1
            offset = entry.offset + 1
            if entry.marker is None and not (committed and self._is_aborted(entry)):
                found.append(entry)
        if len(found) < max_records:
            # Only markers and gaps follow the last record.
            offset = max(offset, end)
        return found, offset

    def _is_aborted(self, entry: Entry) -> bool:
        return entry.producer_id >= 0 and any(
            producer == entry.producer_id and first <= entry.offset < last
            for producer, first, last in self.aborted
        )

    def offset_for_time(self, timestamp: int) -> int:
        """The first offset at or after a time; -1 if there is none."""
        for entry in self.entries:
            if entry.marker is None and entry.timestamp >= timestamp:
                return entry.offset
        return -1

    # --- deletion ------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> int:
        """Delete the records before an offset (-1: the end). Return the new start.

        Raises:
            LogError: `OFFSET_OUT_OF_RANGE` beyond the end.
        """
        if offset < 0:
            offset = self.end
        if offset > self.end:
            raise LogError("OFFSET_OUT_OF_RANGE")
        if offset > self.start:
            self.start = offset
            del self.entries[: bisect_left(self.entries, offset, key=_offset)]
        return self.start

    def compact(self, upto: int) -> int:
        """Keep only each key's last record below an offset. Return the number of deleted records.

        Keeps the last record of the log, records without a key, and records of open transactions.
        Aborted records are deleted and do not replace earlier ones.
        """
        upto = min(upto, self.last_stable, self.end - 1)
        last = {
            e.key: e.offset
            for e in self.entries
            if e.key is not None and e.offset < upto and not self._is_aborted(e)
        }
        before = len(self.entries)
        self.entries = [
            entry
            for entry in self.entries
            if entry.offset >= upto
            or entry.marker is not None
            or entry.key is None
            or last.get(entry.key) == entry.offset
        ]
        return before - len(self.entries)

    def _changed(self) -> None:
        for call in list(self.on_change):
            call()


def _offset(entry: Entry) -> int:
    return entry.offset
