"""Fuzz target: entries, their table, and the eviction order.

Both implementations perform the same steps. Sequence numbers are unique, as in a cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

from extension.cases.values import Trace, chosen, outcome, shown, some_key, table_order, value_of
from millstream.state.caches.cache_entries import GONE, PureCachedEntry
from millstream.state.caches.cache_implementation import CacheImplementation, cache_implementation

ATTRIBUTES = tuple(PureCachedEntry.__slots__)
_OBJECTS = ("value", "place", "headers", "stored", "raw")
_NUMBERS = ("timestamp", "offset", "size")
_SEQS = ("dirty_seq", "used_seq")


def _number(rng: random.Random) -> int:
    return rng.choice((0, 1, -1, rng.randrange(60), rng.randrange(2**40), -rng.randrange(60)))


def _object(rng: random.Random) -> Any:
    return rng.choice((None, 1, "text", b"bytes", [1], ("Number", 5), ("float", "nan"), ()))


def _set(rng: random.Random, seqs: count[int]) -> tuple[str, Any]:
    """Choose an attribute, and a value for it."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(_OBJECTS), _object(rng)
    if kind < 0.6:
        return rng.choice(_NUMBERS), rng.choice((_number(rng), "text", None, ("Faulty", None)))
    return rng.choice(_SEQS), rng.choice((next(seqs), next(seqs), 0, GONE, 2**63, None))


def generate(rng: random.Random) -> Trace:
    seqs = count(1)
    steps: Trace = []
    entries = 0

    def some(most: int = 6) -> list[int]:
        return chosen(rng, entries, most)

    def new() -> tuple[Any, ...]:
        nonlocal entries
        if rng.random() < 0.5:
            entries += 1
            stored = rng.choice((None, b"x", b"stored"))
            return ("entry", some_key(rng), stored, _number(rng), next(seqs))
        keys = [some_key(rng) for _ in range(rng.randrange(4))]
        entries += len(keys)
        numbers = [next(seqs) for _ in range(len(keys) + 1)]
        return ("new", keys, _number(rng), numbers[0])

    def flushed() -> tuple[Any, ...]:
        found = some()
        stored = [rng.choice((b"", b"xy", b"z" * 50, ("Sub", b"s"))) for _ in found]
        return ("flushed", found, stored, _number(rng))

    makers: list[Callable[[], tuple[Any, ...]]] = [
        new,
        lambda: ("put", some()),
        lambda: ("update", some()),
        lambda: (rng.choice(("get", "pop", "del", "in", "item")), some_key(rng)),
        lambda: ("contents",),
        lambda: ("change", some(2), _object(rng), _number(rng), next(seqs), _number(rng)),
        lambda: ("set", some(2), *_set(rng, seqs)),
        lambda: ("set", some(2), *_set(rng, seqs)),
        lambda: ("add", some(2)),
        lambda: ("add_many", some()),
        lambda: ("evict",),
        lambda: ("evict_unchanged", _number(rng)),
        lambda: rng.choice((("drop_removed",), ("clear_order",), ("clear",))),
        lambda: ("columns", some()),
        lambda: ("sorted", some()),
        flushed,
        lambda: ("remove", some()),
    ]
    for _ in range(rng.randrange(1, 120)):
        steps.append(rng.choice(makers)() if entries else new())
    return steps


class _Side:
    """The structures of one implementation, and the entries in the order of their creation."""

    def __init__(self, code: CacheImplementation) -> None:
        self.code = code
        self.table, self.order = code.make_table(), code.make_order()
        self.entries: list[Any] = []

    def perform(self, step: tuple[Any, ...]) -> str:
        """Perform a step; return its result or the type of its error."""
        name, *arguments = step
        result, failure = outcome(getattr(self, f"_{name}"), *arguments)
        return failure or self._shown(result)

    def state(self) -> list[str]:
        return [
            *(shown([getattr(entry, each) for each in ATTRIBUTES]) for entry in self.entries),
            f"{len(self.table)} {len(self.order)}",
        ]

    def _shown(self, value: Any) -> str:
        numbers = {id(entry): number for number, entry in enumerate(self.entries)}
        if id(value) in numbers:
            return f"entry {numbers[id(value)]}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self._shown, value))}]"
        return shown(value)

    def _at(self, numbers: list[int]) -> list[Any]:
        return [self.entries[number] for number in numbers if number < len(self.entries)]

    # --- entries ---------------------------------------------------------------------------------

    def _entry(self, key: Any, stored: bytes | None, size: int, seq: int) -> None:
        self.entries.append(self.code.make_entry(value_of(key), stored, size, seq))

    def _new(self, keys: list[Any], extra: int, seq: int) -> None:
        self.entries += self.code.new_entries([value_of(key) for key in keys], extra, seq)

    def _change(
        self, numbers: list[int], value: Any, time: int, seq: int, offset: int
    ) -> list[Any]:
        changed = value_of(value)
        return [entry.change(changed, time, seq, None, offset, ()) for entry in self._at(numbers)]

    def _set(self, numbers: list[int], name: str, value: Any) -> None:
        """Numbers are checked by C only."""
        number = name not in _OBJECTS
        for entry in self._at(numbers):
            if number and not (isinstance(value, int) and -(2**63) <= value < 2**63):
                if self.code.is_compiled:
                    _, failure = outcome(setattr, entry, name, value_of(value))
                    assert failure, f"{name} was set to {value!r}"
            else:
                setattr(entry, name, value_of(value))

    def _columns(self, numbers: list[int]) -> Any:
        return self.code.columns_of(self._at(numbers))

    def _sorted(self, numbers: list[int]) -> list[int]:
        return [entry.dirty_seq for entry in self.code.sorted_by_change(self._at(numbers))]

    def _flushed(self, numbers: list[int], stored: list[Any], overhead: int) -> int:
        entries = self._at(numbers)
        values = [value_of(value) for value in stored[: len(entries)]]
        return self.code.mark_flushed(entries, values, overhead)

    # --- the table -------------------------------------------------------------------------------

    def _put(self, numbers: list[int]) -> None:
        for entry in self._at(numbers):
            self.table[entry.key_bytes] = entry

    def _update(self, numbers: list[int]) -> None:
        self.table.update((entry.key_bytes, entry) for entry in self._at(numbers))

    def _get(self, key: Any) -> Any:
        return self.table.get(value_of(key))

    def _pop(self, key: Any) -> Any:
        return self.table.pop(value_of(key), "none")

    def _del(self, key: Any) -> None:
        del self.table[value_of(key)]

    def _item(self, key: Any) -> Any:
        return self.table[value_of(key)]

    def _in(self, key: Any) -> bool:
        return value_of(key) in self.table

    def _contents(self) -> Any:
        """All keys and entries, also through the table's own lookups."""
        pairs = sorted(self.table.items(), key=lambda pair: table_order(pair[0]))
        assert len(pairs) == len(self.table) == len(list(self.table.values()))
        assert all(self.table[key] is entry for key, entry in pairs)
        assert sorted(map(bytes, self.table)) == sorted(map(bytes, self.table.keys()))
        return [entry for _, entry in pairs]

    def _clear(self) -> None:
        self.table.clear()

    def _remove(self, numbers: list[int]) -> Any:
        return self.code.remove_entries(self.table, self._at(numbers))

    # --- the order -------------------------------------------------------------------------------

    def _add(self, numbers: list[int]) -> None:
        for entry in self._at(numbers):
            self.order.add(entry)

    def _add_many(self, numbers: list[int]) -> None:
        self.order.add_many(iter(self._at(numbers)))

    def _evict(self) -> Any:
        return self.order.pop()

    def _evict_unchanged(self, size: int) -> Any:
        return self.order.pop_unchanged(size)

    def _drop_removed(self) -> None:
        self.order.drop_removed()

    def _clear_order(self) -> None:
        self.order.clear()


def run(trace: Trace) -> list[str]:
    sides = [_Side(cache_implementation(speedups)) for speedups in (False, None)]
    for step in [*trace, ("contents",)]:
        expected, found = (side.perform(step) for side in sides)
        if expected != found:
            return [f"{step}: {expected}, {found}"]
        before, after = (side.state() for side in sides)
        if before != after:
            pairs = zip(before, after, strict=True)
            return [f"state after {step}: {one}, {other}" for one, other in pairs if one != other]
    return []
