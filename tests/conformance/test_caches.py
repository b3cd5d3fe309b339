"""Results do not depend on the size of the record caches, but for how many updates appear.

Method: random topologies, one record at a time, with commits now and then, and with caches that
hold nothing, an entry or two, or everything. Without a cache every update appears, however seldom
somebody commits. With one, what `Settled` finds to be independent of it ends up the same: the last
value of each key on each topic, and what is in stores.

The stores of windows keep them for ever here: what a cache still holds can be read even if its
store has forgotten it, in Kafka Streams as well.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

from conformance.fuzz import random_scenario
from conformance.settled import Settled, Sure
from conformance.vendored.interpret import Build, encode
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from support.batches.lazy_driver import LazyDriver
from support.effort import EXAMPLES

from millstream.record import ValueAndTimestamp
from millstream.testing.driver_topics import Captured
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

#: How a run fails whose buffer of suppress is full.
OVERFLOW = "overflow"
_FULL = re.compile(r"The buffer of \S+ is full: it holds")

Scenario = dict[str, Any]


class Run(NamedTuple):
    """What a run left behind."""

    written: dict[str, list[Captured]]
    stores: dict[str, Any]


def run(
    scenario: Scenario, cache_bytes: int, commit_every: int, stores: Iterable[str] = ()
) -> Run | str:
    """Run a scenario, and look at some of its stores; of a failure only its kind counts, and
    whether a buffer of suppress was full."""
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
    """The values of a store. Not their timestamps: a table that is joined or
    grouped has the highest of all updates that appeared."""
    if hasattr(store, "find_sessions_range"):
        found = store.find_sessions_range(None, None, 0, MAX_TIME_MS)
    else:
        found = store.all()
    return {
        key: value.value if isinstance(value, ValueAndTimestamp) else value for key, value in found
    }


def keeping_windows(scenario: Scenario) -> Scenario:
    """The same, with stores that keep their windows for ever."""
    windowed = [op["id"] for op in scenario["topology"] if op["op"] == "windowed_by"]
    ops = []
    for op in scenario["topology"]:
        if op.get("from") in windowed:
            op = {**op, "store": {**(op.get("store") or {}), "retention_ms": _FOR_EVER_MS}}
        ops.append(op)
    return {**scenario, "topology": ops, "expect": {}}


def without_bounds(scenario: Scenario) -> Scenario:
    """The same, with buffers of suppress that are never full where a full one would be the end."""
    ops = []
    for op in scenario["topology"]:
        buffer = op.get("buffer") or {}
        if buffer.get("full") == "shut_down":
            bounds = ("max_records", "max_bytes", "full")
            op = {**op, "buffer": {k: v for k, v in buffer.items() if k not in bounds}}
        ops.append(op)
    return {**scenario, "topology": ops}


def without_deletions(scenario: Scenario) -> Scenario:
    """The same with other values instead of null."""
    events = [
        {**each, "value": "was null"} if each.get("value", "") is None else each
        for each in scenario["events"]
    ]
    return {**scenario, "events": events}


def last_values(records: list[Captured]) -> dict[bytes | None, bytes]:
    """What a table of a topic would hold."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def outputs(result: Run) -> dict[str, list[Captured]]:
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
# A session goes, of which a filter tells nothing without a cache.
@example(group="session", seed=6_698_746, commit_every=2, deletions=False)
# The buffer of suppress overflows by an update that a cache keeps back.
@example(group="wild", seed=3_139_620, commit_every=2, deletions=False)
def test_the_size_of_caches_changes_only_how_many_updates_appear(
    group: str, seed: int, commit_every: int, deletions: bool
) -> None:
    scenario = keeping_windows(random_scenario(group, str(seed), 0))
    if not deletions:
        scenario = without_deletions(scenario)
    settled = Settled(scenario["topology"], deletions=deletions)
    uncached = run(scenario, 0, 1, settled.stores)
    for cache_bytes in (0, 1, 400, 10_000_000):
        cached = run(scenario, cache_bytes, commit_every, settled.stores)
        plainly = uncached
        if plainly == OVERFLOW != cached and cache_bytes > 0:
            # With fewer updates the buffers of suppress may hold them all. Then their bounds have
            # made no difference, and what comes out is that of buffers without any.
            event("a cache avoids an overflow")
            plainly = run(without_bounds(scenario), 0, 1, settled.stores)
        if isinstance(plainly, str) or isinstance(cached, str):
            assert cached == plainly
            continue
        if cache_bytes == 0:
            assert outputs(cached) == outputs(plainly)
        for topic, sure in settled.sinks.items():
            event(f"{sure.name} output")
            records, all_records = cached.written.get(topic, []), plainly.written.get(topic, [])
            if sure is Sure.EXACT:
                assert records == all_records
            elif sure is Sure.SETTLED:
                assert last_values(records) == last_values(all_records)
        assert cached.stores == plainly.stores


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
def test_what_appears_of_a_count_are_some_of_its_updates(
    keys: list[str], commit_every: int, cache_bytes: int
) -> None:
    """All without a cache; else in their order, the last one of each key among them."""
    events = [{"topic": "L", "key": key, "value": "v", "ts": n} for n, key in enumerate(keys)]
    scenario = {**COUNTS, "events": events}
    plainly, cached = run(scenario, 0, commit_every), run(scenario, cache_bytes, commit_every)
    assert isinstance(plainly, Run)
    assert isinstance(cached, Run)
    every = [(r.key, r.value) for r in plainly.written.get("out", [])]
    seen: Counter[str] = Counter()
    for key, (written, value) in zip(keys, every, strict=True):
        seen[key] += 1
        assert (written, value) == (key.encode(), seen[key].to_bytes(8, "big"))
    appeared = [(r.key, r.value) for r in cached.written.get("out", [])]
    for key in set(keys):
        updates = [value for written, value in every if written == key.encode()]
        some = [value or b"" for written, value in appeared if written == key.encode()]
        assert some == sorted(set(some))
        assert set(some) <= set(updates)
        assert some[-1] == updates[-1]
    if commit_every == 1_000 and cache_bytes == 10_000_000:
        assert len(appeared) == len(set(keys)), "each key once, when somebody commits"


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
def test_a_grouped_table_is_counted_right(
    changes: list[tuple[str, str | None]], commit_every: int, cache_bytes: int
) -> None:
    """But for the zeros of groups which no cache has passed on."""
    events = [{"topic": "L", "key": k, "value": v, "ts": n} for n, (k, v) in enumerate(changes)]
    scenario = {**REGROUPED, "events": events}
    result = run(scenario, cache_bytes, commit_every, ["counts"])
    assert isinstance(result, Run)
    found = {group: count for group, count in result.stores["counts"].items() if count}
    assert found == Counter(value for value in dict(changes).values() if value is not None)


def test_settled_knows_what_counts_updates() -> None:
    """A table ends the same, a count of its changes does not, a stream knows of no cache."""
    ops = [
        *COUNTS["topology"],
        {"id": "again", "op": "group_by_key", "from": "changes"},
        {"id": "number", "op": "count", "from": "again", "store": {"name": "number"}},
        {"id": "joined", "op": "join", "from": ["in", "counts"], "kind": "inner"},
    ]
    settled = Settled(ops, deletions=True)
    assert settled.stores == {"counts"}
    assert settled.sinks == {"out": Sure.SETTLED}
    assert (settled.sure["number"], settled.sure["joined"]) == (Sure.NOT, Sure.EXACT)


def test_settled_knows_that_filters_may_not_tell_of_sessions_that_go() -> None:
    """Only there: with a store of its own a filter knows what was there, and so does a window."""
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
        sure = Settled(ops, deletions=False).sure
        told = {each: sure[each] for each in ("mapped", "some", "kept", "few")}
        some = Sure.NOT if kind == "session" else Sure.SETTLED
        assert told == {**dict.fromkeys(told, Sure.SETTLED), "some": some}
