"""What a RocksDB database tells of itself, by the names of Kafka Streams' metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from millstream.metrics.registry import RecordingLevel, Scope
from millstream.metrics.sensors import Sensor

STORE_GROUP: Final = "stream-state-metrics"
_DEBUG: Final = RecordingLevel.DEBUG

#: Properties of RocksDB are called as Kafka Streams' metrics, after `rocksdb.`; 2 us each.
PROPERTIES: Final = (
    "background-errors",
    "block-cache-capacity",
    "block-cache-pinned-usage",
    "block-cache-usage",
    "compaction-pending",
    "cur-size-active-mem-table",
    "cur-size-all-mem-tables",
    "estimate-num-keys",
    "estimate-pending-compaction-bytes",
    "estimate-table-readers-mem",
    "live-sst-files-size",
    "mem-table-flush-pending",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-immutable-mem-table",
    "num-live-versions",
    "num-running-compactions",
    "num-running-flushes",
    "size-all-mem-tables",
    "total-sst-files-size",
)

#: RocksDB makes the text of its statistics in 0.4 ms.
_READ_EVERY_MS: Final = 10_000
_RATES: Final = {
    "bytes-written": "rocksdb.bytes.written",
    "bytes-read": "rocksdb.bytes.read",
    "memtable-bytes-flushed": "rocksdb.flush.write.bytes",
}
_ONLY_RATES: Final = {
    "bytes-read-compaction": "rocksdb.compact.read.bytes",
    "bytes-written-compaction": "rocksdb.compact.write.bytes",
}
_RATIOS: Final = {
    "memtable-hit-ratio": "rocksdb.memtable",
    "block-cache-data-hit-ratio": "rocksdb.block.cache.data",
    "block-cache-filter-hit-ratio": "rocksdb.block.cache.filter",
    "block-cache-index-hit-ratio": "rocksdb.block.cache.index",
}
#: The time of each, in microseconds: by the sum and the count of a histogram.
_AVERAGES: Final = {
    "memtable-flush-time-avg": ("rocksdb.db.flush.micros", 1_000),
    "compaction-time-avg": ("rocksdb.compaction.times.micros", 1_000_000),
    "write-stall-duration-avg": ("rocksdb.db.write.stall", 1),
}


class Database(Protocol):
    """A database, as its metrics are read."""

    def int_property(self, name: str) -> int:
        """A property; 0 where the database is closed."""
        ...

    def statistics(self) -> str:
        """RocksDB's text of them; empty where nobody has asked for them."""
        ...


def measure_database(scope: Scope, database: Database) -> None:
    """Let the metrics of a database be seen.

    Args:
        scope: of the store.
        database: of the store.
    """
    for name in PROPERTIES:
        scope.gauge(STORE_GROUP, name, partial(database.int_property, f"rocksdb.{name}"))
    if scope.records(_DEBUG):
        _Statistics(scope, database.statistics)


class _Statistics:
    """RocksDB's statistics, read every ten seconds at most.

    Where Kafka Streams has times of one minute, these are of the time between two readings.
    """

    def __init__(self, scope: Scope, read: Callable[[], str]) -> None:
        self._clock = scope.clock
        self._read = read
        self._read_ms: int | None = None
        self._now: Mapping[str, float] = {}
        self._before: Mapping[str, float] = {}
        self._rates: dict[str, Sensor] = {}
        for name, ticker in {**_RATES, **_ONLY_RATES}.items():
            self._rates[ticker] = scope.sensor(_DEBUG)
            scope.gauge(STORE_GROUP, f"{name}-rate", partial(self._rate, ticker), _DEBUG)
            if name in _RATES:
                scope.gauge(STORE_GROUP, f"{name}-total", partial(self._total, ticker), _DEBUG)
        for name, ticker in _RATIOS.items():
            scope.gauge(STORE_GROUP, name, partial(self._hits, ticker), _DEBUG)
        for name, (histogram, unit) in _AVERAGES.items():
            scope.gauge(STORE_GROUP, name, partial(self._average, histogram, unit), _DEBUG)
        stall = partial(self._total, "rocksdb.db.write.stall SUM")
        scope.gauge(STORE_GROUP, "write-stall-duration-total", stall, _DEBUG)
        errors = partial(self._total, "rocksdb.no.file.errors")
        scope.gauge(STORE_GROUP, "number-file-errors-total", errors, _DEBUG)

    def _refresh(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._read_ms is not None and now_ms - self._read_ms < _READ_EVERY_MS:
            return
        self._read_ms = now_ms
        found = parsed(self._read())
        if not found:
            return
        self._before, self._now = self._now, found
        for ticker, sensor in self._rates.items():
            sensor.record(found.get(ticker, 0) - self._before.get(ticker, 0))

    def _rate(self, ticker: str) -> float:
        self._refresh()
        return self._rates[ticker].rate()

    def _total(self, ticker: str) -> float:
        self._refresh()
        return self._now.get(ticker, 0)

    def _since(self, ticker: str) -> float:
        return self._now.get(ticker, 0) - self._before.get(ticker, 0)

    def _hits(self, ticker: str) -> float:
        self._refresh()
        hits, misses = self._since(f"{ticker}.hit"), self._since(f"{ticker}.miss")
        return hits / (hits + misses) if hits + misses else float("nan")

    def _average(self, histogram: str, unit: int) -> float:
        self._refresh()
        count = self._since(f"{histogram} COUNT")
        return self._since(f"{histogram} SUM") / count / unit if count else float("nan")


def parsed(text: str) -> dict[str, float]:
    """RocksDB's statistics by name: counters, and `<name> COUNT` and `<name> SUM` of histograms."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if words[1:2] == ["COUNT"]:
            found[words[0]] = float(words[3])
        elif len(words) > 6:
            found[f"{words[0]} COUNT"] = float(words[-4])
            found[f"{words[0]} SUM"] = float(words[-1])
    return found
