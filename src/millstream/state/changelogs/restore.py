"""Restoration of a store by applying changelog records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import ChangelogOffset, Committable
from millstream.state.storage.value_formats import PLAIN, ValueFormat

#: Applies changelog records to a store: keys, values, timestamps, and the offset of the last
#: record, which must be stored together with the data.
ApplyRecords = Callable[
    [Sequence[bytes | None], Sequence[bytes | None], Sequence[int], ChangelogOffset], None
]


def apply_latest(store: Committable, value_format: ValueFormat) -> ApplyRecords:
    """Return a function that applies the last record of each key to a store.

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
    """Return a function that applies records one by one, in order.

    For stores in which every record or the order of records matters. `write` applies a record in
    the stored form; `finish` stores the offset after each batch.
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
    """Applies changelog records to one store, in large write batches.

    The batches include the offset. Restoration is idempotent.

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
        """Prepare to restore the records from offset `start` to offset `end`, exclusive."""
        if end - start >= _BULK_LOAD_RECORDS:
            self._bulk_loading = True
            self._set_bulk_loading(True)

    def end(self) -> None:
        """End bulk loading: restoration is complete, or continues with normal writes."""
        if self._bulk_loading:
            self._bulk_loading = False
            self._set_bulk_loading(False)

    def start_offset(self) -> int | None:
        """Return the changelog offset from which to restore; None for the beginning."""
        return None if self.reached is None else self.reached + 1

    def restore_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        offsets: Sequence[int],
    ) -> int:
        """Apply a batch of records and store the last offset with them.

        As in Kafka Streams, records without a key are skipped. Returns the number of records,
        including skipped ones.
        """
        if not offsets:
            return 0
        self._apply(keys, values, timestamps, (self.partition, offsets[-1]))
        self.reached = offsets[-1]
        return len(offsets)
