"""Random topologies in which anything may follow anything.

The generator of the scenarios (`vendored/generate.py`) makes what is typical of a group. Here every
operator takes its input from whatever there is, so that features meet which nobody puts together on
purpose: a suppressed table on both sides of a join, a self-join behind a foreign-key join,
processors that share a store with branches that meet again.
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

    def __init__(self, chance: random.Random) -> None:
        self.builder = R(chance)
        self._chance = chance
        self._streams: list[str] = []
        self._tables: list[str] = []
        self._shared: list[str] = []
        self._growths: list[Callable[[], None]] = [
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
        """Add operators, and sinks where it ends."""
        for _ in range(size):
            self._chance.choice(self._growths)()
        ends = [*self._streams, *self._tables] or [self._stream()]
        for end in self._chance.sample(ends, min(len(ends), self._chance.randrange(1, 4))):
            if end in self._tables:
                self.builder.tout(end)
            else:
                self.builder.sink(end)

    # --- what there is ---------------------------------------------------------------------------

    def _stream(self) -> str:
        if self._streams and self._chance.random() < 0.6:
            return self._chance.choice(self._streams)
        source: str = self.builder.src()
        return source

    def _table(self) -> str:
        if self._tables and self._chance.random() < 0.6:
            return self._chance.choice(self._tables)
        source: str = self.builder.tsrc()
        return source

    def _is_table(self, node: str) -> None:
        """Values may be longs and must be strings for whatever comes next."""
        store = self.builder.store(0.2)
        text = self.builder.op("map_values", node, value="v|str|null_if:null", store=store)
        self._tables.append(text)

    def _kind(self, *kinds: str) -> str:
        return self._chance.choice(kinds)

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
        joined = sjoin(self.builder, self._chance, self._stream(), self._stream())
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
        # The interpreter writes the missing topic of a punctuation in its own way, so nobody looks.
        processor = self._kind("punct:stream:7", "punct:wall:9")
        self.builder.sink(self.builder.op("process", self._stream(), processor=processor))

    def _process_with_shared_store(self) -> None:
        builder = self.builder
        if not self._shared:
            store = {"name": "shared", "kind": "kv", "value": "long", "impl": "in_memory"}
            if self._chance.random() < 0.3:
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
        self._is_table(self.builder.tableops(self._table(), 1))

    def _aggregate(self) -> None:
        self._is_table(self.builder.agg(self.builder.group(self._stream())))

    def _regroup(self) -> None:
        self._is_table(self.builder.regroup(self._table()))

    def _cogroup(self) -> None:
        groups = [self.builder.group(self._stream()) for _ in range(2)]
        adders = [self._kind("concat", "plus", "key_concat") for _ in groups]
        cogrouped = self.builder.op("cogroup", groups, adders=adders)
        store = self.builder.store()
        self._is_table(self.builder.op("aggregate", cogrouped, init="empty", store=store))

    def _windowed(self) -> None:
        builder, chance = self.builder, self._chance
        window = rwin(chance, _WINDOWS)
        emit = "on_window_close" if chance.random() < 0.25 else None
        by = builder.op("windowed_by", builder.group(self._stream()), window=window, emit=emit)
        table = builder.agg(by, session=window["type"] == "session")
        if chance.random() < 0.25 and emit is None:
            table = builder.op("suppress", table, type="until_window_closes")
        stream = builder.op("to_stream", table)
        if chance.random() < 0.5:
            builder.sink(stream)
        value = self._kind("ws|str", "v|str")
        self._streams.append(builder.op("map", stream, key="wk", value=value))

    def _suppress(self) -> None:
        limit = self._chance.choice((0, 5, 10, 30))
        keyed = self.builder.op("filter", self._table(), predicate="v|not_null")
        self._tables.append(
            self.builder.op(
                "suppress",
                keyed,
                type="until_time_limit",
                limit_ms=limit,
                buffer=rbuf(self._chance),
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
            history = self._chance.choice((20, 50, 1000))
            store = {"name": "versions", "kind": "versioned", "history_ms": history}
            self._tables.append(builder.table("V", store=store))


def wild_scenario(seed: str, index: int) -> Scenario:
    """A scenario: the same for the same arguments."""
    chance = random.Random(f"wild/{seed}/{index}")
    wild = Wild(chance)
    wild.grow(chance.randrange(2, 8))
    likely = {
        "dsl_store": ("in_memory", 0.75),
        "optimize": ("all", 0.3),
        "cache_max_bytes": (10_000_000, 0.3),
        "max_task_idle_ms": (5, 0.1),
        "processing_handler": ("continue", 0.1),
    }
    config = {key: value for key, (value, p) in likely.items() if chance.random() < p}
    events = rand_events(
        chance,
        wild.builder.topics,
        chance.randrange(10, 24),
        span=chance.choice((4, 8, 15)),
        keys=("a", "b") if chance.random() < 0.6 else ("a", "b", "c", "ab"),
    )
    return {
        "name": f"wild {seed}/{index}",
        "group": "wild",
        "config": config,
        "topology": wild.builder.ops,
        "events": events,
    }
