"""The C extension and Python compute the same session windows.

Method: random records, some of which are late, match several sessions, make a function fail or
delete the session. They are processed in batches of random sizes, with commits in between and
caches of several sizes, with the loop in C and with the one in Python. Everything observable is
compared: results, changelogs, store contents, dropped records, failures, and the calls of the
user's functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.batches.drivers import QueuedDriver, SkippedRecords
from support.effort import EXAMPLES
from support.strictness import needed_speedups

from millstream import Materialized, SessionWindows, StreamsBuilder, StreamsConfig, Topology
from millstream.operators.aggregates import session_aggregate
from millstream.serdes import STRING
from millstream.testing.driver_topics import CapturedRecord

_GAP_MS: Final = 1_000

#: Key, value, time, and whether it has a header.
Event = tuple[bytes, bytes, int, bool]
keys = st.sampled_from([b"", b"a", b"a", b"ab", b"b"])
values = st.sampled_from([*(b"%d" % n for n in range(10))])
#: Values for which the aggregator or the merger fails, or which delete the session.
special_values = values | st.sampled_from([b"bad", b"unmergeable", b"gone"])


@dataclass(frozen=True)
class Case:
    """A topology and its settings.

    Args:
        store: the type of the store.
        grace_ms: the grace period.
        cache_bytes: the size of the cache.
        sends_old: whether a downstream operator needs old values.
        initializer_fails: whether the initializer fails, so that no session can start.
    """

    store: Literal["rocksdb", "in_memory"]
    grace_ms: int
    cache_bytes: int
    sends_old: bool = False
    initializer_fails: bool = False


cases = st.builds(
    Case,
    store=st.sampled_from(["rocksdb", "rocksdb", "in_memory"]),
    grace_ms=st.sampled_from([0, 2_000, 100_000]),
    cache_bytes=st.sampled_from([1_000, 3_000, 10_000_000, 10_000_000]),
    sends_old=st.booleans(),
    initializer_fails=st.sampled_from([False] * 9 + [True]),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Event], list[int], list[bool]]:
    """Create records, batch sizes, and whether a commit follows each batch."""
    is_special, now = draw(st.sampled_from([False, True])), 0
    steps = st.sampled_from([0, 1, 300, 999, 1_000, 1_001, 1_500, 5_000])
    late = st.sampled_from([0, 0, 0, 0, 0, 500, 1_000, 1_700, 4_000, 50_000])
    records: list[Event] = []
    for _ in range(draw(st.sampled_from([1, 20, 60]))):
        now += draw(steps)
        value = draw(special_values if is_special else values)
        records.append((draw(keys), value, max(0, now - draw(late)), draw(st.booleans())))
    sizes: list[int] = []
    while sum(sizes) < len(records):
        sizes.append(draw(st.sampled_from([1, 6, 25, 60])))
    return records, sizes, [draw(st.booleans()) for _ in sizes]


def topology_of(case: Case, calls: list[tuple[Any, ...]]) -> Topology:
    def initial() -> str:
        calls.append(("initial",))
        if case.initializer_fails:
            raise ValueError("no session")
        return ""

    def added(key: str, value: str, so_far: str) -> Any:
        calls.append(("added", key, value, so_far))
        if value == "bad":
            raise ValueError(f"bad after {so_far}")
        return None if value == "gone" else so_far + value

    def merged(key: str, one: str, other: str) -> str:
        calls.append(("merged", key, one, other))
        if "unmergeable" in other:
            raise ValueError("unmergeable")
        return one + other

    builder = StreamsBuilder()
    sessions = (
        builder.stream("in", key=STRING, value=STRING)
        .group_by_key()
        .windowed_by(
            SessionWindows(
                timedelta(milliseconds=_GAP_MS), grace=timedelta(milliseconds=case.grace_ms)
            )
        )
        .aggregate(
            initial,
            added,
            merged,
            store=Materialized("s", kind=case.store, key=STRING, value=STRING),
        )
    )
    if case.sends_old:
        sessions = sessions.filter(lambda key, value: "7" not in value)
    sessions.to_stream(
        lambda key, value: f"{key.key}@{key.window.start_ms}-{key.window.end_ms}"
    ).to("out", key=STRING, value=STRING)
    return builder.build()


@dataclass
class Observed:
    """Everything observable of a run."""

    written: dict[str, list[CapturedRecord]]
    calls: list[tuple[Any, ...]]
    failures: list[tuple[Any, ...]]
    store: list[Any]
    dropped: float
    cached: list[Any]


def run(
    case: Case, records: Sequence[Event], sizes: Sequence[int], commits: Sequence[bool]
) -> Observed:
    calls: list[tuple[Any, ...]] = []
    failures = SkippedRecords(repr)
    config = StreamsConfig(
        application_id="sessions",
        bootstrap_servers="not-used:9092",
        statestore_cache_max_bytes=case.cache_bytes,
        processing_exception_handler=failures,
    )
    cached: list[Any] = []
    made = QueuedDriver(topology_of(case, calls), config, batch_size=1, order_across_topics=False)
    with closing(made) as driver:
        (cache,) = driver.caches
        start = 0
        for size, commit in zip(sizes, commits, strict=True):
            taken = records[start : start + size]
            if taken:
                headers = [(("h", value),) if header else () for _, value, _, header in taken]
                each = zip(taken, headers, strict=True)
                driver.feed_together("in", [(*event[:3], header) for event, header in each])
            start += size
            while driver.is_ready:
                driver.step(size)
            cached.append((cache.seq, cache.size_bytes, cache.statistics()))
            if commit:
                driver.commit()
        driver.commit()
        dropped = sum(
            value
            for name, value in driver.metrics().items()
            if name.name == "dropped-records-total"
        )
        store = [
            (each.key, each.window, value)
            for key in ("", "a", "ab", "b")
            for each, value in driver.get_all_state_stores()["s"].fetch(key)
        ]
        written = {topic: list(records) for topic, records in driver.outputs.items()}
        return Observed(written, calls, failures.seen, store, dropped, cached)


#: The second record arrives after a write of the session, the third before.
GROWING: Final = ([(b"a", b"%d" % n, 400 * n, False) for n in range(4)], [1, 1, 2], [True] * 3)
#: The last record joins two sessions.
JOINING: Final = (
    [(b"a", b"1", 0, False), (b"a", b"2", 1_800, True), (b"a", b"3", 900, False)],
    [3],
    [False],
)
#: Records at times at which another record has failed or deleted the session.
FAILING: Final = (
    [(b"a", value, time, False) for time in (0, 0, 500) for value in (b"1", b"gone", b"bad", b"2")],
    [12],
    [False],
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(case=cases, batching=batches())
@example(Case("rocksdb", 0, 10_000_000), GROWING)
@example(Case("rocksdb", 2_000, 10_000_000), JOINING)
@example(Case("in_memory", 2_000, 10_000_000), FAILING)
def test_the_c_loop_matches_the_python_loop(case: Case, batching: Any) -> None:
    """For sessions that start, grow, merge, are late or fail, with any flushed state."""
    needed_speedups()
    records, sizes, commits = batching
    pure = session_aggregate.pure_fold_sessions
    with mock.patch.object(session_aggregate, "compiled_fold_sessions", pure):
        in_python = run(case, records, sizes, commits)
    assert run(case, records, sizes, commits) == in_python


def test_common_records_are_processed_in_c() -> None:
    """Otherwise, the test above would compare the Python loop with itself."""
    needed_speedups()
    # Times start after the first gap, before which the store may contain sessions.
    records = [(b"k%d" % (n // 3), b"1", 5_000 + 10 * n, False) for n in range(300)]
    taken: list[int] = []
    fold: Any = session_aggregate.compiled_fold_sessions

    def watched(*arguments: Any) -> tuple[int, int]:
        *others, otherwise = arguments

        def take_one(index: int, *caused: Any) -> bool:
            taken.append(index)
            return bool(otherwise(index, *caused))

        found: tuple[int, int] = fold(*others, take_one)
        return found

    with mock.patch.object(session_aggregate, "compiled_fold_sessions", watched):
        observed = run(Case("rocksdb", 0, 10_000_000), records, [300], [False])
    assert len(observed.written["out"]) == 100
    assert taken == []
