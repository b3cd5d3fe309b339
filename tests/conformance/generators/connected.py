"""Random topologies with nodes that are connected by shared stores as well as by edges.

Processors and transformers read and write stores, most of them cached, upstream and downstream of
aggregations with caches of their own. So flushing one cache may change a store that was flushed
before.
"""

from __future__ import annotations

import random
from typing import Any

from conformance.vendored.generate import R, rand_events

Scenario = dict[str, Any]

_CACHE_BYTES = 10_000_000


class Connected:
    """A topology that grows by one operator at a time. All values of streams are strings.

    Attributes:
        builder: the operations so far.
    """

    def __init__(self, rng: random.Random) -> None:
        self.builder = R(rng)
        self._rng = rng
        self._counters = [f"C{number}" for number in range(rng.randrange(1, 3))]
        # Stores are flushed in the order of registration: before those of the nodes, or in between.
        self._to_add = list(self._counters)
        self._streams: list[str] = []
        self._tables: list[str] = []
        self._operators = [self._process, self._process, self._transform, self._transform]
        self._operators += [self._count, self._to_table, self._join, self._change]

    def grow(self, size: int) -> None:
        """Add operators, and a sink to each end."""
        for _ in range(size):
            self._rng.choice(self._operators)()
        for end in self._streams:
            self.builder.sink(end)
        for end in self._tables:
            self.builder.tout(end)

    def _counter(self) -> str:
        name = self._rng.choice(self._counters)
        if name in self._to_add:
            self._to_add.remove(name)
            store = {"name": name, "kind": "kv", "value": "long", "impl": "in_memory"}
            self.builder.op("add_store", store={**store, "caching": self._rng.random() < 0.7})
        return name

    def _cached(self) -> dict[str, Any]:
        name = f"S{len(self.builder.ops)}"
        return {"name": name, "kind": "in_memory", "caching": self._rng.random() < 0.8}

    def _stream(self) -> str:
        if self._streams and self._rng.random() < 0.7:
            return self._rng.choice(self._streams)
        if self._tables and self._rng.random() < 0.5:
            stream: str = self.builder.op("to_stream", self._rng.choice(self._tables))
        else:
            stream = self.builder.src()
        self._streams.append(stream)
        return stream

    def _table(self) -> str:
        if self._tables and self._rng.random() < 0.7:
            return self._rng.choice(self._tables)
        table: str = self.builder.tsrc()
        self._tables.append(table)
        return table

    def _process(self) -> None:
        keyed = self.builder.op("filter", self._stream(), predicate="k|not_null")
        op = self._rng.choice(("process", "process_values"))
        counted = self.builder.op(op, keyed, processor="counter", stores=[self._counter()])
        self._streams.append(self.builder.op("map_values", counted, value="v|str"))

    def _transform(self) -> None:
        # With a store, since downstream nodes of a virtual table have no access to the counter.
        table, counter, store = self._table(), self._counter(), self._cached()
        self._tables.append(
            self.builder.op("transform_values", table, stores=[counter], store=store)
        )

    def _count(self) -> None:
        # Without a new key: nodes downstream of a repartition topic share no stores.
        source = self.builder.src()
        grouped = self.builder.op("group_by_key", source)
        counted = self.builder.op("count", grouped, store=self._cached())
        self._tables.append(self.builder.op("map_values", counted, value="v|str"))

    def _to_table(self) -> None:
        self._tables.append(self.builder.op("to_table", self._stream(), store=self._cached()))

    def _join(self) -> None:
        one, other = self._table(), self._table()
        if one != other:
            joined = self.builder.op(
                "join", [one, other], kind="outer", joiner="plus", store=self._cached()
            )
            self._tables.append(joined)

    def _change(self) -> None:
        table, store = self._table(), self._cached()
        self._tables.append(self.builder.op("map_values", table, value="v|upper", store=store))


def connected_scenario(seed: str, index: int) -> Scenario:
    """Create a scenario; the same for the same arguments."""
    rng = random.Random(f"connected/{seed}/{index}")
    connected = Connected(rng)
    connected.grow(rng.randrange(3, 8))
    return {
        "name": f"connected {seed}/{index}",
        "group": "connected",
        "config": {"cache_max_bytes": _CACHE_BYTES},
        "topology": connected.builder.ops,
        "events": rand_events(
            rng,
            connected.builder.topics,
            rng.randrange(6, 18),
            span=rng.choice((4, 8, 15)),
            keys=("a", "b"),
        ),
    }
