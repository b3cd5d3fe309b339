"""Finds the last record of each key in a log.

Records are stored as Arrow columns, which take a few bytes more than the records themselves; Python
objects would take ten times as much. Above the memory limit, records are spilled to files by the
hash of the key. At the end, each file is processed separately.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: The columns of log records.
RECORDS: Final = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("timestamp", pa.int64()),
        ("offset", pa.int64()),
    ]
)
#: Pending records are merged when their size reaches the memory limit divided by this number, but
#: not before it reaches half the size of the kept records.
_PENDING_DIVISOR: Final = 4
#: The number of spill files. Each must fit into memory at the end.
_FILES: Final = 32


class LatestByKey:
    """Collects the last record of each key.

    A merge takes 0.2 us per pending record and 0.1 us per kept record. Peak memory is up to three
    times the size of the kept records, plus a quarter of `limit_bytes`. Kept records that exceed
    `limit_bytes` are spilled to disk. Keys that differ only in their last `suffix_bytes` bytes are
    returned in one table.
    """

    def __init__(
        self,
        limit_bytes: int,
        folder: str | None = None,
        *,
        keeps_deletions: bool = False,
        suffix_bytes: int = 0,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._keeps_deletions = keeps_deletions
        self._suffix_bytes = suffix_bytes
        self._kept: Any = RECORDS.empty_table()
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._max_pending_bytes = limit_bytes // _PENDING_DIVISOR
        self._spilled: _SpillFiles | None = None

    @property
    def has_spilled(self) -> bool:
        return self._spilled is not None

    def add(self, batch: Any) -> None:
        """Add a `pyarrow.RecordBatch` of `RECORDS`, in log order."""
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._max_pending_bytes:
            self.merge()

    def tables(self) -> Iterator[Any]:
        """Yield the last records as tables of `RECORDS`.

        Each key is in exactly one table.
        """
        self.merge()
        if self._spilled is None:
            yield self._kept
            return
        self._spilled.write(self._kept)
        self._kept = RECORDS.empty_table()
        for table in self._spilled.tables():
            yield self._without_deletions(_last_rows(table))

    def close(self) -> None:
        self._kept, self._pending = RECORDS.empty_table(), []
        if self._spilled is not None:
            self._spilled.close()

    def merge(self) -> None:
        """Merge pending records into the kept records.

        The result is spilled if it exceeds the limit.
        """
        if not self._pending:
            return
        pending = _last_rows(pa.Table.from_batches(self._pending, RECORDS))
        self._pending, self._pending_bytes = [], 0
        self._kept = pa.concat_tables(
            [_remove_replaced(self._kept, pending), pending]
        ).combine_chunks()
        if self._spilled is None:
            # Without spilled records, deletions do not have to be kept.
            self._kept = self._without_deletions(self._kept)
        kept_bytes = self._kept.nbytes
        if kept_bytes > self._limit_bytes:
            if self._spilled is None:
                self._spilled = _SpillFiles(self._folder, self._suffix_bytes)
            self._spilled.write(self._kept)
            self._kept = RECORDS.empty_table()
            kept_bytes = 0
        self._max_pending_bytes = max(self._limit_bytes // _PENDING_DIVISOR, kept_bytes // 2)

    def _without_deletions(self, table: Any) -> Any:
        if self._keeps_deletions or not table.column("value").null_count:
            return table
        return table.filter(pc.is_valid(table.column("value")))


def _remove_replaced(kept: Any, newer: Any) -> Any:
    """Remove records that newer ones replace.

    This is twice as fast as deduplicating both tables together.
    """
    if not kept.num_rows:
        return kept
    replaced = pc.is_in(kept.column("key"), value_set=newer.column("key").combine_chunks())
    return kept.filter(pc.invert(replaced))


def _last_rows(table: Any) -> Any:
    keys = table.column("key").combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        # Older versions of pyarrow return a chunked array without chunks for an empty table.
        return table
    encoded = keys.dictionary_encode()
    count = len(encoded.dictionary)
    if count == len(keys):
        return table
    if hasattr(pc, "inverse_permutation"):
        # Takes 15 ns per row. For duplicates, inverse_permutation returns the last position.
        positions = pc.inverse_permutation(encoded.indices, max_index=count - 1)
        true_values = pa.repeat(pa.scalar(True), count)
        return table.filter(pc.scatter(true_values, positions, max_index=len(keys) - 1))
    # For pyarrow before version 20. Takes 110 ns per row.
    positions = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(keys)))
    grouped = (
        pa.table({"key": encoded.indices, "position": positions})
        .group_by("key", use_threads=False)
        .aggregate([("position", "max")])
    )
    return table.take(pc.subtract(grouped.column("position_max"), 1))


class _SpillFiles:
    """The files of spilled records.

    All records of a key are in one file, in write order.
    """

    def __init__(self, folder: str | None, suffix_bytes: int) -> None:
        self._end = -suffix_bytes or None
        self._folder = tempfile.TemporaryDirectory(prefix="millstream-", dir=folder)
        self._paths = [Path(self._folder.name, str(number)) for number in range(_FILES)]
        self._writers = [pa.ipc.new_stream(str(path), RECORDS) for path in self._paths]

    def write(self, table: Any) -> None:
        crc, end = zlib.crc32, self._end
        numbers = pa.array(
            [crc(key[:end]) % _FILES for key in table.column("key").to_pylist()], pa.int8()
        )
        for number, writer in enumerate(self._writers):
            writer.write_table(table.filter(pc.equal(numbers, number)))

    def tables(self) -> Iterator[Any]:
        for writer, path in zip(self._writers, self._paths, strict=True):
            writer.close()
            with pa.ipc.open_stream(str(path)) as stream:
                yield stream.read_all()
            path.unlink()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self._folder.cleanup()
