"""Bringing a store back from its changelog: the applying side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import ChangelogOffset, Committable
from millstream.state.storage.value_formats import PLAIN, ValueFormat

#: Applies changelog records to a store: keys, values, timestamps, and the offset reached with them,
#: which is to be kept together with the data.
ApplyRecords = Callable[
    [Sequence[bytes | None], Sequence[bytes | None], Sequence[int], ChangelogOffset], None
]


def apply_latest(store: Committable, value_format: ValueFormat) -> ApplyRecords:
    """Applies records to a store of which the last record of a key says all.

    Args:
        store: the lowest writable layer.
        value_format: the value of a record becomes `timestamp + value` in timestamped stores.
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
    """Applies records one by one to a store in which every record or their order counts.

    Args:
        write: applies a record: its key, its value as it is stored, its timestamp.
        finish: keeps the offset reached, once all records of a batch are applied.
        value_format: the value of a record becomes `timestamp + value` in timestamped stores.
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


#: From how many records on a store prepares for them, which takes about 20 ms.
_MANY: Final = 200_000


class StoreRestorer:
    """Applies changelog records to one store, in large write batches with the offset reached.

    Restoring the same records twice does no harm.

    Args:
        store_name: for listeners and errors.
        partition: the changelog partition.
        apply: writes records to the store.
        expect_many: prepares the store for many records, or for their end.
        reached: the offset of the last record that the store reflects; None if it is unknown.
    """

    def __init__(
        self,
        store_name: str,
        partition: TopicPartition,
        apply: ApplyRecords,
        expect_many: Callable[[bool], None],
        reached: int | None,
    ) -> None:
        self.store_name = store_name
        self.partition = partition
        #: The offset of the last record that the store reflects; None before the first one.
        self.reached = reached
        self._apply = apply
        self._expect_many = expect_many
        self._expects = False

    def begin(self, start: int, end: int) -> None:
        """Records are going to come.

        Args:
            start: the offset of the first one, or before.
            end: the offset behind the last one.
        """
        if end - start >= _MANY:
            self._expects = True
            self._expect_many(True)

    def end(self) -> None:
        """No more records come, or they do as others write them."""
        if self._expects:
            self._expects = False
            self._expect_many(False)

    def start_offset(self) -> int | None:
        """Where to begin reading: behind the last record in the store; None for the beginning."""
        return None if self.reached is None else self.reached + 1

    def restore_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        offsets: Sequence[int],
    ) -> int:
        """Apply the records of a batch and keep the last offset with them.

        Args:
            keys: as logged; records without a key are skipped, as in Kafka Streams.
            values: as logged; None deletes.
            timestamps: of the records, in milliseconds.
            offsets: of the records, ascending.

        Returns:
            How many records were applied or skipped.
        """
        if not offsets:
            return 0
        self._apply(keys, values, timestamps, (self.partition, offsets[-1]))
        self.reached = offsets[-1]
        return len(offsets)
