"""Random topologies in which any operator may follow any other.

The generator of the scenarios (`vendored/generate.py`) creates topologies that are typical of a
group. Here, every operator takes its input from any existing node, so that unusual combinations
occur: a suppressed table on both sides of a join, a self-join after a foreign-key join, processors
that share a store with branches that merge again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance.vendored.generate import R, rand_events, rbuf, rwin, sjoin

Scenario = dict[str, Any]

_WINDOWS = ("tumbling", "hopping", "sliding", "session")


class Wild:
    """A topology that grows by one operator at a time. All keys and values are strings.

    Attributes:
        builder: the operations so far.
    """

    def __init__(self, rng: random.Random) -> None:
        self.builder = R(rng)
        self._rng = rng
        self._streams: list[str] = []
        self._tables: list[str] = []
        self._shared: list[str] = []
        self._operators: list[Callable[[], None]] = [
            self._stateless,
            self._branches,
            self._merge,
            self._aggregate,
            self._aggregate,
            self._windowed,
            self._windowed,
            self._cogroup,
            self._to_table,
            self._to_stream,
            self._change_table,
            self._regroup,
            self._suppress,
            self._join_tables,
            self._join_tables,
            self._join_by_foreign_key,
            self._join_streams,
            self._join_streams,
            self._join_stream_and_table,
            self._join_stream_and_table,
            self._join_global,
            self._process_with_shared_store,
            self._process,
            self._punctuate,
            self._versioned,
        ]

    def grow(self, size: int) -> None:
        """Add operators, and sinks at the end."""
        for _ in range(size):
            self._rng.choice(self._operators)()
        ends = [*self._streams, *self._tables] or [self._stream()]
        for end in self._rng.sample(ends, min(len(ends), self._rng.randrange(1, 4))):
            if end in self._tables:
                self.builder.tout(end)
            else:
                self.builder.sink(end)

    # --- existing nodes --------------------------------------------------------------------------

    def _stream(self) -> str:
        if self._streams and self._rng.random() < 0.6:
            return self._rng.choice(self._streams)
        source: str = self.builder.src()
        return source

    def _table(self) -> str:
        if self._tables and self._rng.random() < 0.6:
            return self._rng.choice(self._tables)
        source: str = self.builder.tsrc()
        return source

    def _add_table(self, node: str) -> None:
        """Add a table, with values converted from longs to strings."""
        store = self.builder.store(0.2)
        text = self.builder.op("map_values", node, value="v|str|null_if:null", store=store)
        self._tables.append(text)

    def _kind(self, *kinds: str) -> str:
        return self._rng.choice(kinds)

    # --- streams ---------------------------------------------------------------------------------

    def _stateless(self) -> None:
        self._streams.append(self.builder.stateless(self._stream(), 1))

    def _branches(self) -> None:
        self._streams += self.builder.branchy(self._stream())

    def _merge(self) -> None:
        one, other = self._stream(), self._stream()
        if one != other:
            self._streams.append(self.builder.op("merge", [one, other]))

    def _to_stream(self) -> None:
        self._streams.append(self.builder.op("to_stream", self._table()))

    def _join_streams(self) -> None:
        joined = sjoin(self.builder, self._rng, self._stream(), self._stream())
        self._streams.append(joined)

    def _join_stream_and_table(self) -> None:
        kind, joiner = self._kind("inner", "left"), self._kind("plus", "key_plus", "right")
        parents = [self._stream(), self._table()]
        self._streams.append(self.builder.op("join", parents, kind=kind, joiner=joiner))

    def _join_global(self) -> None:
        builder = self.builder
        known = [op["id"] for op in builder.ops if op["op"] == "global_table"]
        builder.topics["G"] = ("string", "string")
        table = known[0] if known else builder.op("global_table", topic="G")
        kind, key = self._kind("inner", "left"), self._kind("k", "v", "v|prefix:1")
        parents = [self._stream(), table]
        self._streams.append(builder.op("join", parents, kind=kind, key=key, joiner="plus"))

    def _process(self) -> None:
        processor = self._kind("tag", "repeat:2", "shift_ts:4")
        self._streams.append(self.builder.op("process", self._stream(), processor=processor))

    def _punctuate(self) -> None:
        # The interpreter formats the missing topic of a punctuation differently, so it is ignored.
        processor = self._kind("punct:stream:7", "punct:wall:9")
        self.builder.sink(self.builder.op("process", self._stream(), processor=processor))

    def _process_with_shared_store(self) -> None:
        builder = self.builder
        if not self._shared:
            store = {"name": "shared", "kind": "kv", "value": "long", "impl": "in_memory"}
            if self._rng.random() < 0.3:
                store["caching"] = True  # type: ignore[assignment]
            builder.op("add_store", store=store)
        keyed = builder.op("filter", self._stream(), predicate="k|not_null")
        op = self._kind("process", "process_values")
        counted = builder.op(op, keyed, processor="counter", stores=["shared"])
        self._shared.append(counted)
        self._streams.append(builder.op("map_values", counted, value="v|str"))

    # --- tables ----------------------------------------------------------------------------------

    def _to_table(self) -> None:
        store = self.builder.store(0.4)
        self._tables.append(self.builder.op("to_table", self._stream(), store=store))

    def _change_table(self) -> None:
        self._add_table(self.builder.tableops(self._table(), 1))

    def _aggregate(self) -> None:
        self._add_table(self.builder.agg(self.builder.group(self._stream())))

    def _regroup(self) -> None:
        self._add_table(self.builder.regroup(self._table()))

    def _cogroup(self) -> None:
        groups = [self.builder.group(self._stream()) for _ in range(2)]
        adders = [self._kind("concat", "plus", "key_concat") for _ in groups]
        cogrouped = self.builder.op("cogroup", groups, adders=adders)
        store = self.builder.store()
        self._add_table(self.builder.op("aggregate", cogrouped, init="empty", store=store))

    def _windowed(self) -> None:
        builder, rng = self.builder, self._rng
        window = rwin(rng, _WINDOWS)
        emit = "on_window_close" if rng.random() < 0.25 else None
        by = builder.op("windowed_by", builder.group(self._stream()), window=window, emit=emit)
        table = builder.agg(by, session=window["type"] == "session")
        if rng.random() < 0.25 and emit is None:
            table = builder.op("suppress", table, type="until_window_closes")
        stream = builder.op("to_stream", table)
        if rng.random() < 0.5:
            builder.sink(stream)
        value = self._kind("ws|str", "v|str")
        self._streams.append(builder.op("map", stream, key="wk", value=value))

    def _suppress(self) -> None:
        limit = self._rng.choice((0, 5, 10, 30))
        keyed = self.builder.op("filter", self._table(), predicate="v|not_null")
        self._tables.append(
            self.builder.op(
                "suppress",
                keyed,
                type="until_time_limit",
                limit_ms=limit,
                buffer=rbuf(self._rng),
            )
        )

    def _join_tables(self) -> None:
        one, other = self._table(), self._table()
        kind, joiner = self._kind("inner", "left", "outer"), self._kind("plus", "null_if_same")
        store = self.builder.store(0.35)
        joined = self.builder.op("join", [one, other], kind=kind, joiner=joiner, store=store)
        self._tables.append(joined)

    def _join_by_foreign_key(self) -> None:
        kind, key = self._kind("inner", "left"), self._kind("v", "v|prefix:1", "v|field:0")
        parents, store = [self._table(), self._table()], self.builder.store(0.35)
        joined = self.builder.op(
            "join", parents, kind=kind, foreign_key=key, joiner="plus", store=store
        )
        self._tables.append(joined)

    def _versioned(self) -> None:
        builder = self.builder
        if "V" not in builder.topics:
            builder.topics["V"] = ("string", "string")
            history = self._rng.choice((20, 50, 1000))
            store = {"name": "versions", "kind": "versioned", "history_ms": history}
            self._tables.append(builder.table("V", store=store))


def wild_scenario(seed: str, index: int) -> Scenario:
    """Create a scenario; the same for the same arguments."""
    rng = random.Random(f"wild/{seed}/{index}")
    wild = Wild(rng)
    wild.grow(rng.randrange(2, 8))
    likely = {
        "dsl_store": ("in_memory", 0.75),
        "optimize": ("all", 0.3),
        "cache_max_bytes": (10_000_000, 0.3),
        "max_task_idle_ms": (5, 0.1),
        "processing_handler": ("continue", 0.1),
    }
    config = {key: value for key, (value, p) in likely.items() if rng.random() < p}
    events = rand_events(
        rng,
        wild.builder.topics,
        rng.randrange(10, 24),
        span=rng.choice((4, 8, 15)),
        keys=("a", "b") if rng.random() < 0.6 else ("a", "b", "c", "ab"),
    )
    return {
        "name": f"wild {seed}/{index}",
        "group": "wild",
        "config": config,
        "topology": wild.builder.ops,
        "events": events,
    }
