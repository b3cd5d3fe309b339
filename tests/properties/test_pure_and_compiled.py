"""Goal: record caches in Python and in the C extension behave identically.

Method: random records go through aggregations of all kinds, with failing functions and serializers
that return buffers of various types, once with `speedups=False` and once with the extension.
Outputs, failures, and the cache sizes and statistics after each batch must be equal, which includes
the order of loads and evictions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

import pytest
from support.batches.drivers import QueuedDriver, SkippedRecords
from support.strictness import needed_speedups

from millstream import Materialized, SessionWindows, StreamsBuilder, StreamsConfig, TimeWindows
from millstream.serdes import STRING, Serde
from millstream.topology.physical.topology import Topology


class Sub(bytes):
    """A subclass of bytes that is not hashable."""

    __hash__ = None  # type: ignore[assignment]


KINDS: Final = ("count", "reduce", "aggregate", "tumbling", "hopping", "sessions")
BUFFERS: Final[tuple[Callable[[bytes], Any], ...]] = (bytes, bytes, bytearray, memoryview, Sub)
MS: Final = timedelta(milliseconds=1)
JSON: Final[Serde[Any]] = Serde(
    lambda _, value: json.dumps(value).encode(), lambda _, data: json.loads(data), immutable=True
)


def serde(buffer: Callable[[bytes], Any], *, immutable: bool) -> Serde[Any]:
    """A JSON serde with a serializer that returns a certain type of buffer."""

    def serialize(topic: str, value: Any) -> Any:
        return buffer(json.dumps(value).encode())

    return Serde(serialize, lambda topic, data: json.loads(data), immutable=immutable)


def topology(kind: str, seed: int) -> Topology:
    """Build an aggregation with functions that fail for some records."""
    rng = random.Random(seed)
    key = serde(rng.choice(BUFFERS), immutable=True)
    value = serde(rng.choice(BUFFERS), immutable=kind == "sessions" or rng.random() < 0.5)
    store: Materialized[Any, Any] = Materialized(
        "s", kind=rng.choice(["rocksdb", "in_memory"]), key=key, value=value
    )

    def add(_: Any, number: int, total: int) -> int | None:
        if number % 7 == 3:
            raise ValueError(number)
        return None if number % 11 == 5 else total + number

    def merge(_: Any, one: int, other: int) -> int:
        if other % 13 == 4:
            raise KeyError("merge")
        return one + other

    builder = StreamsBuilder()
    grouped = builder.stream("in", key=JSON, value=JSON).group_by_key(key=key)
    grace = rng.choice([0, 5, 1_000]) * MS
    table: Any
    if kind == "count":
        table = grouped.count(store=Materialized("s", key=key))
    elif kind == "reduce":
        table = grouped.reduce(lambda total, number: add(None, number, total), store=store)
    elif kind == "aggregate":
        table = grouped.aggregate(int, add, store=store)
    elif kind == "sessions":
        windowed = grouped.windowed_by(SessionWindows(10 * MS, grace=grace))
        table = windowed.aggregate(int, add, merge, store=store)
    else:
        advance = 3 * MS if kind == "hopping" else None
        windows = TimeWindows(10 * MS, advance=advance, grace=grace)
        table = grouped.windowed_by(windows).aggregate(int, add, store=store)
    table.to_stream(lambda key, value: str(key)).to("out", key=STRING, value=JSON)
    return builder.build()


def run(kind: str, seed: int, speedups: bool | None) -> dict[str, list[Any]]:
    """Return everything observable of a run."""
    rng = random.Random(seed)
    failures = SkippedRecords(repr)
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="not-used:9092",
        statestore_cache_max_bytes=rng.choice([1_000, 3_000, 100_000]),
        processing_exception_handler=failures,
        speedups=speedups,
    )
    caches: list[Any] = []
    now = 0
    with closing(
        QueuedDriver(topology(kind, seed), config, batch_size=1, order_across_topics=False)
    ) as driver:
        assert {cache.implementation.is_compiled for cache in driver.caches} == {speedups is None}
        for _ in range(3):
            rows = []
            for _ in range(rng.choice([5, 60, 300])):
                now += rng.choice([0, 1, 5, 50])
                time = max(0, now - rng.choice([0, 0, 0, 5, 60, 400]))
                key = json.dumps(str(rng.choice([1, 2, rng.randrange(100)])))
                rows.append((key.encode(), b"%d" % rng.randrange(100), time, ()))
            driver.feed_together("in", rows)
            size = rng.choice([7, 500])
            while driver.is_ready:
                driver.step(size)
                caches += [(cache.size_bytes, cache.statistics()) for cache in driver.caches]
            if rng.random() < 0.5:
                driver.commit()
        driver.commit()
        outputs = sorted((topic, list(map(repr, sent))) for topic, sent in driver.outputs.items())
        return {"caches": caches, "outputs": outputs, "failures": list(map(repr, failures.seen))}


@pytest.mark.parametrize("kind", KINDS)
def test_python_and_c_caches_behave_identically(kind: str) -> None:
    needed_speedups()
    for seed in range(8):
        pure, compiled = run(kind, seed, False), run(kind, seed, None)
        assert pure == compiled, f"{kind}, seed {seed}"
        assert pure["outputs"], f"{kind}, seed {seed}"


@pytest.mark.parametrize("speedups", [False, None])
@pytest.mark.parametrize("kind", ["count", "sessions"])
def test_serializers_must_return_a_buffer(kind: str, speedups: bool | None) -> None:
    """The serde raises the same error in both, before stores or caches are involved."""
    builder = StreamsBuilder()
    text = Serde[Any](lambda _, value: str(value), lambda _, data: data, immutable=True)  # type: ignore[arg-type, return-value]
    grouped = builder.stream("in", key=JSON, value=JSON).group_by_key(key=text)
    if kind == "count":
        grouped.count()
    else:
        grouped.windowed_by(SessionWindows(10 * MS, grace=0 * MS)).count()
    config = StreamsConfig(
        application_id="app", bootstrap_servers="not-used:9092", speedups=speedups
    )
    driver = QueuedDriver(builder.build(), config, batch_size=10)
    driver.feed_together("in", [(b"1", b"2", 3, ())])
    with pytest.raises(Exception, match="returned a str instead of bytes"):
        driver.step(10)
    driver.close()
