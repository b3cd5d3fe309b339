"""Fuzz target: Python code at every place where the C code can run it.

Only the extension is used. Keys, numbers and values call a hook when they are hashed, compared,
converted, described or deleted, and when columns are iterated. The hook performs the next reaction
of the trace, which raises an error, or changes the structures, lists and columns of the running
call. The process must survive this, no call may raise a SystemError, structures must stay
consistent, and all objects must be released at the end.
"""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final

from extension.cases.hooks import (
    HookedBytes,
    HookedNumber,
    HookedObject,
    HookedType,
    World,
    hook,
    hooked,
    run_world,
)
from extension.cases.values import MAX_LONG, Trace, library
from millstream.state.windows.window_keys import SESSIONS, session_key

_NUMBERS: Final = (0, 1, -1, 5, 50, MAX_LONG, -MAX_LONG - 1, 2**40)
_OBJECTS: Final = ("value", "place", "headers", "stored", "raw", "key_bytes")
_FIELDS: Final = ("timestamp", "dirty_seq", "used_seq", "queued_seq", "offset", "size")
_LISTS: Final = ("entries", "stored", "keys", "columns", "dirty")


class _Structures(World):
    """The structures that all actions share; also the cache of the loops."""

    def __init__(self) -> None:
        super().__init__()
        self.m = library()
        self.entries: Any = self.m.EntryTable()
        self.dirty: list[Any] = []
        self.seq: Any = 0
        self.order = self.m.EvictionOrder()
        self.index = self.m.KeyIndex(SESSIONS, _stored_keys)
        self.resting: dict[bytes, Any] = {}
        #: Lists that are arguments of calls and are changed meanwhile.
        self.lists: dict[str, list[Any]] = {name: [] for name in _LISTS}
        self.lists["dirty"] = self.dirty

    # --- the cache's interface for the loops -----------------------------------------------------

    def load_many(self, keys: list[bytes]) -> None:
        hook()
        for entry in self.m.new_entries(keys, 1, self.seq + 1):
            self.entries[entry.key_bytes] = entry
        self.seq += len(keys)
        hook()

    def on_added(self, entries: int, size_bytes: int) -> None:
        hook()

    # --- actions ---------------------------------------------------------------------------------

    def chosen(self, number: int) -> Any:
        """An entry of the table, or a new one."""
        entries = self.entries.values()
        if not entries:
            return self.m.CachedEntry(made_key(number), None, 1, 1)
        return entries[number % len(entries)]

    def _put(self, number: int) -> None:
        key = made_key(number)
        self.entries[key] = self.m.CachedEntry(key, made_object(number), 1, 1)

    def _update(self, numbers: list[int]) -> None:
        self.entries.update((entry.key_bytes, entry) for entry in hooked(map(self.chosen, numbers)))

    def _pop(self, number: int) -> None:
        self.entries.pop(made_key(number), None)

    def _look_up(self, number: int) -> None:
        key = made_key(number)
        assert (self.entries.get(key) is None) in (True, False)
        assert (key in self.entries) in (True, False)
        self.entries.items()
        list(self.entries)

    def _clear(self) -> None:
        self.entries.clear()

    def _set(self, number: int, name: str, value: int) -> None:
        setattr(self.chosen(number), name, made_object(value) if name in _OBJECTS else value)

    def _set_key(self, number: int, key: int) -> None:
        self.chosen(number).key_bytes = made_key(key)

    def _delete(self, number: int, name: str) -> None:
        delattr(self.chosen(number), name)

    def _change(self, number: int, value: int) -> None:
        entry = self.chosen(number)
        time = HookedNumber(value % 100)
        entry.change(made_object(value), time, HookedNumber(1), None, time, made_object(value))

    def _add(self, number: int) -> None:
        self.order.add(self.chosen(number))

    def _add_many(self, numbers: list[int]) -> None:
        self.order.add_many(hooked(map(self.chosen, numbers)))

    def _evict(self, size: int) -> None:
        self.order.pop_unchanged(HookedNumber(size))

    def _evict_one(self) -> None:
        self.order.pop()

    def _drop_removed(self) -> None:
        self.order.drop_removed()

    def _clear_order(self) -> None:
        self.order.clear()

    def _extend(self, name: str, numbers: list[int]) -> None:
        """Add to a list that may be the argument of a running call."""
        made: Callable[[int], Any] = {
            "entries": self.chosen,
            "dirty": self.chosen,
            "keys": made_key,
            "stored": lambda number: made_key(number) if number % 5 else "text",
        }.get(name, made_object)
        self.lists[name] += [made(number) for number in numbers]

    def _shorten(self, name: str, count: int) -> None:
        del self.lists[name][count:]

    def _odd(self, name: str) -> None:
        self.lists[name].append(HookedType("Odd", (), {})())

    def _remove(self) -> None:
        self.m.remove_entries(self.entries, self.lists["entries"])

    def _flushed(self, size: int) -> None:
        entries, stored = self.lists["entries"], self.lists["stored"]
        del stored[len(entries) :]
        stored += [b"x"] * (len(entries) - len(stored))
        self.m.mark_flushed(entries, stored, size)

    def _columns(self) -> None:
        self.m.columns_of(self.lists["entries"])

    def _sorted(self, name: str) -> None:
        self.m.sorted_by_change(self.lists[name])

    def _new(self, seq: int) -> None:
        self.lists["entries"] += self.m.new_entries(self.lists["keys"], seq, seq)

    def _index_add(self, number: int) -> None:
        self.index.add(made_key(number))

    def _index_remove(self, number: int) -> None:
        self.index.remove(made_key(number))

    def _index_read(self, number: int) -> None:
        key = made_key(number)[:-16]
        self.index.of_key(HookedBytes(key) if number % 2 else key, HookedNumber(0), number)

    def _new_index(self) -> None:
        self.index = self.m.KeyIndex(SESSIONS, _stored_keys)

    def _rest(self, number: int) -> None:
        self.resting.clear() if number % 3 else self.resting.update(x=self.chosen(number))  # type: ignore[call-overload]

    def _seq(self, number: int) -> None:
        self.seq = HookedNumber(number)

    def _times(self, numbers: list[int]) -> None:
        values = hooked(made_key(number) if number % 5 else None for number in numbers)
        self.m.with_times(values, hooked(HookedNumber(number) for number in numbers))

    def _hash(self, number: int) -> None:
        self.m.murmur3_128(made_key(number))

    def _collect(self, threshold: int) -> None:
        """Collect soon, at any allocation, or now."""
        gc.set_threshold(threshold, 1, 1) if threshold else gc.collect()

    def _chain(self, number: int) -> None:
        """Drop nested structures, which are freed without recursion."""
        last: Any = HookedObject()
        for depth in range(200):
            last = self.m.CachedEntry(b"k", last, 1, 1)
            if depth % 3 == number % 3:
                table, order = self.m.EntryTable(), self.m.EvictionOrder()
                table[b"k"] = last
                order.add(last)
                last = (table, order)

    def _cycle(self) -> None:
        """Leave an object to the garbage collector, which will call its finalizer."""
        made = HookedObject()
        made.me = made

    # --- loops -----------------------------------------------------------------------------------

    def _updates(self, numbers: list[int], options: int) -> tuple[Any, ...]:
        """Create columns, some of which are shared lists or iterators."""
        keys = [made_key(number)[:-16] if options & 1 else made_key(number) for number in numbers]
        shared = self.lists["columns"]
        shared[:] = [made_object(number) for number in numbers]
        times = [HookedNumber(number) if number % 4 else number for number in numbers]
        return (
            keys,
            None,
            shared if options & 2 else hooked(keys),
            shared,
            hooked(times) if options & 4 else times,
            hooked(numbers) if options & 8 else shared,
            range(len(numbers)),
            shared if options & 16 else None,
            array("q", [-1]),
        )

    def _fold(self, numbers: list[int], options: int) -> None:
        updates = self._updates(numbers, options & ~1)
        own = _user if options & 32 else None
        self.m.fold_entries(self, updates, _user, _user, own, _failed)

    def _count(self, numbers: list[int], options: int) -> None:
        self.m.count_entries(self, self._updates(numbers, options & ~1))

    def _sessions(self, numbers: list[int], options: int) -> None:
        times = (10, 10, -1, 60 if options & 32 else -1, 5)
        updates = self._updates(numbers, options | 1)
        parts = (self, self.index, self.order, self.resting)
        functions = (_user, _user, _user, _failed, lambda *_: _user() is None)
        self.m.fold_sessions(*parts, updates, times, *functions)

    # --- the end ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that the structures are consistent and still work."""
        found = self.entries.values()
        assert len(found) == len(self.entries)
        # An entry whose key was replaced or deleted in place cannot be found under it.
        keys = [getattr(entry, "key_bytes", None) for entry in found]
        known = [key for key in keys if isinstance(key, bytes)]
        assert all(entry is None or entry in found for entry in map(self.entries.get, known))
        length = len(self.order)
        assert len(self.order.pop_unchanged(MAX_LONG)) <= length
        key = session_key(b"k", 1, 2)
        index = self.m.KeyIndex(SESSIONS, lambda: [key])
        assert index.of_key(b"k", 0, 9) == [key]
        self.entries[key] = self.m.CachedEntry(key, None, 1, 1)
        assert self.entries[key].key_bytes == key


def made_key(number: int) -> bytes:
    """A stored key of a session."""
    key = session_key(b"%d" % (number % 7), number % 50, number % 50 + number % 3)
    return HookedBytes(key) if number % 4 == 1 else key


def made_object(number: int) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        HookedObject,
        lambda: HookedNumber(number),
        lambda: number,
        lambda: None,
        lambda: [HookedObject()],
    )
    return kinds[number % len(kinds)]()


def _stored_keys() -> Iterable[bytes]:
    assert isinstance(World.current, _Structures)
    return hooked(World.current.entries.keys())


def _user(*arguments: Any) -> Any:
    """A user function: initializer, aggregator, merger or copy."""
    hook()
    return arguments[-1] if len(arguments) % 2 else HookedNumber(len(arguments))


def _failed(index: int, error: Exception) -> None:
    hook()


def generate(rng: random.Random) -> Trace:
    def number() -> int:
        return rng.randrange(1_000)

    def some() -> list[int]:
        return [number() for _ in range(rng.randrange(rng.choice((3, 12, 60))))]

    makers: list[Callable[[], tuple[Any, ...]]] = [
        lambda: ("put", number()),
        lambda: ("put", number()),
        lambda: ("update", some()),
        lambda: ("pop", number()),
        lambda: ("look_up", number()),
        lambda: rng.choice((("clear",), ("clear_order",), ("drop_removed",), ("evict_one",))),
        lambda: ("set", number(), rng.choice(_OBJECTS[:-1]), number()),
        lambda: ("set", number(), rng.choice(_FIELDS), rng.choice(_NUMBERS)),
        lambda: ("set_key", number(), number()),
        lambda: ("delete", number(), rng.choice(_OBJECTS)),
        lambda: ("change", number(), number()),
        lambda: ("add", number()),
        lambda: ("add_many", some()),
        lambda: ("evict", rng.choice(_NUMBERS)),
        lambda: ("extend", rng.choice(_LISTS), some()),
        lambda: ("extend", "entries", some()),
        lambda: ("shorten", rng.choice(_LISTS), rng.randrange(3)),
        lambda: ("odd", rng.choice(_LISTS)),
        lambda: rng.choice((("remove",), ("columns",), ("sorted", "entries"), ("sorted", "dirty"))),
        lambda: ("flushed", rng.choice(_NUMBERS)),
        lambda: ("new", rng.choice(_NUMBERS)),
        lambda: ("index_add", number()),
        lambda: ("index_remove", number()),
        lambda: ("index_read", number()),
        lambda: ("new_index",) if rng.random() < 0.2 else ("rest", number()),
        lambda: ("seq", rng.choice(_NUMBERS)),
        lambda: ("times", some()),
        lambda: ("hash", number()),
        lambda: ("collect", rng.choice((1, 5, 50))) if rng.random() < 0.9 else ("collect", 0),
        lambda: ("cycle",) if rng.random() < 0.7 else ("chain", number()),
        lambda: ("raise", number()),
        lambda: (rng.choice(("fold", "fold", "count")), some(), rng.randrange(64)),
        lambda: ("sessions", some(), rng.randrange(64)),
    ]

    def action() -> tuple[Any, ...]:
        return rng.choice(makers)()

    steps: Trace = []
    for _ in range(rng.randrange(1, 25)):
        kind = rng.random()
        step = makers[-1]() if kind < 0.15 else makers[-2]() if kind < 0.3 else action()
        steps.append((*step, [action() for _ in range(rng.choice((0, 2, 10, 40)))]))
    return steps


def run(trace: Trace) -> list[str]:
    return run_world(_Structures, trace)
