"""Metrics of a RocksDB database, named as in Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from millstream.metrics.registry import MetricsScope, RecordingLevel
from millstream.metrics.sensors import Sensor
from millstream.state.storage.rocksdb import RocksDBStorage

STORE_GROUP: Final = "stream-state-metrics"
_DEBUG: Final = RecordingLevel.DEBUG

#: RocksDB properties, without the prefix `rocksdb.`, as in Kafka Streams' metrics. Reading one
#: takes 2 us.
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

#: The minimum time between two reads of the statistics, which RocksDB needs 0.4 ms to format.
_READ_EVERY_MS: Final = 10_000
_RATES_AND_TOTALS: Final = {
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
#: Average times: a histogram in microseconds, and the divisor for the metric's unit.
_AVERAGES: Final = {
    "memtable-flush-time-avg": ("rocksdb.db.flush.micros", 1_000),
    "compaction-time-avg": ("rocksdb.compaction.times.micros", 1_000_000),
    "write-stall-duration-avg": ("rocksdb.db.write.stall", 1),
}


def add_database_metrics(scope: MetricsScope, database: RocksDBStorage) -> None:
    for name in PROPERTIES:
        scope.gauge(STORE_GROUP, name, partial(database.int_property, f"rocksdb.{name}"))
    if scope.records(_DEBUG):
        _StatisticsReader(scope, database.statistics)


class _StatisticsReader:
    """Reads RocksDB's statistics, no more often than every 10 s.

    Kafka Streams' averages cover one minute; these cover the time between two reads.
    """

    def __init__(self, scope: MetricsScope, read: Callable[[], str]) -> None:
        self._clock = scope.clock
        self._read = read
        self._read_ms: int | None = None
        self._current: Mapping[str, float] = {}
        self._previous: Mapping[str, float] = {}
        self._rates: dict[str, Sensor] = {}
        for name, ticker in {**_RATES_AND_TOTALS, **_ONLY_RATES}.items():
            self._rates[ticker] = scope.sensor(_DEBUG)
            scope.gauge(STORE_GROUP, f"{name}-rate", partial(self._rate, ticker), _DEBUG)
            if name in _RATES_AND_TOTALS:
                scope.gauge(STORE_GROUP, f"{name}-total", partial(self._total, ticker), _DEBUG)
        for name, ticker in _RATIOS.items():
            scope.gauge(STORE_GROUP, name, partial(self._hit_ratio, ticker), _DEBUG)
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
        found = parse_statistics(self._read())
        if not found:
            return
        self._previous, self._current = self._current, found
        for ticker, sensor in self._rates.items():
            sensor.record(found.get(ticker, 0) - self._previous.get(ticker, 0))

    def _rate(self, ticker: str) -> float:
        self._refresh()
        return self._rates[ticker].rate()

    def _total(self, ticker: str) -> float:
        self._refresh()
        return self._current.get(ticker, 0)

    def _delta(self, ticker: str) -> float:
        return self._current.get(ticker, 0) - self._previous.get(ticker, 0)

    def _hit_ratio(self, ticker: str) -> float:
        self._refresh()
        hits, misses = self._delta(f"{ticker}.hit"), self._delta(f"{ticker}.miss")
        return hits / (hits + misses) if hits + misses else float("nan")

    def _average(self, histogram: str, unit: int) -> float:
        self._refresh()
        count = self._delta(f"{histogram} COUNT")
        return self._delta(f"{histogram} SUM") / count / unit if count else float("nan")


def parse_statistics(text: str) -> dict[str, float]:
    """Parse RocksDB's statistics.

    The result contains counters, and `<name> COUNT` and `<name> SUM` of histograms.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if words[1:2] == ["COUNT"]:
            found[words[0]] = float(words[3])
        elif len(words) > 6:
            found[f"{words[0]} COUNT"] = float(words[-4])
            found[f"{words[0]} SUM"] = float(words[-1])
    return found
