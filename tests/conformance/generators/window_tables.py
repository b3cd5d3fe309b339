"""Random operators on windowed tables and their results."""

from __future__ import annotations

import random
from typing import Any

from conformance.generators.wild import Wild
from conformance.vendored.generate import rbuf, rjw, rwin

Store = dict[str, Any]

_WINDOWS = ("tumbling", "hopping", "sliding", "session")


def window(rng: random.Random, kinds: tuple[str, ...] = _WINDOWS) -> dict[str, Any]:
    """Create windows of any kind, including extreme sizes and grace periods."""
    windows: dict[str, Any] = rwin(rng, kinds)
    if rng.random() < 0.1 and "tumbling" in kinds:
        return {"type": "unlimited", "start": rng.choice((0, 0, 10, 40))}
    if rng.random() < 0.25:
        windows["grace"] = rng.choice((0, 1, 2, 7, 100, 1000))
    if rng.random() < 0.2 and "size" in windows:
        windows["size"] = rng.choice((1, 2, 3, 20, 100))
        if "advance" in windows:
            windows["advance"] = rng.randrange(1, windows["size"] + 1)
    if rng.random() < 0.2 and "gap" in windows:
        windows["gap"] = rng.choice((0, 1, 3, 20))
    return windows


class WindowTables(Wild):
    """Adds windowed tables that are joined, mapped, suppressed and grouped again."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._stores = 0

    def store_name(self) -> str:
        """A new store name."""
        self._stores += 1
        return f"st{self._stores}"

    def any_store(self, p: float = 0.6) -> Store | None:
        """Create random store options for an operator, or None."""
        rng = self._rng
        if rng.random() > p:
            return None
        store: Store = {"name": self.store_name()} if rng.random() < 0.7 else {}
        if rng.random() < 0.5:
            store["kind"] = self._kind("in_memory", "rocksdb")
        if rng.random() < 0.4:
            store["caching"] = rng.random() < 0.6
        if rng.random() < 0.3:
            store["logging"] = rng.choice((True, False, {"retention.ms": "99"}))
        return store or {"kind": "in_memory"}

    def _emit(self, windows: dict[str, Any]) -> str | None:
        if windows["type"] == "unlimited":
            return None
        return self._rng.choice((None, None, None, "on_window_close", "on_window_update"))

    def _aggregated_windows(self, **kinds: tuple[str, ...]) -> str:
        builder, windows = self.builder, window(self._rng, **kinds)
        grouped = builder.group(self._stream(), 0.25)
        by = builder.op("windowed_by", grouped, window=windows, emit=self._emit(windows))
        store = self.any_store()
        if store is not None and self._rng.random() < 0.4 and windows["type"] != "unlimited":
            least = windows.get("size", windows.get("gap", 0)) * (
                2 if windows["type"] == "sliding" else 1
            )
            store["retention_ms"] = least + windows["grace"] + self._rng.choice((0, 1, 20, 500))
        how = self._kind("count", "reduce", "aggregate")
        if how == "count":
            return str(builder.op("count", by, store=store))
        if how == "reduce":
            reducer = self._kind("concat", "del", "first", "last", "plus")
            return str(builder.op("reduce", by, reducer=reducer, store=store))
        merger = self._kind("amp", "concat", "collect") if windows["type"] == "session" else None
        adder = self._kind("concat", "collect", "key_concat", "concat_del", "last")
        start = self._kind("empty", "const:i", "null")
        return str(builder.op("aggregate", by, init=start, adder=adder, merger=merger, store=store))

    def _add_unwindowed(self, table: str) -> None:
        """Convert a windowed table to strings: a stream, or a table with unwindowed keys."""
        builder = self.builder
        if self._rng.random() < 0.3:
            text = builder.op("map_values", table, value="v|str")
            value = self._kind("v", "kv", "ws|str")
            grouped = builder.op("group_by", text, key=self._kind("wk", "we|str"), value=value)
            self._add_table(builder.agg(grouped, table=True))
            return
        stream = builder.op("to_stream", table)
        if self._rng.random() < 0.6:
            builder.sink(stream)
        self._streams.append(builder.op("map", stream, key="wk", value=self._kind("kv", "v|str")))

    def _window_table(self) -> None:
        builder, table = self.builder, self._aggregated_windows()
        for _ in range(self._rng.randrange(0, 3)):
            how = self._kind("filter", "filter_not", "map", "transform", "limit", "close")
            # A named result is materialized, and Kafka Streams uses the default serde for its keys.
            store = self.any_store(0.4)
            if store is not None:
                store = {"kind": "in_memory", **store}
                store.pop("name", None)
            if how in ("filter", "filter_not"):
                test = self._kind("v|str|contains:a", "v|not_null", "ws|gt:10")
                table = builder.op(how, table, predicate=test, store=store)
            elif how == "map":
                value = self._kind("kv", "v|str|null_if_contains:b", "we|str")
                table = builder.op("map_values", table, value=value, store=store)
            elif how == "transform":
                table = builder.op("transform_values", table, store=store)
            elif how == "close":
                table = builder.op("suppress", table, type="until_window_closes")
            else:
                table = self._limited(builder.op("filter", table, predicate="v|not_null"))
        self._add_unwindowed(table)

    def _limited(self, table: str) -> str:
        limit = self._rng.choice((0, 1, 7, 25, 100))
        buffer = rbuf(self._rng)
        if self._rng.random() < 0.3:
            buffer = {"max_records": self._rng.choice((0, 1, 4)), "max_bytes": 170}
            buffer["full"] = self._kind("emit_early", "emit_early", "shut_down")
        return str(
            self.builder.op(
                "suppress", table, type="until_time_limit", limit_ms=limit, buffer=buffer
            )
        )

    def _suppress_rarely(self) -> None:
        keyed = self.builder.op("filter", self._table(), predicate="v|not_null")
        once = self._limited(keyed)
        self._tables.append(self._limited(once) if self._rng.random() < 0.3 else once)

    def _join_window_tables(self) -> None:
        kinds = (self._kind(*_WINDOWS),)
        one, other = (self._aggregated_windows(kinds=kinds) for _ in range(2))
        one, other = (self.builder.op("map_values", each, value="v|str") for each in (one, other))
        kind, joiner = self._kind("inner", "left", "outer"), self._kind("plus", "null_if_same")
        joined = self.builder.op("join", [one, other], kind=kind, joiner=joiner)
        stream = self.builder.op("to_stream", joined)
        self.builder.sink(stream)
        self._streams.append(self.builder.op("map", stream, key="wk", value="kv"))

    def _window_keys(self) -> None:
        builder, table = self.builder, self._aggregated_windows(kinds=("tumbling", "hopping"))
        stream = builder.op("map_values", builder.op("to_stream", table), value="v|str")
        how = self._kind("count", "join", "repartition", "streams")
        if how == "count":
            counted = builder.op("count", builder.op("group_by_key", stream))
            stream = builder.op("to_stream", counted)
        elif how == "join":
            kind = self._kind("inner", "left")
            stream = builder.op("join", [stream, table], kind=kind, joiner="plus")
        elif how == "repartition":
            stream = builder.op("repartition", stream)
        else:
            windows = rjw(self._rng)
            windows["after"] = max(windows.get("after", 0), 0)
            stream = builder.op("join", [stream, stream], kind="inner", windows=windows)
        builder.sink(stream)
        self._streams.append(builder.op("map", stream, key="wk", value="kv"))

    def _cogroup_windows(self) -> None:
        builder = self.builder
        groups = [builder.group(self._stream()) for _ in range(self._rng.randrange(1, 4))]
        adders = [self._kind("concat", "plus", "key_concat", "concat_del") for _ in groups]
        windows = window(self._rng)
        by = builder.op("windowed_by", builder.op("cogroup", groups, adders=adders), window=windows)
        merger = self._kind("amp", "concat") if windows["type"] == "session" else None
        store = self.any_store()
        start = self._kind("empty", "const:i", "null")
        table = builder.op("aggregate", by, init=start, merger=merger, store=store)
        if self._rng.random() < 0.3 and windows["type"] != "unlimited":
            table = builder.op("suppress", table, type="until_window_closes")
        self._add_unwindowed(table)
