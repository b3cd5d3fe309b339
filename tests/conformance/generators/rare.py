"""Random topologies with features that neither typical nor wild scenarios contain.

Numbers and bytes, windowed tables and their results, windowed keys, windowed cogroups, stores that
a processor reads while a DSL operator writes them, dynamic topics, and custom timestamps. Results
are converted to strings, so that any operator may follow.
"""

from __future__ import annotations

import random
from typing import Any

from conformance.generators.window_tables import WindowTables, window
from conformance.vendored.generate import ev, rand_events, rjw, rwin

Scenario = dict[str, Any]
Store = dict[str, Any]

_SUMS = ("sum", "min", "max", "count", "len_sum", "sub", "sub_del", "first", "last")
_READS: dict[str, tuple[str, ...]] = {
    "kv": ("get", "all", "rall", "range a c", "range - b", "rrange ab -", "prefix a"),
    "window": ("fetch 5", "fetchr 0 30", "bfetchr 0 99", "fetchk a b 0 50", "fetchall 3 40", "all"),
    "session": ("find 0 30", "find 10 15", "bfind 0 99", "fetch", "get 0 0"),
    "versioned": ("get", "getat 5", "getat 20", "getat 40"),
}


class Rare(WindowTables):
    """Adds operators like `Wild`, mostly rare ones."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.reads: list[dict[str, Any]] = []
        self._operators = [
            *self._operators,
            self._numbers,
            self._numbers_in_windows,
            self._number_tables,
            self._join_numbers,
            self._long_keys,
            self._bytes,
            self._window_table,
            self._window_table,
            self._window_table,
            self._join_window_tables,
            self._window_keys,
            self._cogroup_windows,
            self._cogroup_windows,
            self._transform,
            self._read_dsl_store,
            self._read_dsl_store,
            self._read_dsl_store,
            self._source,
            self._dynamic,
            self._process_rarely,
            self._route,
            self._to_stream_with_key,
            self._versioned_result,
            self._versioned_join,
            self._lru_result,
            self._global_store,
            self._joins_of_itself,
            self._repartition,
            self._suppress_rarely,
        ]

    def _text(self, node: str) -> str:
        made: str = self.builder.op("map_values", node, value="v|str|null_if:null")
        return made

    # --- other types -----------------------------------------------------------------------------

    def _number_stream(self) -> str:
        builder = self.builder
        builder.topics["N"] = ("string", "long")
        known = [op["id"] for op in builder.ops if op.get("topic") == "N"]
        node: str = known[0] if known else builder.stream("N", value="long")
        for _ in range(self._rng.randrange(0, 3)):
            if self._rng.random() < 0.5:
                how = self._kind("v|plus:3", "v|times:-7", "v|mod:5", "v|null_if:2", "v|or:4")
                node = builder.op("map_values", node, value=how)
            else:
                test = self._kind("v|even", "v|odd", "v|gt:0", "v|lt:5", "v|not_null")
                node = builder.op(self._kind("filter", "filter_not"), node, predicate=test)
        return node

    def _number_table(self) -> str:
        self.builder.topics["M"] = ("string", "long")
        known = [op["id"] for op in self.builder.ops if op.get("topic") == "M"]
        if known:
            return str(known[0])
        return str(self.builder.table("M", value="long", store=self.any_store(0.4)))

    def _numbers(self) -> None:
        builder = self.builder
        grouped = builder.op("group_by_key", self._number_stream())
        if self._rng.random() < 0.4:
            reducer = self._kind("sum", "sub", "min", "max", "first", "last")
            table = builder.op("reduce", grouped, reducer=reducer, store=self.any_store())
        else:
            adder = self._kind(*_SUMS)
            start = "null" if adder in ("first", "last") else self._kind("zero", "long:5", "null")
            table = builder.op(
                "aggregate", grouped, init=start, adder=adder, store=self.any_store()
            )
        self._add_table(table)

    def _numbers_in_windows(self) -> None:
        builder, made = self.builder, window(self._rng)
        grouped = builder.op("group_by_key", self._number_stream())
        by = builder.op("windowed_by", grouped, window=made, emit=self._emit(made))
        store = self.any_store()
        if self._rng.random() < 0.5:
            reducer = self._kind("sum", "min", "max", "last")
            table = builder.op("reduce", by, reducer=reducer, store=store)
        else:
            merger = self._kind("sum", "max") if made["type"] == "session" else None
            adder = self._kind("sum", "min", "max", "count", "sub_del")
            table = builder.op(
                "aggregate",
                by,
                init=self._kind("zero", "null"),
                adder=adder,
                merger=merger,
                store=store,
            )
        self._add_unwindowed(table)

    def _number_tables(self) -> None:
        builder = self.builder
        key, value = self._kind("v|mod:3|str", "v|str", "k"), self._kind("v", "v|null_if:3")
        grouped = builder.op("group_by", self._number_table(), key=key, value=value)
        table = builder.op(
            "aggregate",
            grouped,
            init="zero",
            adder="sum",
            subtractor=self._kind("sub", "sub_del"),
            store=self.any_store(),
        )
        self._add_table(table)

    def _join_numbers(self) -> None:
        builder = self.builder
        joiner, table = self._kind("sum", "left", "right", "key_plus"), self._number_table()
        kind = self._kind("inner", "left")
        if self._rng.random() < 0.5:
            parents = [self._number_stream(), table]
            joined = builder.op("join", parents, kind=kind, joiner=joiner)
            self._streams.append(self._text(joined))
        else:
            joiner = "sum" if joiner == "key_plus" else joiner
            other = self._table() if joiner in ("left", "right") else table
            joined = builder.op(
                "join", [table, other], kind=kind, joiner=joiner, store=self.any_store()
            )
            self._add_table(joined)

    def _long_keys(self) -> None:
        builder = self.builder
        builder.topics["K"] = ("long", "string")
        known = [op["id"] for op in builder.ops if op.get("topic") == "K"]
        table = known[0] if known else builder.table("K", key="long", store=self.any_store())
        if self._rng.random() < 0.5:
            left = self._table()
            kind = self._kind("inner", "left")
            joined = builder.op(
                "join", [left, table], kind=kind, foreign_key="v|parse_long", joiner="plus"
            )
            self._tables.append(joined)
        else:
            keyed = builder.op("map", self._stream(), key="v|parse_long", value="kv")
            kind = self._kind("inner", "left")
            joined = builder.op("join", [keyed, table], kind=kind, joiner="key_plus")
            self._streams.append(builder.op("select_key", joined, key="k|str"))

    def _bytes(self) -> None:
        builder = self.builder
        node = builder.op("map_values", self._stream(), value="v|to_bytes")
        ends = self._kind("reduce", "table", "repartition", "sink")
        if ends == "sink":
            builder.sink(node)
        elif ends == "repartition":
            node = builder.op("repartition", node)
        elif ends == "table":
            node = builder.op("to_stream", builder.op("to_table", node, store=self.any_store()))
        else:
            reduced = builder.op("reduce", builder.op("group_by_key", node), reducer="last")
            node = builder.op("to_stream", reduced)
        self._streams.append(builder.op("map_values", node, value="v|from_bytes"))

    # --- stores ----------------------------------------------------------------------------------

    def _read_dsl_store(self) -> None:
        """Add a processor that reads the store of a DSL operator by commands."""
        builder = self.builder
        name, kind = self.store_name(), self._kind(*_READS)
        store: Store = {"name": name, "caching": self._rng.random() < 0.5}
        if kind == "kv":
            made = self._kind("to_table", "count", "table")
            if made == "table" and any(op.get("topic") == "D" for op in builder.ops):
                made = "count"
            if made == "to_table":
                self._tables.append(builder.op("to_table", self._stream(), store=store))
            elif made == "count":
                self._add_table(builder.op("count", builder.group(self._stream()), store=store))
            else:
                builder.topics["D"] = ("string", "string")
                self._tables.append(builder.table("D", store=store))
        elif kind == "versioned":
            store = {"name": name, "kind": "versioned", "history_ms": 40}
            self._tables.append(builder.op("to_table", self._stream(), store=store))
        else:
            kinds = ("session",) if kind == "session" else ("tumbling", "hopping", "sliding")
            by = builder.op(
                "windowed_by", builder.group(self._stream()), window=rwin(self._rng, kinds)
            )
            if kind == "window" and self._rng.random() < 0.5:
                self._add_unwindowed(builder.op("count", by, store=store))
            else:
                self._add_unwindowed(builder.op("reduce", by, reducer="concat", store=store))
        topic = f"C{name}"
        read = builder.op("process", builder.stream(topic), processor=f"{kind}_cmd", stores=[name])
        builder.sink(read)
        self.reads.append({"topic": topic, "commands": _READS[kind]})

    def _transform(self) -> None:
        builder, stores = self.builder, None
        if self._rng.random() < 0.6:
            name = self.store_name()
            impl = self._kind("in_memory", "rocksdb")
            kept = {"name": name, "kind": "kv", "value": "long", "impl": impl}
            builder.op("add_store", store=kept)
            stores = [name]
        table = builder.op(
            "transform_values", self._table(), stores=stores, store=self.any_store(0.5)
        )
        self._tables.append(table)

    def _versioned_result(self) -> None:
        builder = self.builder
        store = {
            "name": self.store_name(),
            "kind": "versioned",
            "history_ms": self._rng.choice((0, 5, 30, 500)),
        }
        how = self._kind("filter", "map_values", "to_table", "count", "join")
        if how == "filter":
            made = builder.op("filter", self._table(), predicate="v|contains:a", store=store)
        elif how == "map_values":
            made = builder.op("map_values", self._table(), value="v|upper", store=store)
        elif how == "to_table":
            made = builder.op("to_table", self._stream(), store=store)
        elif how == "count":
            made = builder.op("count", builder.group(self._stream()), store=store)
            made = self._text(made)
        else:
            parents, kind = [self._table(), self._table()], self._kind("inner", "left", "outer")
            made = builder.op("join", parents, kind=kind, joiner="plus", store=store)
        self._tables.append(made)

    def _versioned_join(self) -> None:
        store = {"name": self.store_name(), "kind": "versioned", "history_ms": 60}
        table = self.builder.op("to_table", self._stream(), store=store)
        keyed = self.builder.op("filter", self._stream(), predicate="k|not_null")
        joined = self.builder.op(
            "join",
            [keyed, table],
            kind=self._kind("inner", "left"),
            joiner=self._kind("plus", "key_plus"),
            grace_ms=self._rng.choice((None, 0, 3, 15, 60)),
        )
        self._tables.append(table)
        self._streams.append(joined)

    def _lru_result(self) -> None:
        store = {"name": self.store_name(), "kind": "lru", "max_entries": 2}
        self._tables.append(self.builder.op("to_table", self._stream(), store=store))

    def _global_store(self) -> None:
        builder = self.builder
        if any(op["op"] == "global_store" for op in builder.ops):
            return
        builder.topics["GS"] = ("string", "string")
        kind = self._kind("kv", "timestamped_kv")
        impl = self._kind("in_memory", "rocksdb")
        store = {"name": "gs", "kind": kind, "impl": impl, "logging": False}
        builder.op("global_store", topic="GS", store=store)
        read = builder.op("process", self._stream(), processor="lookup:gs")
        self._streams.append(read)

    # --- streams ---------------------------------------------------------------------------------

    def _source(self) -> None:
        extractor = self._kind("value_long_or_partition", "partition_time")
        reset = self._rng.choice((None, None, "earliest", "latest"))
        name = f"T{len(self.builder.ops)}"
        topics = [name, f"{name}x"][: self._rng.randrange(1, 3)]
        self.builder.topics.update(dict.fromkeys(topics, ("string", "string")))
        node = self.builder.op("stream", topics=topics, ts_extractor=extractor, reset=reset)
        self._streams.append(node)

    def _dynamic(self) -> None:
        known = self.builder.op("filter", self._stream(), predicate="v|not_null")
        self.builder.op("to", known, topic_expr=self._kind("v|prefix:1|prepend:dyn-", "const:dyn"))

    def _process_rarely(self) -> None:
        builder, op = self.builder, self._kind("process", "process_values")
        processor = self._kind(
            "header:x", "drop_headers", "show_headers", "set_value:kv|upper", "repeat:0", "repeat:3"
        )
        if self._rng.random() < 0.15:
            processor = self._kind("fail_on:zed", "shift_ts:-9")
        elif op == "process" and self._rng.random() < 0.3:
            processor = self._kind("set_key:v", "set_key:v|prefix:1", "set_key:null")
        self._streams.append(builder.op(op, self._stream(), processor=processor))

    def _route(self) -> None:
        builder, number = self.builder, len(self.builder.ops)
        one, two = f"one{number}", f"two{number}"
        routed = builder.op("process", self._stream(), processor=f"route:{one}:{two}")
        self._streams.append(builder.op("map_values", routed, value="kv", name=one))
        self._streams.append(builder.op("select_key", routed, key="v", name=two))

    def _to_stream_with_key(self) -> None:
        key = self._kind("v", "v|prefix:1", "null", "kv")
        self._streams.append(self.builder.op("to_stream", self._table(), key=key))

    def _joins_of_itself(self) -> None:
        node, windows = self._stream(), rjw(self._rng)
        windows["after"] = max(windows.get("after", 0), 0)
        joined = self.builder.op(
            "join",
            [node, node],
            kind="inner",
            joiner=self._kind("plus", "key_plus"),
            windows=windows,
            logging=self._rng.choice((None, False)),
        )
        self._streams.append(joined)

    def _repartition(self) -> None:
        partitions = self._rng.choice((None, 1, 3))
        name = f"rep{len(self.builder.ops)}" if self._rng.random() < 0.5 else None
        node = self.builder.op("repartition", self._stream(), partitions=partitions, name=name)
        self._streams.append(node)


def rare_scenario(seed: str, index: int) -> Scenario:
    """Create a scenario; the same for the same arguments."""
    rng = random.Random(f"rare/{seed}/{index}")
    rare = Rare(rng)
    rare.grow(rng.randrange(2, 7))
    events = rand_events(
        rng,
        rare.builder.topics or {"L": ("string", "string")},
        rng.randrange(12, 28),
        span=rng.choice((4, 8, 15)),
        keys=rng.choice((("a", "b"), ("a", "b", "c", "ab"))),
    )
    for read in rare.reads:
        for _ in range(4):
            place = rng.randrange(0, len(events) + 1)
            time = next((e["ts"] for e in events[place:] if "ts" in e), 9)
            command = rng.choice(read["commands"])
            events[place:place] = ev((read["topic"], rng.choice("ab"), command, time))
    config: dict[str, Any] = {}
    if rng.random() < 0.6:
        config["dsl_store"] = "in_memory"
    if rng.random() < 0.25:
        config["optimize"] = "all"
    if rng.random() < 0.35:
        config["cache_max_bytes"] = 10_000_000
    return {
        "name": f"rare {seed}/{index}",
        "group": "rare",
        "config": config,
        "topology": rare.builder.ops,
        "events": events,
    }
