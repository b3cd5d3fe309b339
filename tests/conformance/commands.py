"""Random commands to a store, whatever store it is: the Processor API's view of state.

Keys are prefixes of each other, times lie far apart and before others, ranges are open or empty;
stores have caches, duplicates, few entries, short retention.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Scenario = dict[str, Any]
Store = dict[str, Any]

_KEYS = ("a", "aa", "a\x01", "ab", "b", "b1", "", "é", "日")


class _Commands:
    """Makes commands, the later the later in time.

    Args:
        chance: what decides.
        step: how far apart the times of two commands usually are, in ms.
    """

    def __init__(self, chance: random.Random, step: int) -> None:
        self._chance = chance
        self._step = step
        self.now = chance.choice((0, 0, step * 5))
        self.keys = chance.sample(_KEYS, chance.randrange(2, 6))
        self._number = 0
        self._ends: set[int] = set()

    def time(self) -> int:
        """A time around now."""
        step = self._step
        return max(0, self.now - self._chance.choice((0, 0, 1, step, 2 * step, 5 * step, -step)))

    def span(self) -> str:
        """Two times, the second mostly not before the first."""
        first, last = sorted([self.time(), self.time()])
        if self._chance.random() < 0.1:
            last = self._chance.choice((first, first + 100 * self._step))
        return f"{first} {last}"

    def key(self) -> str:
        """A key that can stand in a command."""
        plain = [key for key in self.keys if key]
        return self._chance.choice([*plain, "-"])

    def keys_in_order(self) -> str:
        """The ends of a range of keys, either of which may be open."""
        first, last = self.key(), self.key()
        if "-" not in (first, last) and first > last:
            first, last = last, first
        return f"{first} {last}"

    def next(self, kind: str) -> str:
        """The next command."""
        chance = self._chance
        self._number += 1
        if chance.random() < 0.75:
            self.now += chance.randrange(0, self._step)
        elif chance.random() < 0.3:
            self.now += self._step * chance.choice((3, 10, 40))
        makers: dict[str, Callable[[], list[str]]] = {
            "kv": self._key_value,
            "window": self._window,
            "session": self._session,
            "versioned": self._versioned,
        }
        return chance.choice(makers[kind]())

    def _key_value(self) -> list[str]:
        number, one, other = self._number, self.key(), self.key()
        many = f"putall {one}={number} {other}={number}x {one}={number}y".replace("-=", "c=")
        return [
            *[f"put {number}"] * 4,
            *("del", "get", "putnull", f"pia {number}", many),
            f"range {self.keys_in_order()}",
            f"rrange {self.keys_in_order()}",
            *("all", "rall", f"prefix {self.key()}", f"prefix {self.key()}"),
        ]

    def _window(self) -> list[str]:
        return [
            *[f"put {self._number} {self.time()}"] * 4,
            *(f"del {self.time()}", f"fetch {self.time()}", f"fetchr {self.span()}"),
            *(f"bfetchr {self.span()}", f"fetchall {self.span()}", "all"),
            f"fetchk {self.keys_in_order()} {self.span()}",
        ]

    def _session(self) -> list[str]:
        # What ends at the same time may be found twice in Java, in a cached store in memory.
        first, last = map(int, self.span().split(" "))
        while last in self._ends:
            last += 1
        self._ends.add(last)
        span = f"{first} {last}"
        return [
            *[f"put {self._number} {span}"] * 4,
            *(f"rm {span}", f"get {span}", "fetch", "fetch"),
            *(f"find {self.span()}", f"find 0 {self.time()}"),
            # With an earlier end Java may miss, in reading backward, what only a cache has.
            f"bfind {self.time()} {self.now + 100 * self._step}",
        ]

    def _versioned(self) -> list[str]:
        return [
            *[f"put {self._number} {self.time()}"] * 4,
            *(f"putnull {self.time()}", f"del {self.time()}", "get"),
            *(f"getat {self.time()}", f"getat {self.time()}"),
        ]


def _store(chance: random.Random, kind: str, step: int) -> Store:
    store: Store = {"name": "st", "kind": kind, "impl": chance.choice(("in_memory", "rocksdb"))}
    if chance.random() < 0.35 and kind != "versioned":
        store["caching"] = True
    if chance.random() < 0.2:
        store["logging"] = chance.choice((False, {"retention.ms": "77"}))
    retention = chance.choice((2, 5, 20, 100)) * step
    if kind == "versioned":
        store = {"name": "st", "kind": kind, "history_ms": chance.choice((0, retention))}
        if chance.random() < 0.5:
            store["segment_ms"] = max(1, chance.choice((step // 3, step, step * 7)))
    elif kind in ("window", "timestamped_window"):
        store |= {"retention_ms": retention, "window_ms": chance.choice((1, step, step * 2))}
        store["duplicates"] = kind == "window" and chance.random() < 0.25
    elif kind == "session":
        store["retention_ms"] = retention
    elif chance.random() < 0.2 and kind == "kv":
        store |= {"impl": "lru", "max_entries": chance.choice((1, 2, 4))}
    return store


def commands_scenario(seed: str, index: int) -> Scenario:
    """A scenario: the same for the same arguments."""
    chance = random.Random(f"commands/{seed}/{index}")
    kinds = ("kv", "timestamped_kv", "window", "timestamped_window", "session", "versioned")
    step = chance.choice((5, 12, 50, 9_000, 70_000))
    kind = chance.choice(kinds)
    plain = kind.removeprefix("timestamped_")
    commands = _Commands(chance, step)
    topology: list[dict[str, Any]] = [
        {"id": "n1", "op": "stream", "topic": "L"},
        {"id": "n2", "op": "add_store", "store": _store(chance, kind, step)},
        {"id": "n3", "op": "process", "from": "n1", "processor": f"{plain}_cmd", "stores": ["st"]},
        {"id": "n4", "op": "to", "from": "n3", "topic": "out"},
    ]
    events: list[dict[str, Any]] = []
    for _ in range(chance.randrange(25, 70)):
        command = commands.next(plain)
        ts = commands.now if chance.random() < 0.8 else commands.time()
        key = chance.choice(commands.keys)
        events.append({"topic": "L", "key": key, "value": command, "ts": ts})
    return {
        "name": f"commands {seed}/{index}",
        "group": "commands",
        "config": {"cache_max_bytes": 10_000_000} if chance.random() < 0.7 else {},
        "topology": topology,
        "events": events,
    }
