"""Fuzz target: whole aggregations, with the caches, stores and changelogs of a task.

Sessions are only aggregated in C together with a real cache, so this target covers their loop.
"""

from __future__ import annotations

import json
import random
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

from support.batches.drivers import QueuedDriver, SkippedRecords

from extension.cases.values import MAX_LONG, Trace
from millstream import Materialized, SessionWindows, StreamsBuilder, StreamsConfig, TimeWindows
from millstream.serdes import STRING, Serde

_KINDS: Final = ("count", "reduce", "aggregate", "tumbling", "hopping", "counted windows")
_BUFFERS: Final[dict[str, Any]] = {"bytes": bytes, "bytearray": bytearray, "memoryview": memoryview}
_MS: Final = timedelta(milliseconds=1)
_JSON: Final[Serde[Any]] = Serde(
    lambda _, value: json.dumps(value).encode(), lambda _, data: json.loads(data), immutable=True
)


def generate(rng: random.Random) -> Trace:
    """The first step contains the options of the topology, the others batches of records.

    A record is `(key, number, timestamp, has headers)`; the number determines the user functions.
    """
    options = {
        "kind": rng.choice((*_KINDS, *["sessions"] * 5)),
        "key": rng.choice((*["bytes"] * 3, *_BUFFERS)),
        "value": rng.choice((*["bytes"] * 3, *_BUFFERS)),
        "store": rng.choice(("rocksdb", "in_memory", "in_memory")),
        "immutable": rng.random() < 0.5,
        "fails": rng.random() < 0.5,
        "in place": rng.random() < 0.3,
        "reads": rng.random() < 0.3,
        "gap": rng.choice((10, 10, 100, 10**15)),
        "grace": rng.choice((0, 5, 1_000)),
        "bytes": rng.choice((0, 1_000, 3_000, 10**7)),
    }
    steps: Trace = [("options", options)]
    now = rng.choice((0, 0, 10**12, 2**62))
    for _ in range(rng.randrange(1, 5)):
        records = []
        for _ in range(rng.choice((1, 5, 60, 200))):
            now += rng.choice((0, 1, 5, 50, 200))
            timestamp = max(0, now - rng.choice((0, 0, 0, 5, 60, 400)))
            if rng.random() < 0.001:
                timestamp = rng.choice((0, MAX_LONG, MAX_LONG - 1))
            key = rng.choice((1, 2, 3, rng.randrange(100)))
            records.append((key, rng.randrange(100), timestamp, rng.random() < 0.1))
        steps.append(("batch", records, rng.choice((1, 7, 500)), rng.random() < 0.5))
    return steps


class _Program:
    """A topology with user functions that fail, change values in place and read the store."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self.calls: list[str] = []
        self.driver: QueuedDriver | None = None

    def _add(self, key: Any, number: int, total: Any) -> Any:
        self.calls.append(f"add {key} {number} {total}")
        if self._options["reads"] and number % 5 == 1:
            self._read(key)
        if self._options["fails"] and number % 7 == 3:
            raise ValueError(f"{key} {number}")
        if self._options["fails"] and number % 11 == 5:
            return None
        if self._options["in place"] and number % 2:
            total["n"] += number
            return total
        return {"n": total["n"] + number}

    def _merge(self, key: Any, one: Any, other: Any) -> Any:
        self.calls.append(f"merge {key} {one} {other}")
        if self._options["fails"] and other["n"] % 13 == 4:
            raise KeyError("merge")
        return {"n": one["n"] + other["n"]}

    def _reduce(self, one: int, other: int) -> int:
        self.calls.append(f"reduce {one} {other}")
        if self._options["fails"] and other % 7 == 3:
            raise ValueError(f"{one} {other}")
        return one + other

    def _read(self, key: Any) -> None:
        """Read the store while the loop changes it."""
        assert self.driver is not None
        store: Any = self.driver.get_all_state_stores()["s"]
        if self._options["kind"] == "sessions":
            self.calls.append(repr(list(store.fetch(key))))
        elif self._options["kind"] in ("tumbling", "hopping"):
            self.calls.append(repr(list(store.fetch(key, 0, MAX_LONG))))
        else:
            self.calls.append(repr(store.get(key)))

    def topology(self) -> Any:
        options = self._options
        key = self._serde("key", immutable=True)
        value = self._serde(
            "value", immutable=options["immutable"] or options["kind"] == "sessions"
        )
        kind: Any = options["store"]
        store: Materialized[Any, Any] = Materialized("s", kind=kind, key=key, value=value)
        counts: Materialized[Any, Any] = Materialized("s", kind=kind, key=key)
        builder = StreamsBuilder()
        grouped = builder.stream("in", key=_JSON, value=_JSON).group_by_key(key=key)
        grace, gap = options["grace"] * _MS, options["gap"] * _MS
        table: Any
        if options["kind"] == "count":
            table = grouped.count(store=counts)
        elif options["kind"] == "reduce":
            table = grouped.reduce(self._reduce, store=store)
        elif options["kind"] == "aggregate":
            table = grouped.aggregate(lambda: {"n": 0}, self._add, store=store)
        elif options["kind"] == "sessions":
            windowed = grouped.windowed_by(SessionWindows(gap, grace=grace))
            table = windowed.aggregate(lambda: {"n": 0}, self._add, self._merge, store=store)
        else:
            advance = 3 * _MS if options["kind"] == "hopping" else None
            windows = grouped.windowed_by(TimeWindows(10 * _MS, advance=advance, grace=grace))
            if options["kind"] == "counted windows":
                table = windows.count(store=counts)
            else:
                table = windows.aggregate(lambda: {"n": 0}, self._add, store=store)
        table.to_stream(lambda key, value: str(key)).to("out", key=STRING, value=_JSON)
        return builder.build()

    def _serde(self, name: str, *, immutable: bool) -> Serde[Any]:
        buffer = _BUFFERS[self._options[name]]
        return Serde(
            lambda _, value: buffer(json.dumps(value).encode()),
            lambda _, data: json.loads(bytes(data)),
            immutable=immutable,
        )


def _observed(trace: Trace, speedups: bool | None) -> list[str]:
    """Everything observable of a run."""
    options = dict(trace[0][1])
    program = _Program(options)
    failures = SkippedRecords(repr)
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="not-used:9092",
        statestore_cache_max_bytes=options["bytes"],
        processing_exception_handler=failures,
        speedups=speedups,
    )
    seen: list[str] = []
    topology = program.topology()
    with closing(QueuedDriver(topology, config, batch_size=1, order_across_topics=False)) as driver:
        program.driver = driver
        for _, records, size, commits in trace[1:]:
            if records:
                driver.feed_together("in", [_record(*each) for each in records])
            while driver.is_ready:
                driver.step(size)
                seen += [f"{cache.size_bytes} {cache.statistics()}" for cache in driver.caches]
            if commits:
                driver.commit()
        driver.commit()
        seen += [
            f"{topic} {sent}" for topic in sorted(driver.outputs) for sent in driver.outputs[topic]
        ]
    return [*seen, *map(repr, failures.seen), *program.calls]


def _record(key: int, number: int, timestamp: int, headers: bool) -> tuple[bytes, bytes, int, Any]:
    return (
        json.dumps(str(key)).encode(),
        b"%d" % number,
        timestamp,
        (("h", b"x"),) if headers else (),
    )


def run(trace: Trace) -> list[str]:
    if not trace or trace[0][0] != "options":
        return []
    expected, found = (_observed(trace, speedups) for speedups in (False, None))
    for one, other in zip(expected, found, strict=False):
        if one != other:
            return [f"Python: {one}\nC: {other}"]
    return [] if len(expected) == len(found) else [f"Python: {expected}\nC: {found}"]
