"""Random topologies of the Processor API: sources, processors, stores and sinks by name."""

from __future__ import annotations

import random
from typing import Any

from conformance.vendored.generate import rand_events

Scenario = dict[str, Any]
Op = dict[str, Any]

_PLAIN = (
    *("pass", "tag", "header:x", "drop_headers", "show_headers", "repeat:2", "shift_ts:3"),
    *("set_value:kv|upper", "set_key:v", "punct:stream:9", "fail_on:zed", "set_value:v|prefix:1"),
)


class _Assembly:
    """A topology that grows by one node at a time.

    Attributes:
        ops: the operations so far.
        topics: the input topics, with the types of keys and values.
    """

    def __init__(self, rng: random.Random) -> None:
        self.ops: list[Op] = []
        self.topics: dict[str, tuple[str, str]] = {}
        self._rng = rng
        self._names = rng.sample([f"{a}{b}" for a in "pqxyzkm" for b in range(6)], 40)
        self._parents: list[str] = []
        self._processors: list[str] = []
        self._stores: list[str] = []
        # The interpreter formats the missing topic of a punctuation differently.
        self._punctuates = rng.random() < 0.5

    def grow(self, size: int) -> None:
        """Add nodes and their stores."""
        self._source()
        for _ in range(size):
            self._rng.choice((self._source, *[self._processor] * 3, self._sink, self._store))()
        self._sink()

    def _name(self) -> str:
        if self._rng.random() < 0.01 and self._parents:
            return self._rng.choice(self._parents)
        return self._names.pop()

    def _some_parents(self) -> list[str]:
        number = min(len(self._parents), self._rng.choice((1, 1, 1, 2, 3)))
        parents = self._rng.sample(self._parents, number)
        return ["unknown"] if self._rng.random() < 0.01 else parents

    def _source(self) -> None:
        free = [topic for topic in "LRQST" if topic not in self.topics]
        if not free:
            return
        topics = self._rng.sample(free, min(len(free), self._rng.choice((1, 1, 2))))
        self.topics.update(dict.fromkeys(topics, ("string", "string")))
        name = self._name()
        self.ops.append({"op": "add_source", "name": name, "topics": topics})
        self._parents.append(name)

    def _processor(self) -> None:
        name, parents = self._name(), self._some_parents()
        op: Op = {"op": "add_processor", "name": name, "parents": parents}
        hidden = "tag" if self._punctuates else "punct"
        known = [each for each in _PLAIN if not each.startswith(hidden)]
        op["processor"] = self._rng.choice(known)
        self.ops.append(op)
        self._parents.append(name)
        self._processors.append(name)

    def _sink(self) -> None:
        name, topic = self._name(), f"out{self._rng.randrange(4)}"
        parents = self._some_parents()
        self.ops.append({"op": "add_sink", "name": name, "topic": topic, "parents": parents})

    def _store(self) -> None:
        """Add a store, and one or two processors that share it."""
        rng, name = self._rng, f"store{len(self._stores)}"
        self._stores.append(name)
        impl = rng.choice(("in_memory", "rocksdb"))
        store: Op = {"name": name, "kind": "kv", "impl": impl}
        buffers = ("buffer:stream:8", "buffer:wall:5") if self._punctuates else ()
        processor = rng.choice(("counter", "lookup", *buffers))
        if processor == "counter":
            store["value"] = "long"
        if rng.random() < 0.3:
            store["caching"] = True
        self.ops.append({"op": "topology_store", "store": store, "processors": []})
        users = []
        for _ in range(rng.randrange(1, 3)):
            keyed, user = self._name(), self._name()
            # Stores reject null keys.
            key = {"op": "add_processor", "name": keyed, "parents": self._some_parents()}
            self.ops.append({**key, "processor": "set_key:v|or:none"})
            use = {"op": "add_processor", "name": user, "parents": [keyed], "stores": [name]}
            self.ops.append({**use, "processor": processor})
            users.append(user)
        if self._processors and rng.random() < 0.4:
            other = rng.choice(self._processors)
            self.ops.append({"op": "connect", "processor": other, "stores": [name]})
        shown = self._name()
        show = {"op": "add_processor", "name": shown, "parents": users}
        self.ops.append({**show, "processor": "set_value:v|str"})
        self._parents.append(shown)


def assembled_scenario(seed: str, index: int) -> Scenario:
    """Create a scenario; the same for the same arguments."""
    rng = random.Random(f"assembled/{seed}/{index}")
    assembly = _Assembly(rng)
    assembly.grow(rng.randrange(2, 10))
    config = {"cache_max_bytes": 10_000_000} if rng.random() < 0.3 else {}
    return {
        "name": f"assembled {seed}/{index}",
        "group": "assembled",
        "config": config,
        "topology": assembly.ops,
        "describe_text": True,
        "events": rand_events(rng, assembly.topics, rng.randrange(8, 20)),
    }
