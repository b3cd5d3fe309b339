"""Random commands to stores of all types through the Processor API.

Keys are prefixes of each other, times are far apart and out of order, ranges are open or empty;
stores have caches, duplicates, few entries, or short retention.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Scenario = dict[str, Any]
Store = dict[str, Any]

_KEYS = ("a", "aa", "a\x01", "ab", "b", "b1", "", "é", "日")


class _Commands:
    """Creates commands with mostly increasing times.

    Args:
        rng: the random source.
        step: the usual time between two commands, in ms.
    """

    def __init__(self, rng: random.Random, step: int) -> None:
        self._rng = rng
        self._step = step
        self.now = rng.choice((0, 0, step * 5))
        self.keys = rng.sample(_KEYS, rng.randrange(2, 6))
        self._number = 0
        self._ends: set[int] = set()

    def time(self) -> int:
        """A time close to the current one."""
        step = self._step
        return max(0, self.now - self._rng.choice((0, 0, 1, step, 2 * step, 5 * step, -step)))

    def span(self) -> str:
        """Two times, mostly in order."""
        first, last = sorted([self.time(), self.time()])
        if self._rng.random() < 0.1:
            last = self._rng.choice((first, first + 100 * self._step))
        return f"{first} {last}"

    def key(self) -> str:
        """A key that is valid in a command."""
        plain = [key for key in self.keys if key]
        return self._rng.choice([*plain, "-"])

    def keys_in_order(self) -> str:
        """The bounds of a range of keys, each of which may be open."""
        first, last = self.key(), self.key()
        if "-" not in (first, last) and first > last:
            first, last = last, first
        return f"{first} {last}"

    def next(self, kind: str) -> str:
        """The next command."""
        rng = self._rng
        self._number += 1
        if rng.random() < 0.75:
            self.now += rng.randrange(0, self._step)
        elif rng.random() < 0.3:
            self.now += self._step * rng.choice((3, 10, 40))
        makers: dict[str, Callable[[], list[str]]] = {
            "kv": self._key_value,
            "window": self._window,
            "session": self._session,
            "versioned": self._versioned,
        }
        return rng.choice(makers[kind]())

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
        # In Java, a cached in-memory store may return sessions with equal ends twice.
        first, last = map(int, self.span().split(" "))
        while last in self._ends:
            last += 1
        self._ends.add(last)
        span = f"{first} {last}"
        return [
            *[f"put {self._number} {span}"] * 4,
            *(f"rm {span}", f"get {span}", "fetch", "fetch"),
            *(f"find {self.span()}", f"find 0 {self.time()}"),
            # With an earlier end, Java may miss cached sessions in a backward search.
            f"bfind {self.time()} {self.now + 100 * self._step}",
        ]

    def _versioned(self) -> list[str]:
        return [
            *[f"put {self._number} {self.time()}"] * 4,
            *(f"putnull {self.time()}", f"del {self.time()}", "get"),
            *(f"getat {self.time()}", f"getat {self.time()}"),
        ]


def _store(rng: random.Random, kind: str, step: int) -> Store:
    store: Store = {"name": "st", "kind": kind, "impl": rng.choice(("in_memory", "rocksdb"))}
    if rng.random() < 0.35 and kind != "versioned":
        store["caching"] = True
    if rng.random() < 0.2:
        store["logging"] = rng.choice((False, {"retention.ms": "77"}))
    retention = rng.choice((2, 5, 20, 100)) * step
    if kind == "versioned":
        store = {"name": "st", "kind": kind, "history_ms": rng.choice((0, retention))}
        if rng.random() < 0.5:
            store["segment_ms"] = max(1, rng.choice((step // 3, step, step * 7)))
    elif kind in ("window", "timestamped_window"):
        store |= {"retention_ms": retention, "window_ms": rng.choice((1, step, step * 2))}
        store["duplicates"] = kind == "window" and rng.random() < 0.25
    elif kind == "session":
        store["retention_ms"] = retention
    elif rng.random() < 0.2 and kind == "kv":
        store |= {"impl": "lru", "max_entries": rng.choice((1, 2, 4))}
    return store


def commands_scenario(seed: str, index: int) -> Scenario:
    """Create a scenario; the same for the same arguments."""
    rng = random.Random(f"commands/{seed}/{index}")
    kinds = ("kv", "timestamped_kv", "window", "timestamped_window", "session", "versioned")
    step = rng.choice((5, 12, 50, 9_000, 70_000))
    kind = rng.choice(kinds)
    plain = kind.removeprefix("timestamped_")
    commands = _Commands(rng, step)
    topology: list[dict[str, Any]] = [
        {"id": "n1", "op": "stream", "topic": "L"},
        {"id": "n2", "op": "add_store", "store": _store(rng, kind, step)},
        {"id": "n3", "op": "process", "from": "n1", "processor": f"{plain}_cmd", "stores": ["st"]},
        {"id": "n4", "op": "to", "from": "n3", "topic": "out"},
    ]
    events: list[dict[str, Any]] = []
    for _ in range(rng.randrange(25, 70)):
        command = commands.next(plain)
        ts = commands.now if rng.random() < 0.8 else commands.time()
        key = rng.choice(commands.keys)
        events.append({"topic": "L", "key": key, "value": command, "ts": ts})
    return {
        "name": f"commands {seed}/{index}",
        "group": "commands",
        "config": {"cache_max_bytes": 10_000_000} if rng.random() < 0.7 else {},
        "topology": topology,
        "events": events,
    }
