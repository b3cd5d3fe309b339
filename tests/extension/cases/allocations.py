"""Fuzz target: calls in which an allocation of memory fails.

`_testcapi` of CPython's own tests lets any allocation of the interpreter fail. A call either
returns its usual result or raises a MemoryError; its arguments stay usable.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from extension.cases.values import Trace, library, shown
from millstream.state.windows.window_keys import SESSIONS, session_key

#: Whether the interpreter has the module; some distributions leave it out.
IS_AVAILABLE: Final = find_spec("_testcapi") is not None

_MAX_ALLOCATION: Final = 120


class _Cache:
    def __init__(self, m: Any) -> None:
        self.entries, self.dirty, self.seq = m.EntryTable(), list[Any](), 0
        self._new_entries = m.new_entries

    def load_many(self, keys: list[bytes]) -> None:
        new = self._new_entries(keys, 1, self.seq + 1)
        self.seq += len(keys)
        self.entries.update(zip(keys, new, strict=True))

    def on_added(self, entries: int, size_bytes: int) -> None: ...


class _Objects:
    """New arguments for one call."""

    def __init__(self) -> None:
        self.m = library()
        self.keys = [session_key(b"%d" % (n // 2), n, n + 5) for n in range(80)]
        self.entries = self.m.new_entries(self.keys, 1, 1_000)
        self.cache = _Cache(self.m)
        self.cache.entries.update(zip(self.keys, self.entries, strict=True))
        self.order = self.m.EvictionOrder()
        self.order.add_many(self.entries)
        self.index = self.m.KeyIndex(SESSIONS, list)
        for key in self.keys[:40]:
            self.index.of_key(key[:-16], 0, 1)
            self.index.add(key)

    def updates(self, keys: list[bytes]) -> tuple[Any, ...]:
        count = len(keys)
        times = [10**12 + 3 * n for n in range(count)]
        columns = (keys, list(range(2**40, 2**40 + count)), times, [None] * count, range(count))
        return (keys, None, *columns, [(("h", b"x"),)] * count, array("q", [-1]))

    def fold(self) -> Any:
        keys = [b"new", b"other", *self.keys[:3], b"new"]
        # The functions are written in C, so that the interpreter allocates little itself.
        failed = "".format
        return self.m.fold_entries(self.cache, self.updates(keys), int, slice, None, failed)

    def count(self) -> Any:
        return self.m.count_entries(self.cache, self.updates([b"new", *self.keys[:3], b"new"]))

    def sessions(self) -> Any:
        times = (10, 10, -1, -1, 5)
        updates = self.updates([b"a", b"b", b"a", b"c", b"a"])
        resting: dict[bytes, Any] = {}
        parts = (self.cache, self.index, self.order, resting)
        functions = (int, slice, slice, "".format, "".format)
        return self.m.fold_sessions(*parts, updates, times, *functions)

    def clear_half(self) -> Any:
        self.m.remove_entries(self.cache.entries, self.entries[::2])
        return self.order.drop_removed()


_CALLS: Final[dict[str, Callable[[_Objects], Any]]] = {
    "with_times": lambda own: own.m.with_times(own.keys[:5], range(10**12, 10**12 + 5)),
    "murmur3_128": lambda own: own.m.murmur3_128(own.keys[0]),
    "entry": lambda own: own.m.CachedEntry(b"k", None, 2**40, 2**40).size,
    "new_entries": lambda own: len(own.m.new_entries(own.keys, 1, 1)),
    "columns_of": lambda own: own.m.columns_of(own.entries[:3]),
    "sorted_by_change": lambda own: own.m.sorted_by_change(own.entries) == own.entries,
    "mark_flushed": lambda own: own.m.mark_flushed(own.entries, own.keys, 2**40),
    "remove_entries": lambda own: own.m.remove_entries(own.cache.entries, own.entries)[0],
    "remove others": lambda own: len(own.m.remove_entries(own.m.EntryTable(), own.entries)[1]),
    "table": lambda own: own.m.EntryTable().update(zip(own.keys, own.entries, strict=True)),
    "items": lambda own: len(own.cache.entries.items()),
    "keys": lambda own: sorted(own.cache.entries.keys()),
    "iterate": lambda own: sorted(own.cache.entries),
    "order": lambda own: own.m.EvictionOrder().add_many(own.entries),
    "pop": lambda own: own.order.pop().key_bytes,
    "pop_unchanged": lambda own: len(own.order.pop_unchanged(300)),
    "drop_removed": _Objects.clear_half,
    "fill": lambda own: own.m.KeyIndex(SESSIONS, own.keys.copy).of_key(b"3", 0, 50),
    "of_key": lambda own: own.index.of_key(b"3", 0, 50),
    "add": lambda own: own.index.add(own.keys[50]),
    "remove": lambda own: own.index.remove(own.keys[5]),
    "fold": _Objects.fold,
    "count": _Objects.count,
    "sessions": _Objects.sessions,
}


def generate(rng: random.Random) -> Trace:
    return [
        (rng.choice(tuple(_CALLS)), rng.randrange(rng.choice((5, 20, _MAX_ALLOCATION))))
        for _ in range(rng.randrange(1, 20))
    ]


def run(trace: Trace) -> list[str]:
    testcapi = import_module("_testcapi")
    faults: list[str] = []
    for name, number in trace:
        expected, own, call = shown(_CALLS[name](_Objects())), _Objects(), _CALLS[name]
        failed = False
        testcapi.set_nomemory(number, number + 1)
        try:
            result = call(own)
        except MemoryError:
            failed = True
        finally:
            testcapi.remove_mem_hooks()
        if not failed and shown(result) != expected:
            faults.append(f"{name}, allocation {number}: {shown(result)} instead of {expected}")
        faults += [f"{name}, allocation {number}: {each}" for each in _damage(own)]
    return faults


def _damage(own: _Objects) -> list[str]:
    """The structures that a failed call has damaged."""
    table, faults = own.cache.entries, list[str]()
    if any(table[key].key_bytes != key for key in table):
        faults.append("an entry is under a wrong key")
    if len(table) != len(table.values()):
        faults.append(
            f"the table has {len(table.values())} entries, but its length is {len(table)}"
        )
    if any(
        own.index.of_key(b"%d" % n, 0, 99) != sorted(own.index.of_key(b"%d" % n, 0, 99))
        for n in range(40)
    ):
        faults.append("the index is not sorted")
    left = len(own.order)
    if len(own.order.pop_unchanged(10**9)) > left:
        faults.append("the order has more entries than its length")
    return faults
