"""Restoring a store by applying changelog records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import ChangelogOffset, Committable
from millstream.state.storage.value_formats import PLAIN, ValueFormat

#: Applies changelog records to a store: keys, values, timestamps, and the offset of the last one,
#: which must be stored together with the data.
ApplyRecords = Callable[
    [Sequence[bytes | None], Sequence[bytes | None], Sequence[int], ChangelogOffset], None
]


def apply_latest(store: Committable, value_format: ValueFormat) -> ApplyRecords:
    """Apply records to a store for which only the last record of a key matters.

    In timestamped stores, the stored value becomes `timestamp + value`.
    """

    def apply(
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        offset: ChangelogOffset,
    ) -> None:
        items = dict(zip(keys, value_format.join_many(values, timestamps), strict=True))
        items.pop(None, None)
        store.restore(items, offset)  # type: ignore[arg-type]

    return apply


def apply_each(
    write: Callable[[bytes, bytes | None, int], object],
    finish: Callable[[ChangelogOffset], None],
    value_format: ValueFormat = PLAIN,
) -> ApplyRecords:
    """Apply records one by one, for a store for which every record, or their order, matters.

    `write` applies a record as stored; `finish` stores the offset after all records of a batch.
    """

    def apply(
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        offset: ChangelogOffset,
    ) -> None:
        stored = value_format.join_many(values, timestamps)
        for key, value, timestamp in zip(keys, stored, timestamps, strict=True):
            if key is not None:
                write(key, value, timestamp)
        finish(offset)

    return apply


#: The number of records above which bulk loading pays off; preparing it takes about 20 ms.
_BULK_LOAD_RECORDS: Final = 200_000


class StoreRestorer:
    """Applies changelog records to one store, in large write batches that include the offset.

    Restoring is idempotent.

    Args:
        reached: the offset of the last record that the store reflects; None if unknown.
    """

    def __init__(
        self,
        store_name: str,
        partition: TopicPartition,
        apply: ApplyRecords,
        set_bulk_loading: Callable[[bool], None],
        reached: int | None,
    ) -> None:
        self.store_name = store_name
        self.partition = partition
        #: The offset of the last record that the store reflects; None before the first one.
        self.reached = reached
        self._apply = apply
        self._set_bulk_loading = set_bulk_loading
        self._bulk_loading = False

    def begin(self, start: int, end: int) -> None:
        """Prepare for restoring the records from offset `start` or later up to `end`, exclusive."""
        if end - start >= _BULK_LOAD_RECORDS:
            self._bulk_loading = True
            self._set_bulk_loading(True)

    def end(self) -> None:
        """End bulk loading: restoring is complete, or continues at the pace of normal writes."""
        if self._bulk_loading:
            self._bulk_loading = False
            self._set_bulk_loading(False)

    def start_offset(self) -> int | None:
        """Return the offset after the last record in the store; None for the beginning."""
        return None if self.reached is None else self.reached + 1

    def restore_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        offsets: Sequence[int],
    ) -> int:
        """Apply a batch of records and store the last offset with them.

        Records without a key are skipped, as in Kafka Streams. Returns the number of records,
        including skipped ones.
        """
        if not offsets:
            return 0
        self._apply(keys, values, timestamps, (self.partition, offsets[-1]))
        self.reached = offsets[-1]
        return len(offsets)
