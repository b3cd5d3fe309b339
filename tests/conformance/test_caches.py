"""Results do not depend on the size of the record caches, except for intermediate updates.

Method: random topologies process one record at a time, with occasional commits, and with caches
for no entries, one or two entries, or all entries. Without a cache, every update appears,
independent of commits. With a cache, the parts that `CacheIndependence` determines end up the same:
the last value of each key on each topic, and the contents of stores.

Window stores keep their windows forever here: an entry that a store has dropped can still be read
from a cache, in Kafka Streams as well.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from conformance.fuzz import random_scenario
from conformance.generators.settled import CacheIndependence, Independence
from conformance.vendored.interpret import Build, encode
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from support.batches.drivers import LazyDriver
from support.effort import EXAMPLES

from millstream.record import ValueAndTimestamp
from millstream.testing.driver_topics import CapturedRecord
from millstream.windowed import MAX_TIME_MS

_GROUPS = [
    "aggregate",
    "window",
    "session",
    "sliding",
    "table_join",
    "fk_join",
    "stream_table_join",
    "versioned",
    "processor",
    "repartition",
    "topology",
    "wild",
]
_FOR_EVER_MS = 10_000_000

#: The outcome of a run in which a `suppress` buffer is full.
OVERFLOW = "overflow"
_FULL = re.compile(r"The buffer of \S+ is full: it contains")

Scenario = dict[str, Any]


class Run(NamedTuple):
    """The results of a run."""

    written: dict[str, list[CapturedRecord]]
    stores: dict[str, Any]


def run(
    scenario: Scenario, cache_bytes: int, commit_every: int, stores: Iterable[str] = ()
) -> Run | str:
    """Run a scenario and return its results, with the contents of some stores. For a failure,
    return its kind, or `OVERFLOW` for a full `suppress` buffer."""
    config = {**scenario["config"], "cache_max_bytes": cache_bytes}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            build = Build({**scenario, "config": config})
            driver = LazyDriver(build.topology, build.config(folder), commit_every=commit_every)
            stack.callback(driver.close)
            feed(driver, scenario)
            driver.finish()
        except Exception as error:
            return OVERFLOW if _FULL.search(str(error)) else type(error).__name__
        there = driver.get_all_state_stores()
        known = {name: contents(there[name]) for name in stores if name in there}
        return Run(driver.written(), known)


def feed(driver: LazyDriver, scenario: Scenario) -> None:
    for each in scenario["events"]:
        if "topic" in each:
            headers = [(n, None if v is None else v.encode()) for n, v in each.get("headers", [])]
            key, value = encode(each.get("key")), encode(each.get("value"))
            driver.feed(each["topic"], key, value, each["ts"], tuple(headers))


def contents(store: Any) -> Any:
    """The values of a store, without timestamps: a joined or grouped table has the highest
    timestamp of all updates that appeared."""
    if hasattr(store, "find_sessions_range"):
        found = store.find_sessions_range(None, None, 0, MAX_TIME_MS)
    else:
        found = store.all()
    return {
        key: value.value if isinstance(value, ValueAndTimestamp) else value for key, value in found
    }


def keeping_windows(scenario: Scenario) -> Scenario:
    """Return the scenario with stores that keep their windows forever."""
    windowed = [op["id"] for op in scenario["topology"] if op["op"] == "windowed_by"]
    ops = []
    for op in scenario["topology"]:
        if op.get("from") in windowed:
            op = {**op, "store": {**(op.get("store") or {}), "retention_ms": _FOR_EVER_MS}}
        ops.append(op)
    return {**scenario, "topology": ops, "expect": {}}


def without_bounds(scenario: Scenario) -> Scenario:
    """Return the scenario without the bounds of `suppress` buffers that shut down when full."""
    ops = []
    for op in scenario["topology"]:
        buffer = op.get("buffer") or {}
        if buffer.get("full") == "shut_down":
            bounds = ("max_records", "max_bytes", "full")
            op = {**op, "buffer": {k: v for k, v in buffer.items() if k not in bounds}}
        ops.append(op)
    return {**scenario, "topology": ops}


def without_deletions(scenario: Scenario) -> Scenario:
    """Return the scenario with other values instead of null."""
    events = [
        {**each, "value": "was null"} if each.get("value", "") is None else each
        for each in scenario["events"]
    ]
    return {**scenario, "events": events}


def last_values(records: list[CapturedRecord]) -> dict[bytes | None, bytes]:
    """The table of a topic's records."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def outputs(result: Run) -> dict[str, list[CapturedRecord]]:
    return {
        topic: records
        for topic, records in result.written.items()
        if not topic.endswith("-changelog")
    }


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    group=st.sampled_from(_GROUPS),
    seed=st.integers(0, 1_000_000_000),
    commit_every=st.sampled_from([2, 5, 1_000]),
    deletions=st.booleans(),
)
# A session is removed, which a filter does not forward without a cache.
@example(group="session", seed=6_698_746, commit_every=2, deletions=False)
# An update that a cache holds back overflows the `suppress` buffer.
@pytest.mark.extended
@example(group="wild", seed=3_139_620, commit_every=2, deletions=False)
def test_cache_sizes_only_affect_intermediate_updates(
    group: str, seed: int, commit_every: int, deletions: bool
) -> None:
    scenario = keeping_windows(random_scenario(group, str(seed), 0))
    if not deletions:
        scenario = without_deletions(scenario)
    independence = CacheIndependence(scenario["topology"], deletions=deletions)
    uncached = run(scenario, 0, 1, independence.stores)
    for cache_bytes in (0, 1, 400, 10_000_000):
        cached = run(scenario, cache_bytes, commit_every, independence.stores)
        expected = uncached
        if expected == OVERFLOW != cached and cache_bytes > 0:
            # With fewer updates, the `suppress` buffers may not overflow. Then their bounds have no
            # effect, and the results are those of unbounded buffers.
            event("a cache avoids an overflow")
            expected = run(without_bounds(scenario), 0, 1, independence.stores)
        if isinstance(expected, str) or isinstance(cached, str):
            assert cached == expected
            continue
        if cache_bytes == 0:
            assert outputs(cached) == outputs(expected)
        for topic, level in independence.sinks.items():
            event(f"{level.name} output")
            records, all_records = cached.written.get(topic, []), expected.written.get(topic, [])
            if level is Independence.EXACT:
                assert records == all_records
            elif level is Independence.LAST_VALUE:
                assert last_values(records) == last_values(all_records)
        assert cached.stores == expected.stores


COUNTS: Scenario = {
    "config": {},
    "topology": [
        {"id": "in", "op": "stream", "topic": "L"},
        {"id": "grouped", "op": "group_by_key", "from": "in"},
        {"id": "counts", "op": "count", "from": "grouped", "store": {"name": "counts"}},
        {"id": "changes", "op": "to_stream", "from": "counts"},
        {"id": "out", "op": "to", "from": "changes", "topic": "out"},
    ],
}


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(
    keys=st.lists(st.sampled_from("abcde"), max_size=30),
    commit_every=st.sampled_from([1, 2, 7, 1_000]),
    cache_bytes=st.sampled_from([1, 200, 300, 10_000_000]),
)
def test_a_cached_count_emits_a_subset_of_its_updates(
    keys: list[str], commit_every: int, cache_bytes: int
) -> None:
    """The emitted updates of each key are in order and include the last one."""
    events = [{"topic": "L", "key": key, "value": "v", "ts": n} for n, key in enumerate(keys)]
    scenario = {**COUNTS, "events": events}
    expected, cached = run(scenario, 0, commit_every), run(scenario, cache_bytes, commit_every)
    assert isinstance(expected, Run)
    assert isinstance(cached, Run)
    updates = [(r.key, r.value) for r in expected.written.get("out", [])]
    seen: Counter[str] = Counter()
    for key, (written, value) in zip(keys, updates, strict=True):
        seen[key] += 1
        assert (written, value) == (key.encode(), seen[key].to_bytes(8, "big"))
    appeared = [(r.key, r.value) for r in cached.written.get("out", [])]
    for key in set(keys):
        all_updates = [value for written, value in updates if written == key.encode()]
        emitted = [value or b"" for written, value in appeared if written == key.encode()]
        assert emitted == sorted(set(emitted))
        assert set(emitted) <= set(all_updates)
        assert emitted[-1] == all_updates[-1]
    if commit_every == 1_000 and cache_bytes == 10_000_000:
        assert len(appeared) == len(set(keys)), "each key once, at the commit"


REGROUPED: Scenario = {
    "config": {},
    "topology": [
        {"id": "in", "op": "table", "topic": "L"},
        {"id": "by-value", "op": "group_by", "from": "in", "key": "v", "value": "k"},
        {"id": "counts", "op": "count", "from": "by-value", "store": {"name": "counts"}},
    ],
}


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(
    changes=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz") | st.none())),
    commit_every=st.sampled_from([1, 2, 7, 1_000]),
    cache_bytes=st.sampled_from([0, 1, 200, 300, 10_000_000]),
)
def test_counts_of_a_grouped_table_are_correct(
    changes: list[tuple[str, str | None]], commit_every: int, cache_bytes: int
) -> None:
    """Zeros are ignored: a cache may drop a group that was added and removed."""
    events = [{"topic": "L", "key": k, "value": v, "ts": n} for n, (k, v) in enumerate(changes)]
    scenario = {**REGROUPED, "events": events}
    result = run(scenario, cache_bytes, commit_every, ["counts"])
    assert isinstance(result, Run)
    found = {group: count for group, count in result.stores["counts"].items() if count}
    assert found == Counter(value for value in dict(changes).values() if value is not None)


def test_tables_are_cache_independent_but_counts_of_their_changes_are_not() -> None:
    """A count of a table's changes depends on the cache; a stream does not."""
    ops = [
        *COUNTS["topology"],
        {"id": "again", "op": "group_by_key", "from": "changes"},
        {"id": "number", "op": "count", "from": "again", "store": {"name": "number"}},
        {"id": "joined", "op": "join", "from": ["in", "counts"], "kind": "inner"},
    ]
    independence = CacheIndependence(ops, deletions=True)
    assert independence.stores == {"counts"}
    assert independence.sinks == {"out": Independence.LAST_VALUE}
    assert (independence.levels["number"], independence.levels["joined"]) == (
        Independence.NONE,
        Independence.EXACT,
    )


def test_filters_of_session_windows_are_cache_dependent() -> None:
    """Filters with a store of their own, and filters of other windows, are cache independent."""
    for kind in ("session", "tumbling"):
        window = {"type": kind, "gap": 4, "size": 4, "grace": 5}
        ops = [
            *COUNTS["topology"][:2],
            {"id": "windows", "op": "windowed_by", "from": "grouped", "window": window},
            {"id": "texts", "op": "aggregate", "from": "windows", "adder": "concat_del"},
            {"id": "mapped", "op": "map_values", "from": "texts"},
            {"id": "some", "op": "filter", "from": "mapped"},
            {"id": "kept", "op": "filter", "from": "texts", "store": {"name": "kept"}},
            {"id": "counts", "op": "count", "from": "windows"},
            {"id": "few", "op": "filter", "from": "counts"},
        ]
        all_levels = CacheIndependence(ops, deletions=False).levels
        levels = {each: all_levels[each] for each in ("mapped", "some", "kept", "few")}
        expected = Independence.NONE if kind == "session" else Independence.LAST_VALUE
        assert levels == {**dict.fromkeys(levels, Independence.LAST_VALUE), "some": expected}
