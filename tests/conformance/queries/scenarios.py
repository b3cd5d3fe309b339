"""Scenarios with queries for Kafka Streams and Millstream: applications, their input, and queries.

A scenario is plain data, so that a Java program can also run it:

- `stores` and `tables`: the stores of the application. One processor reads the topic `in` and
  executes the commands in its records on the stores (`put`, `delete`, ...; `commit`; `later`: a
  punctuation at an interval of stream time). Tables are DSL tables. All are in one sub-topology.
- `partitions` of each topic; `standbys` of each task; `vectors`: whether changelogs contain
  positions, which Kafka Streams supports but users cannot enable.
- `steps`: create, start, close or wipe instances; write records, which are processed before the
  next step; commit everything, and at no other time; query a store by a `query` or by the `call` of
  a `view`. In a recording, queries have an `answer`.

Offsets in positions are those of the scenario's topics. Times are in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

Step = dict[str, Any]
Scenario = dict[str, Any]

#: The timestamp of the first record.
T = 10_000_000
HOUR = 3_600_000

KEY_VALUE: tuple[Step, ...] = (
    {"name": "kv", "kind": "key_value"},
    {"name": "kv-memory", "kind": "key_value", "memory": True},
    {"name": "kv-cached", "kind": "key_value", "caching": True},
    {"name": "kv-memory-cached", "kind": "key_value", "memory": True, "caching": True},
)
TIMESTAMPED: tuple[Step, ...] = (
    {"name": "timed", "kind": "timestamped_key_value"},
    {"name": "timed-memory", "kind": "timestamped_key_value", "memory": True},
    {"name": "timed-cached", "kind": "timestamped_key_value", "caching": True},
)
_WINDOWS = {"retention_ms": HOUR, "window_ms": 1_000}
WINDOWS: tuple[Step, ...] = (
    {"name": "windows", "kind": "window", **_WINDOWS},
    {"name": "windows-memory", "kind": "window", "memory": True, **_WINDOWS},
    {"name": "windows-cached", "kind": "window", "caching": True, **_WINDOWS},
    {"name": "windows-timed", "kind": "timestamped_window", **_WINDOWS},
    {"name": "windows-timed-cached", "kind": "timestamped_window", "caching": True, **_WINDOWS},
)
SESSIONS: tuple[Step, ...] = (
    {"name": "sessions", "kind": "session", "retention_ms": HOUR},
    {"name": "sessions-memory", "kind": "session", "memory": True, "retention_ms": HOUR},
    {"name": "sessions-cached", "kind": "session", "caching": True, "retention_ms": HOUR},
)
ODD: tuple[Step, ...] = (
    {"name": "longs", "kind": "key_value", "key": "long"},
    {"name": "lru", "kind": "key_value", "max_entries": 3},
    {"name": "duplicates", "kind": "window", "duplicates": True, **_WINDOWS},
    {"name": "empty", "kind": "key_value"},
    {"name": "empty-cached", "kind": "timestamped_key_value", "caching": True},
    {"name": "empty-windows", "kind": "window", **_WINDOWS},
    {"name": "empty-sessions", "kind": "session", "retention_ms": HOUR},
    {"name": "empty-versions", "kind": "versioned", "history_ms": HOUR},
    {"name": "later", "kind": "key_value"},
)
VERSIONS: tuple[Step, ...] = ({"name": "versions", "kind": "versioned", "history_ms": 60_000},)

#: Each kind of query once, for a store with string keys.
KINDS: tuple[Step, ...] = (
    {"kind": "key", "key": "a"},
    {"kind": "key", "key": "a", "skip_cache": True},
    {"kind": "timestamped_key", "key": "a"},
    {"kind": "range"},
    {"kind": "timestamped_range"},
    {"kind": "window_key", "key": "a", "from": T, "to": T + 10_000},
    {"kind": "window_range", "from": T, "to": T + 10_000},
    {"kind": "sessions", "key": "a"},
    {"kind": "version", "key": "a"},
    {"kind": "versions", "key": "a"},
)
VIEWS = ("key_value", "timestamped_key_value", "window", "timestamped_window", "session")
#: A call of each view.
_ANY_CALL: dict[str, tuple[Any, ...]] = {
    "key_value": ("get", "a"),
    "timestamped_key_value": ("get", "a"),
    "window": ("fetch", "a", T),
    "timestamped_window": ("fetch", "a", T),
    "session": ("fetch", "a"),
}


def feed(*orders: Sequence[Any], at: int = T, partition: int = 0) -> Step:
    """Write one record with commands for the processor."""
    value = json.dumps(orders, separators=(",", ":"))
    return _feed_records({"topic": "in", "partition": partition, "value": value, "time": at})


def write(topic: str, *records: tuple[int, str, str | None, int]) -> Step:
    """Write records of a table: partition, key, value and time."""
    return _feed_records(
        *(
            {"topic": topic, "partition": partition, "key": key, "value": value, "time": time}
            for partition, key, value, time in records
        )
    )


def _feed_records(*records: Step) -> Step:
    return {"do": "feed", "records": list(records)}


def commit() -> Step:
    """Commit everything; adds one record to each partition of `in`."""
    return {"do": "commit"}


def call(store: str, view: str, name: str, *arguments: Any, **more: Any) -> Step:
    """Query by a view."""
    step = {"do": "ask", "store": store, "view": view, "call": name, "arguments": list(arguments)}
    return step | more


def query(store: str, kind: str, **parameters: Any) -> Step:
    """Query by a query; callers add other options of the request."""
    return {"do": "ask", "store": store, "query": {"kind": kind, **parameters}}


# --- input and queries by store type --------------------------------------------------------------


def _timed(store: Step, value: str | None, time: int) -> list[Any]:
    timed = store["kind"].startswith("timestamped") and value is not None
    return [value, time] if timed else [value]


def first_pairs(store: Step) -> Step:
    """Put pairs: one is updated, one deleted, one deleted without existing."""
    name = store["name"]
    put = [("a", "1"), ("b", "2"), ("bb", "3"), ("c", "4"), ("d", "5"), ("ü", "6"), ("b", "7")]
    orders = [["put", name, k, *_timed(store, v, T + n)] for n, (k, v) in enumerate(put)]
    return feed(*orders, ["delete", name, "d"], ["delete", name, "never"])


def more_pairs(store: Step) -> Step:
    """Add uncommitted changes: a new key, an updated one, a deleted one."""
    name = store["name"]
    return feed(
        ["put", name, "a", *_timed(store, "8", T + 8)],
        ["put", name, "e", *_timed(store, "9", T + 9)],
        ["delete", name, "c"],
        at=T + 100,
    )


def call_pairs(store: str, view: str) -> Iterator[Step]:
    """Every call of a key-value view, with keys in and out of range."""
    for key in ("a", "b", "d", "zz", ""):
        yield call(store, view, "get", key)
    for lo, hi in (("a", "bb"), ("b", "b"), ("aa", "cc"), (None, "b"), ("bb", None), (None, None)):
        yield call(store, view, "range", lo, hi)
        yield call(store, view, "reverse_range", lo, hi)
    yield call(store, view, "range", "c", "a")
    for name in ("all", "reverse_all", "approximate_num_entries"):
        yield call(store, view, name)
    for prefix in ("b", "x", ""):
        yield call(store, view, "prefix_scan", prefix)
    yield call(store, view, "get", None)


def query_pairs(store: str, prefix: str = "") -> Iterator[Step]:
    """Every query of pairs, with keys in and out of range; `prefix` is "timestamped_" or ""."""
    for key in ("a", "c", "d", "zz"):
        yield query(store, f"{prefix}key", key=key)
        yield query(store, f"{prefix}key", key=key, skip_cache=True)
    for order in ("any", "ascending", "descending"):
        for lo, hi in ((None, None), ("b", None), (None, "b"), ("aa", "c")):
            yield query(store, f"{prefix}range", lo=lo, hi=hi, order=order)
    yield query(store, f"{prefix}range", lo="c", hi="a")


def few_pairs(store: str, view: str, prefix: str = "") -> Iterator[Step]:
    """The queries with answers that depend on a cache."""
    for key in ("a", "c", "e"):
        yield call(store, view, "get", key)
        yield query(store, f"{prefix}key", key=key)
        yield query(store, f"{prefix}key", key=key, skip_cache=True)
    for name in ("all", "reverse_all", "approximate_num_entries"):
        yield call(store, view, name)
    yield call(store, view, "prefix_scan", "a")
    yield query(store, f"{prefix}range")
    yield query(store, f"{prefix}range", lo="b", hi="e", order="descending")


def first_windows(store: Step) -> Step:
    name = store["name"]
    put = (
        ("a", "1", 0),
        ("a", "2", 1),
        ("b", "3", 1),
        ("a", "4", 2),
        ("c", "5", 2),
        ("bb", "6", 0),
    )
    orders = [
        ["put_window", name, key, value, T + 1_000 * n, *_timed(store, value, T + n)[1:]]
        for key, value, n in put
    ]
    return feed(*orders, ["put_window", name, "b", None, T + 1_000], at=T + 2_500)


def more_windows(store: Step) -> Step:
    name = store["name"]
    orders = [
        ["put_window", name, key, value, T + 1_000 * n, *_timed(store, value, T + n)[1:]]
        for key, value, n in (("a", "7", 1), ("d", "8", 2), ("b", "9", 3))
    ]
    return feed(*orders, ["put_window", name, "c", None, T + 2_000], at=T + 3_500)


def call_windows(store: str, view: str) -> Iterator[Step]:
    for key, time in (("a", T), ("a", T + 1), ("b", T + 1_000), ("zz", T)):
        yield call(store, view, "fetch", key, time)
    for way in ("", "backward_"):
        for since, until in ((T, T + 2_000), (T + 1, T + 1_999), (0, 2 * T), (T + 5_000, T)):
            yield call(store, view, f"{way}fetch", "a", since, until)
        yield call(store, view, f"{way}fetch", "zz", 0, 2 * T)
        for lo, hi in (("a", "bb"), (None, "b"), ("b", None), (None, None), ("c", "a")):
            yield call(store, view, f"{way}fetch_range", lo, hi, T, T + 1_000)
        yield call(store, view, f"{way}all")
        yield call(store, view, f"{way}fetch_all", T, T + 1_000)
        yield call(store, view, f"{way}fetch_all", T + 1, T + 999)
    yield call(store, view, "fetch", None, T)


def query_windows(store: str) -> Iterator[Step]:
    for since, until in ((T, T + 2_000), (T + 1, T + 1_000), (0, 0), (T + 5_000, T)):
        yield query(store, "window_key", key="a", **{"from": since, "to": until})
        yield query(store, "window_range", **{"from": since, "to": until})
    yield query(store, "window_key", key="zz", **{"from": T, "to": T + 2_000})


def few_windows(store: str, view: str) -> Iterator[Step]:
    yield call(store, view, "fetch", "a", T + 1_000)
    yield call(store, view, "fetch", "c", T + 2_000)
    for name in ("all", "backward_all"):
        yield call(store, view, name)
    yield call(store, view, "fetch", "a", T, T + 5_000)
    yield query(store, "window_key", key="a", **{"from": T, "to": T + 5_000})
    yield query(store, "window_key", key="c", **{"from": T, "to": T + 5_000})
    yield query(store, "window_range", **{"from": T, "to": T + 5_000})


def first_sessions(store: Step) -> Step:
    name = store["name"]
    return feed(
        ["put_session", name, "a", "1", T, T + 500],
        ["put_session", name, "a", "2", T + 2_000, T + 3_000],
        ["put_session", name, "a", "3", T + 5_000, T + 5_000],
        ["put_session", name, "b", "4", T + 100, T + 100],
        ["put_session", name, "bb", "5", T + 200, T + 900],
        ["put_session", name, "c", "6", T, T + 4_000],
        ["put_session", name, "c", None, T, T + 4_000],
        at=T + 5_000,
    )


def more_sessions(store: Step) -> Step:
    name = store["name"]
    return feed(
        ["put_session", name, "a", None, T + 2_000, T + 3_000],
        ["put_session", name, "a", "7", T + 2_000, T + 4_000],
        ["put_session", name, "d", "8", T, T],
        at=T + 6_000,
    )


def call_sessions(store: str) -> Iterator[Step]:
    for way in ("", "backward_"):
        for key in ("a", "c", "zz"):
            yield call(store, "session", f"{way}fetch", key)
        for lo, hi in (("a", "b"), (None, "b"), ("b", None), (None, None)):
            yield call(store, "session", f"{way}fetch_range", lo, hi)
        for since, until in ((T, T + 2_000), (T + 500, T + 500), (T + 501, T + 1_999), (0, 2 * T)):
            yield call(store, "session", f"{way}find_sessions", "a", since, until)
        yield call(store, "session", f"{way}find_sessions_range", "a", "bb", T + 100, T + 500)
        yield call(store, "session", f"{way}find_sessions_range", None, "b", 0, 2 * T)
    for key, start, end in (("a", T, T + 500), ("a", T, T + 501), ("zz", 0, 0)):
        yield call(store, "session", "fetch_session", key, start, end)
    yield call(store, "session", "fetch", None)


def few_sessions(store: str) -> Iterator[Step]:
    for key in ("a", "b", "d"):
        yield call(store, "session", "fetch", key)
        yield query(store, "sessions", key=key)
    yield call(store, "session", "fetch_range", None, None)
    yield call(store, "session", "find_sessions", "a", T + 3_500, T + 9_000)


def some_versions(name: str) -> Step:
    return feed(
        *(
            ["put_version", name, "a", value, T + n]
            for value, n in (("1", 0), ("3", 100), ("2", 50))
        ),
        ["put_version", name, "a", None, T + 200],
        ["put_version", name, "a", "4", T + 300],
        ["put_version", name, "b", "1", T],
        ["put_version", name, "b", None, T + 10],
        ["put_version", name, "c", "1", T + 70],
        at=T + 300,
    )


def query_versions(name: str) -> Iterator[Step]:
    for key in ("a", "b", "c", "zz"):
        yield query(name, "version", key=key)
        for n in (-1, 0, 9, 10, 49, 50, 100, 199, 200, 300, 10_000):
            if key == "a" or n in (0, 10, 300):
                yield query(name, "version", key=key, as_of=T + n)
        yield query(name, "versions", key=key)
    for order in ("any", "ascending", "descending"):
        for since, until in ((0, None), (None, T + 99), (50, 99), (51, 100), (200, 250), (250, 50)):
            bounds: Step = {} if since is None else {"from": T + since}
            if until is not None:
                bounds["to"] = until if until >= T else T + until
            yield query(name, "versions", key="a", order=order, **bounds)


# --- the scenarios --------------------------------------------------------------------------------


def scenario(name: str, steps: Sequence[Step], **more: Any) -> Scenario:
    header = {"name": name, "partitions": 1, "standbys": 0, "commit_time": T}
    return header | {"stores": [], "tables": []} | more | {"steps": list(steps)}


_START: tuple[Step, ...] = ({"do": "make"}, {"do": "start"})


def pairs() -> Scenario:
    """Key-value stores in RocksDB and in memory, with and without caches, around commits."""
    steps = [*_START]
    for store in (*KEY_VALUE, *TIMESTAMPED):
        timed = store["kind"] == "timestamped_key_value"
        name, kind = store["name"], "timestamped_key_value" if timed else "key_value"
        prefix = "timestamped_" if timed else ""
        steps += [first_pairs(store)]
        if name in ("kv", "timed-cached"):
            steps += [*call_pairs(name, kind), *query_pairs(name, prefix)]
        else:
            steps += few_pairs(name, kind, prefix)
        if timed:
            # A timestamped store is also queried as a plain store.
            steps += few_pairs(name, "key_value")
    steps += [commit()]
    for store in (*KEY_VALUE, *TIMESTAMPED):
        timed = store["kind"] == "timestamped_key_value"
        prefix = "timestamped_" if timed else ""
        kind = f"{prefix}key_value"
        steps += [*few_pairs(store["name"], kind, prefix), more_pairs(store)]
        steps += few_pairs(store["name"], kind, prefix)
    steps += [commit()]
    for name, kind in (("kv-cached", "key_value"), ("timed-cached", "timestamped_key_value")):
        steps += few_pairs(name, kind, "timestamped_" if kind != "key_value" else "")
    return scenario("pairs", steps, stores=[*KEY_VALUE, *TIMESTAMPED])


def windows() -> Scenario:
    """Window stores, likewise."""
    steps = [*_START]
    for store in WINDOWS:
        name, kind = store["name"], store["kind"]
        steps += [first_windows(store)]
        if name in ("windows", "windows-timed-cached"):
            steps += [*call_windows(name, kind), *query_windows(name)]
        else:
            steps += few_windows(name, kind)
    steps += [commit(), *map(more_windows, WINDOWS)]
    for store in WINDOWS:
        steps += few_windows(store["name"], store["kind"])
    steps += [commit(), *few_windows("windows-cached", "window")]
    steps += few_windows("windows-timed-cached", "window")
    # Later windows make old ones exceed the retention.
    late = [["put_window", s["name"], "z", "9", T + HOUR + 1_500] for s in WINDOWS[:3]]
    steps += [feed(*late, at=T + HOUR + 1_500)]
    for store in WINDOWS[:3]:
        steps += [call(store["name"], "window", "all")]
        steps += [query(store["name"], "window_key", key="a", **{"from": 0, "to": 2 * T})]
        steps += [query(store["name"], "window_range", **{"from": 0, "to": 2 * T})]
    return scenario("windows", steps, stores=list(WINDOWS))


def sessions() -> Scenario:
    """Session stores, likewise."""
    steps = [*_START]
    for store in SESSIONS:
        name = store["name"]
        steps += [first_sessions(store), *few_sessions(name)]
        if name in ("sessions", "sessions-cached"):
            steps += call_sessions(name)
    steps += [commit(), *map(more_sessions, SESSIONS)]
    for store in SESSIONS:
        steps += few_sessions(store["name"])
    steps += [commit(), *few_sessions("sessions-cached")]
    return scenario("sessions", steps, stores=list(SESSIONS))


def special_cases() -> Scenario:
    """Versioned stores, numeric keys, an LRU store, empty stores, and queries of other types."""
    steps = [*_START, some_versions("versions"), *query_versions("versions"), commit()]
    steps += [query("versions", "version", key="a")]
    # Versions before the history retention are not available.
    steps += [feed(["put_version", "versions", "z", "1", T + 60_250], at=T + 60_250)]
    steps += [query("versions", "version", key="a", as_of=T + n) for n in (100, 249, 250, 300)]
    steps += [query("versions", "versions", key="a"), query("versions", "version", key="c")]
    numbers = [["put", "longs", n, str(n)] for n in (5, -1, 300, 0, -300)]
    steps += [feed(*numbers)]
    steps += [call("longs", "key_value", name) for name in ("all", "reverse_all")]
    steps += [call("longs", "key_value", "get", n) for n in (-1, 7)]
    for lo, hi in ((0, 300), (-300, -1), (-1, 5), (None, 0), (-1, None)):
        steps += [call("longs", "key_value", "range", lo, hi)]
        steps += [query("longs", "range", lo=lo, hi=hi)]
        steps += [query("longs", "range", lo=lo, hi=hi, order="descending")]
    evicted = [["put", "lru", key, key] for key in "abc"]
    steps += [feed(*evicted, ["get", "lru", "a"], ["put", "lru", "d", "d"])]
    steps += [call("lru", "key_value", "all"), call("lru", "key_value", "approximate_num_entries")]
    steps += [query("lru", "key", key=key) for key in "abcd"]
    steps += [query("lru", "range"), query("lru", "range", order="descending")]
    same = [["put_window", "duplicates", "a", value, T] for value in ("1", "2", None, "3")]
    steps += [feed(*same), call("duplicates", "window", "all")]
    steps += [call("duplicates", "window", "fetch", "a", T, T)]
    steps += [query("duplicates", "window_key", key="a", **{"from": T, "to": T})]
    steps += [query("duplicates", "window_range", **{"from": T, "to": T})]
    for name in ("kv", "timed", "windows", "windows-timed", "sessions", "versions"):
        steps += [query(name, **kind) for kind in KINDS]
        steps += [call(name, view, *_ANY_CALL[view]) for view in VIEWS]
    for name in ("empty", "empty-cached", "empty-windows", "empty-sessions", "empty-versions"):
        steps += [query(name, **kind) for kind in KINDS]
    # A punctuation has no record.
    steps += [feed(["put", "later", "k", "1"], ["later", 10, ["put", "later", "k", "2"]], at=2 * T)]
    steps += [query("later", "key", key="k"), feed(at=2 * T + 50)]
    steps += [query("later", "key", key="k"), feed(["put_if_absent", "later", "k", "3"], at=2 * T)]
    steps += [query("later", "key", key="k"), feed(["put_if_absent", "later", "n", "3"], at=2 * T)]
    steps += [query("later", "range"), feed(["delete", "later", "n"], at=2 * T)]
    steps += [query("later", "range")]
    kept = [KEY_VALUE[0], TIMESTAMPED[0], WINDOWS[0], WINDOWS[3], SESSIONS[0]]
    return scenario("odd", steps, stores=[*VERSIONS, *ODD, *kept])


def _tables() -> list[Step]:
    return [
        {"name": "counts", "kind": "count", "topic": "clicks"},
        {"name": "plain-counts", "kind": "count", "topic": "clicks", "caching": False},
        {"name": "minutes", "kind": "windows", "topic": "clicks", "window_ms": 60_000},
        {"name": "visits", "kind": "sessions", "topic": "clicks", "gap_ms": 5_000},
        {"name": "names", "kind": "table", "topic": "names"},
        {"name": "prices", "kind": "versioned_table", "topic": "prices", "history_ms": HOUR},
    ]


def partitions() -> Scenario:
    """DSL tables in three partitions: positions, bounds, and queries of selected partitions."""
    clicks = write(
        "clicks",
        *((0, "a", "x", T), (1, "b", "x", T + 1_000), (1, "b", "x", T + 2_000)),
        *((1, "c", "x", T + 61_000), (0, "a", "x", T + 90_000), (1, "b", "x", T + 3_000)),
    )
    steps = [*_START, clicks, write("names", (0, "a", "Ann", T), (1, "b", "Bob", T))]
    steps += [write("names", (1, "b", None, T + 10)), write("prices", (0, "a", "5", T))]
    steps += [write("prices", (0, "a", "6", T + 100), (1, "b", "7", T)), *_query_tables()]
    steps += [commit(), *_query_tables(), write("clicks", (1, "b", "x", T + 4_000))]
    steps += [write("names", (0, "a", None, T + 20)), *_query_tables()]
    for bound in (
        {"clicks": {"1": 4}},
        {"clicks": {"1": 5}},
        {"clicks": {"0": 1, "1": 4}},
        {"clicks": {"0": 2}},
        {"clicks": {"2": 0}},
        {"clicks": {"2": 0, "1": 3}},
        {"names": {"1": 0}},
        {"clicks": {"7": 100}},
        {},
    ):
        for name in ("counts", "plain-counts"):
            steps += [query(name, "key", key="b") | {"bound": bound}]
        steps += [query("counts", "key", key="b", skip_cache=True) | {"bound": bound}]
        steps += [query("counts", "range") | {"bound": bound}]
        steps += [query("counts", "key", key="b") | {"bound": bound, "active": True}]
    for partitions in ([0], [1], [0, 2], [1, 7], [7]):
        steps += [query("counts", "key", key="b") | {"partitions": partitions}]
        steps += [query("counts", "range") | {"partitions": partitions, "active": True}]
    for name in ("counts", "plain-counts", "minutes", "visits", "names", "prices"):
        for kind in KINDS:
            steps += [query(name, **kind) | {"info": True, "partitions": [0]}]
    steps += [call("counts", "key_value", "get", key, partition=0) for key in "ab"]
    steps += [call("counts", "key_value", "get", "b", partition=1)]
    steps += [call("counts", "key_value", "get", "b", partition=7)]
    steps += [call("nothing", "key_value", "get", "b"), query("nothing", "key", key="b")]
    steps += [write("all", (0, "a", "1", T), (1, "b", "2", T), (1, "a", "3", T))]
    for key in "ab":
        steps += [call("everywhere", "key_value", "get", key)]
        steps += [call("everywhere", "timestamped_key_value", "get", key)]
        steps += [query("everywhere", "key", key=key)]
    steps += [query("everywhere", "range") | {"partitions": [0], "active": True}]
    steps += [call("everywhere", "key_value", "all")]
    steps += [call("everywhere", "key_value", "approximate_num_entries")]
    steps += [call("everywhere", "key_value", "get", "a", partition=7)]
    steps += [call("everywhere", "key_value", "range", "b", None)]
    everywhere = {"name": "everywhere", "kind": "global_table", "topic": "all"}
    return scenario("partitions", steps, partitions=3, tables=[*_tables(), everywhere])


def _query_tables() -> Iterator[Step]:
    for name in ("counts", "plain-counts", "names"):
        yield call(name, "key_value", "get", "b")
        yield call(name, "timestamped_key_value", "get", "b")
        yield query(name, "key", key="b")
        yield query(name, "key", key="a")
        yield query(name, "timestamped_key", key="b", skip_cache=True)
        yield query(name, "range")
        yield query(name, "timestamped_range", order="descending")
        yield call(name, "key_value", "approximate_num_entries")
    yield call("minutes", "window", "fetch", "b", 9_960_000)
    yield call("minutes", "timestamped_window", "fetch", "b", 0, 2 * T)
    yield query("minutes", "window_key", key="b", **{"from": 0, "to": 2 * T})
    yield query("minutes", "window_range", **{"from": 0, "to": 2 * T})
    yield call("visits", "session", "fetch", "b")
    yield query("visits", "sessions", key="b")
    yield query("prices", "version", key="a")
    yield query("prices", "version", key="a", as_of=T + 50)
    yield query("prices", "versions", key="a")


def life() -> Scenario:
    """An application before its start, restarted with and without its state, and closed."""
    both = [
        call("kv", "key_value", "get", "a"),
        query("kv", "key", key="a"),
        query("counts", "key", key="a"),
        query("kv-memory", "key", key="a"),
        query("versions", "version", key="a"),
        query("windows", "window_key", key="a", **{"from": T, "to": T}),
        query("sessions", "sessions", key="a"),
        query("kv", "key", key="a") | {"bound": {"in": {"0": 0}}},
        query("kv", "key", key="a") | {"bound": {"in": {"0": 0}}, "active": True},
        call("nothing", "key_value", "get", "a"),
        query("nothing", "key", key="a"),
    ]
    records = feed(
        ["put", "kv", "a", "1"],
        ["put", "kv-memory", "a", "2"],
        ["put_version", "versions", "a", "3", T],
        ["put_window", "windows", "a", "4", T],
        ["put_session", "sessions", "a", "5", T, T],
    )
    again: tuple[Step, ...] = ({"do": "make"}, {"do": "start"})
    steps = [{"do": "make"}, *both, {"do": "start"}, *both, records]
    steps += [write("clicks", (0, "a", "x", T), (0, "a", "x", T)), *both, commit(), *both]
    steps += [{"do": "close"}, *both, *again, *both, feed(["put", "kv", "a", "6"]), *both]
    steps += [{"do": "close"}, {"do": "wipe"}, *again, *both, feed(["put", "kv", "a", "7"]), *both]
    steps += [{"do": "close"}]
    tables = [{"name": "counts", "kind": "count", "topic": "clicks"}]
    stores = [*KEY_VALUE[:2], *VERSIONS, WINDOWS[0], SESSIONS[0]]
    return scenario("life", steps, stores=stores, tables=tables)


def standby(name: str, *, vectors: bool) -> Scenario:
    """Two instances, one of which has standbys and then takes over."""

    def queries(instance: str) -> Iterator[Step]:
        more = {"instance": instance}
        for stale in (False, True):
            yield call("counts", "key_value", "get", "a", stale=stale, **more)
            yield call("counts", "key_value", "all", stale=stale, **more)
            yield call("kv", "key_value", "get", "a", stale=stale, partition=0, **more)
        for name in ("kv", "counts"):
            yield query(name, "key", key="a") | more
            yield query(name, "key", key="a", skip_cache=True) | more
            yield query(name, "key", key="a") | {**more, "active": True}
            yield query(name, "range") | {**more, "partitions": [0, 1]}
            yield query(name, "key", key="a") | {**more, "bound": {"in": {"0": 0}}}
            yield query(name, "key", key="a") | {**more, "bound": {"clicks": {"0": 0}}}

    steps: list[Step] = [
        {"do": "make", "instance": "one"},
        {"do": "start", "instance": "one"},
        feed(["put", "kv", "a", "1"]),
        write("clicks", (0, "a", "x", T)),
        {"do": "make", "instance": "two"},
        {"do": "start", "instance": "two"},
        commit(),
        *queries("active"),
        *queries("standby"),
        feed(["put", "kv", "a", "2"]),
        write("clicks", (0, "a", "x", T)),
        *queries("active"),
        commit(),
        *queries("active"),
        *queries("standby"),
        {"do": "close", "instance": "active"},
        *queries("active"),
        feed(["put", "kv", "b", "3"]),
        *queries("active"),
    ]
    tables = [{"name": "counts", "kind": "count", "topic": "clicks"}]
    return scenario(name, steps, standbys=1, vectors=vectors, stores=[KEY_VALUE[0]], tables=tables)


def scenarios() -> list[Scenario]:
    """All scenarios, without answers."""
    alone = [pairs(), windows(), sessions(), special_cases(), partitions(), life()]
    return [*alone, standby("standby", vectors=False), standby("vectors", vectors=True)]
