"""The last record of each key, of records that come in the order of the log.

Records are kept as columns of Arrow, a few bytes more than they have themselves, and not as objects
of Python, each of which takes ten times as much. When they take more memory than they may, they
are put on disk, in files by the hash of the key, and each file is looked at by itself at the end.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: Columns as they come from the log.
RECORDS: Final = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("timestamp", pa.int64()),
        ("offset", pa.int64()),
    ]
)
#: So many records are looked at together, at least. Half as many take a third longer.
_LEAST_ROWS: Final = 1_000_000
#: Files on disk. Each must fit into memory at the end.
_FILES: Final = 32


class LatestOfKeys:
    """The last record of each key.

    0.3 us a record. While it reads it takes up to three times the bytes that the last records have.

    Args:
        limit_bytes: of last records in memory; what is beyond goes to disk.
        folder: where; None for the system's folder of temporary files.
        keeps_deletions: whether records without a value are given, too.
        suffix_bytes: of the end of keys; keys that differ only there are given in one table.
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
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._spilled: _Files | None = None

    @property
    def has_spilled(self) -> bool:
        """Whether there was more than memory may hold."""
        return self._spilled is not None

    def add(self, batch: Any) -> None:
        """Take a `pyarrow.RecordBatch` of `RECORDS`, which follow those taken before."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= max(_LEAST_ROWS, self._kept.num_rows):
            self.settle()

    def tables(self) -> Iterator[Any]:
        """The last records, as tables of `RECORDS`, each key in one of them."""
        self.settle()
        if self._spilled is None:
            yield self._kept
            return
        self._spilled.write(self._kept)
        self._kept = RECORDS.empty_table()
        for table in self._spilled.tables():
            yield self._without_deletions(_last(table))

    def close(self) -> None:
        """Let go of memory and files."""
        self._kept, self._waiting = RECORDS.empty_table(), []
        if self._spilled is not None:
            self._spilled.close()

    def settle(self) -> None:
        """Put what has come together with what there was, and on disk what is too much."""
        if not self._waiting:
            return
        waiting = pa.Table.from_batches(self._waiting, RECORDS)
        self._kept = _last(pa.concat_tables([self._kept, waiting]))
        self._waiting, self._waiting_rows = [], 0
        if self._spilled is None:
            # Nothing lies on disk that a deletion would have to take away.
            self._kept = self._without_deletions(self._kept)
        if self._kept.nbytes > self._limit_bytes:
            if self._spilled is None:
                self._spilled = _Files(self._folder, self._suffix_bytes)
            self._spilled.write(self._kept)
            self._kept = RECORDS.empty_table()

    def _without_deletions(self, table: Any) -> Any:
        if self._keeps_deletions or not table.column("value").null_count:
            return table
        return table.filter(pc.is_valid(table.column("value")))


def _last(table: Any) -> Any:
    """The last row of each key."""
    keys = table.column("key").combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        # Older pyarrow gives one of no chunks for an empty table.
        return table
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) == len(keys):
        return table
    places = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(keys)))
    grouped = (
        pa.table({"key": encoded.indices, "place": places})
        .group_by("key", use_threads=False)
        .aggregate([("place", "max")])
    )
    return table.take(pc.subtract(grouped.column("place_max"), 1)).combine_chunks()


class _Files:
    """Records on disk, those of a key in one file, in the order in which they were written."""

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
