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
#: Records are looked at together when they are this part of what may be in memory, and at least
#: half as many bytes as were kept before.
_WAITING_PART: Final = 4
#: Files on disk. Each must fit into memory at the end.
_FILES: Final = 32


class LatestOfKeys:
    """The last record of each key.

    0.2 us a record, and 0.1 for each that was kept before, each time that so many have come that
    they are looked at. While it reads it takes up to three times the bytes that the last records
    have, and a quarter of the limit.

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
        self._waiting_bytes = 0
        self._most_waiting = limit_bytes // _WAITING_PART
        self._spilled: _Files | None = None

    @property
    def has_spilled(self) -> bool:
        """Whether there was more than memory may hold."""
        return self._spilled is not None

    def add(self, batch: Any) -> None:
        """Take a `pyarrow.RecordBatch` of `RECORDS`, which follow those taken before."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._most_waiting:
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
        waiting = _last(pa.Table.from_batches(self._waiting, RECORDS))
        self._waiting, self._waiting_bytes = [], 0
        self._kept = pa.concat_tables([_without(self._kept, waiting), waiting]).combine_chunks()
        if self._spilled is None:
            # Nothing lies on disk that a deletion would have to take away.
            self._kept = self._without_deletions(self._kept)
        kept_bytes = self._kept.nbytes
        if kept_bytes > self._limit_bytes:
            if self._spilled is None:
                self._spilled = _Files(self._folder, self._suffix_bytes)
            self._spilled.write(self._kept)
            self._kept = RECORDS.empty_table()
            kept_bytes = 0
        self._most_waiting = max(self._limit_bytes // _WAITING_PART, kept_bytes // 2)

    def _without_deletions(self, table: Any) -> Any:
        if self._keeps_deletions or not table.column("value").null_count:
            return table
        return table.filter(pc.is_valid(table.column("value")))


def _without(kept: Any, newer: Any) -> Any:
    """What newer records do not replace; half of what it takes to look at both together."""
    if not kept.num_rows:
        return kept
    replaced = pc.is_in(kept.column("key"), value_set=newer.column("key").combine_chunks())
    return kept.filter(pc.invert(replaced))


def _last(table: Any) -> Any:
    """The last row of each key."""
    keys = table.column("key").combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        # Older pyarrow gives one of no chunks for an empty table.
        return table
    encoded = keys.dictionary_encode()
    count = len(encoded.dictionary)
    if count == len(keys):
        return table
    if hasattr(pc, "inverse_permutation"):
        # 15 ns a row: of places that a number has more than one of, the last one is taken.
        places = pc.inverse_permutation(encoded.indices, max_index=count - 1)
        yes = pa.repeat(pa.scalar(True), count)
        return table.filter(pc.scatter(yes, places, max_index=len(keys) - 1))
    # pyarrow before 20 does not have it: 110 ns.
    places = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(keys)))
    grouped = (
        pa.table({"key": encoded.indices, "place": places})
        .group_by("key", use_threads=False)
        .aggregate([("place", "max")])
    )
    return table.take(pc.subtract(grouped.column("place_max"), 1))


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
