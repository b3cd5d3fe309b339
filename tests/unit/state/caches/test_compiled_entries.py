"""The C implementation of record cache parts behaves like the Python one and does not leak.

Both implementations run side by side.
"""

from __future__ import annotations

import gc
import sys
import weakref
from array import array
from collections.abc import Callable, MutableMapping
from importlib import import_module
from itertools import repeat
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strictness import needed_speedups

from millstream.operators.aggregates.cached_loops import (
    AggregateUpdates,
    pure_count_entries,
    pure_fold_entries,
)
from millstream.record import TopicPartition
from millstream.state.caches.cache_entries import (
    GONE,
    PureCachedEntry,
    PureEvictionOrder,
    pure_columns_of,
    pure_mark_flushed,
    pure_new_entries,
    pure_remove_entries,
    pure_sorted_by_change,
)
from millstream.state.windows.key_index import PureKeyIndex
from millstream.state.windows.window_keys import (
    SESSIONS,
    WINDOWS,
    KeyLayout,
    session_key,
    window_key,
)

PLACE: Final = TopicPartition("in", 0)
#: Few keys, so that they repeat, of all lengths.
KEYS: Final = st.sampled_from([b"", b"a", b"b", b"ab", b"a" * 100, *(b"%d" % n for n in range(20))])
NUMBERS: Final = st.integers(0, 50)
ATTRIBUTES: Final = tuple(PureCachedEntry.__slots__)


@pytest.fixture(scope="module")
def native() -> ModuleType:
    needed_speedups()
    return import_module("millstream.native.library")


def seen(entry: Any) -> dict[str, Any]:
    """All attributes of an entry."""
    return {name: getattr(entry, name) for name in ATTRIBUTES}


def changed(kind: Callable[..., Any], key: bytes, seq: int, value: Any) -> Any:
    """An entry with a change, of either implementation."""
    entry = kind(key, b"stored", len(key) + 7, seq // 2)
    entry.value, entry.dirty_seq, entry.timestamp, entry.offset = value, seq, seq * 3, seq * 5
    entry.place, entry.headers = PLACE, (("name", b"x"),) if seq % 2 else ()
    return entry


class _Cache:
    """The part of a record cache that the loops use. Every third key is stored, with a number."""

    def __init__(self, kind: Callable[..., Any], entries: Any, make: Callable[..., Any]) -> None:
        self.entries: MutableMapping[bytes, Any] = entries
        self.dirty: list[Any] = []
        self.seq = 0
        self._kind, self._make = kind, make

    def load(self, key: bytes) -> Any:
        self.load_many([key])
        return self.entries[key]

    def load_many(self, keys: list[bytes]) -> None:
        for key, entry in zip(keys, self._make(keys, 100, self.seq + 1), strict=True):
            if len(key) % 3 == 2:
                entry.value, entry.timestamp = 1_000, 20
            self.entries[key] = entry
        self.seq += len(keys)

    def seen(self) -> tuple[Any, ...]:
        """The changed entries in order. Sequence numbers are left out: the C implementation loads
        more entries at once, also ones that do not change."""
        entries = [
            {name: value for name, value in seen(entry).items() if not name.endswith("_seq")}
            for entry in sorted(self.dirty, key=lambda each: each.dirty_seq)
        ]
        assert len({id(entry) for entry in self.dirty}) == len(self.dirty)
        assert all(self.entries[entry.key_bytes] is entry for entry in self.dirty)
        assert self.seq >= max((entry.dirty_seq for entry in self.dirty), default=0)
        return tuple(entries)


def both_caches(native: ModuleType) -> tuple[_Cache, _Cache]:
    return (
        _Cache(PureCachedEntry, {}, pure_new_entries),
        _Cache(native.CachedEntry, native.EntryTable(), native.new_entries),
    )


# ---- entries


@given(key=KEYS, stored=st.none() | st.binary(max_size=5), size=NUMBERS, used_seq=NUMBERS)
def test_new_entries_are_the_same(
    native: ModuleType, key: bytes, stored: bytes | None, size: int, used_seq: int
) -> None:
    arguments = (key, stored, size, used_seq)
    assert seen(native.CachedEntry(*arguments)) == seen(PureCachedEntry(*arguments))
    many = [seen(entry) for entry in native.new_entries([key, b"x"], size, used_seq)]
    assert many == [seen(entry) for entry in pure_new_entries([key, b"x"], size, used_seq)]


@given(changes=st.lists(st.tuples(KEYS, st.integers(1, 10**12), NUMBERS), max_size=20))
def test_columns_order_and_settling_are_the_same(
    native: ModuleType, changes: list[tuple[bytes, int, int]]
) -> None:
    pure = [changed(PureCachedEntry, *each) for each in changes]
    ours = [changed(native.CachedEntry, *each) for each in changes]
    assert native.columns_of(ours) == pure_columns_of(pure)
    # Entries with equal sequence numbers, which a cache does not have, may come in any order.
    sorted_seqs = [entry.dirty_seq for entry in native.sorted_by_change(ours)]
    assert sorted_seqs == [entry.dirty_seq for entry in pure_sorted_by_change(pure)]
    stored = [b"v" * index for index in range(len(changes))]
    assert native.mark_flushed(ours, stored, 9) == pure_mark_flushed(pure, stored, 9)
    assert list(map(seen, ours)) == list(map(seen, pure))


def test_non_entries_are_rejected(native: ModuleType) -> None:
    entry, cache = native.CachedEntry(b"a", None, 1, 1), both_caches(native)[0]
    table, order = native.EntryTable(), native.EvictionOrder()
    updates = AggregateUpdates(
        [b"a"], None, ["a"], [1], [1], repeat(PLACE), [0], None, array("q", [-1])
    )
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (TypeError, lambda: native.CachedEntry("text", None, 1, 1)),
        (TypeError, lambda: setattr(entry, "size", "text")),
        (TypeError, lambda: native.columns_of([PureCachedEntry(b"a", None, 1, 1)])),
        (TypeError, lambda: native.columns_of((entry,))),
        (TypeError, lambda: native.sorted_by_change([None])),
        (TypeError, lambda: native.new_entries(["text"], 1, 1)),
        (TypeError, lambda: native.mark_flushed([entry], ["text"], 1)),
        (ValueError, lambda: native.mark_flushed([entry], [], 1)),
        (TypeError, lambda: table.__setitem__("text", entry)),
        (TypeError, lambda: table.__setitem__(b"a", None)),
        (ValueError, lambda: table.__setitem__(b"b", entry)),
        (TypeError, lambda: table.update([(b"a",)])),
        (KeyError, lambda: table[b"a"]),
        (KeyError, lambda: table.__delitem__(b"a")),
        (KeyError, lambda: table.pop(b"a")),
        (TypeError, lambda: table.get()),
        (TypeError, lambda: order.add(None)),
        (TypeError, lambda: native.remove_entries({}, [entry])),
        (TypeError, lambda: native.remove_entries(table, [entry, None])),
        (TypeError, lambda: order.add_many([entry, None])),
        (TypeError, lambda: native.count_entries(cache, updates)),
        (AttributeError, lambda: native.count_entries(None, updates)),
        (TypeError, lambda: native.count_entries(both_caches(native)[1], updates[:5])),
    ]
    for error, call in calls:
        with pytest.raises(error):
            call()
    del entry.value
    assert native.columns_of([entry])[1] == [None]


# ---- the table


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "get", "pop", "delete", "update", "clear"]), KEYS),
        max_size=300,
    )
)
def test_the_table_behaves_like_a_dict(native: ModuleType, steps: list[tuple[str, bytes]]) -> None:
    table, expected = native.EntryTable(), dict[bytes, Any]()
    for step, key in steps:
        entry = native.CachedEntry(key, None, 1, 1)
        if step == "put":
            table[key] = expected[key] = entry
        elif step == "update":
            pairs = [(key, entry), (b"more", native.CachedEntry(b"more", None, 1, 1))]
            table.update(iter(pairs))
            expected.update(pairs)
        elif step == "pop":
            assert table.pop(key, 7) is expected.pop(key, 7)
        elif step == "delete" and key in expected:
            del table[key], expected[key]
        elif step == "clear" and len(expected) > 15:
            table.clear()
            expected.clear()
        assert table.get(key) is expected.get(key)
        assert (key in table, len(table)) == (key in expected, len(expected))
    assert sorted(table) == sorted(table.keys()) == sorted(expected)
    assert dict(table.items()) == expected
    assert sorted(map(id, table.values())) == sorted(map(id, expected.values()))
    assert [table[key] is expected[key] for key in expected] == [True] * len(expected)


def test_a_table_finds_the_remaining_keys_after_growing_and_shrinking(native: ModuleType) -> None:
    """Thousands of keys, removed in another order than they were added."""
    table, keys = native.EntryTable(), [b"key-%d" % number for number in range(5_000)]
    for key in keys:
        table[key] = native.CachedEntry(key, None, 1, 1)
    gone = sorted(keys, key=lambda key: hash(key) % 1_009)[:4_000]
    for key in gone:
        assert table.pop(key).key_bytes == key
    assert sorted(table) == sorted(set(keys) - set(gone))
    assert all(table[key].key_bytes == key for key in set(keys) - set(gone))


@given(keys=st.lists(KEYS, unique=True, max_size=30), stay=st.sets(KEYS))
def test_entries_are_removed_alike(native: ModuleType, keys: list[bytes], stay: set[bytes]) -> None:
    """Both return the entries that were not in the table."""
    results: list[Any] = []
    sides: list[tuple[Any, Any, Any]] = [
        (PureCachedEntry, {}, pure_remove_entries),
        (native.CachedEntry, native.EntryTable(), native.remove_entries),
    ]
    for kind, table, remove in sides:
        entries = [kind(key, None, len(key) + 3, 1) for key in keys]
        for entry in entries:
            if len(entry.key_bytes) % 5:
                table[entry.key_bytes] = entry
        gone = [entry for entry in entries if entry.key_bytes not in stay]
        size_bytes, others = remove(table, gone)
        states = [entry.used_seq for entry in entries]
        results.append((size_bytes, [entry.key_bytes for entry in others], states, sorted(table)))
    assert results[0] == results[1]


# ---- the order


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "many", "use", "change", "flush", "go", "pop", "some"]),
            NUMBERS,
        ),
        max_size=100,
    )
)
def test_entries_are_evicted_in_the_same_order(
    native: ModuleType, steps: list[tuple[str, int]]
) -> None:
    orders = PureEvictionOrder(), native.EvictionOrder()
    entries: list[tuple[Any, Any]] = []
    for seq, (step, number) in enumerate(steps, 1):
        made = [(b"%d" % (seq * 10 + extra), None, number, seq * 10 + extra) for extra in range(3)]
        pairs = [(PureCachedEntry(*each), native.CachedEntry(*each)) for each in made]
        chosen = entries[number % len(entries)] if entries else None
        if step == "add":
            entries.append(pairs[0])
            for order, entry in zip(orders, pairs[0], strict=True):
                order.add(entry)
        elif step == "many":
            entries += pairs
            for order, new in zip(orders, zip(*pairs, strict=True), strict=True):
                order.add_many(new)
        elif step in ("use", "change", "go", "flush") and chosen is not None:
            for entry in chosen:
                if step == "change" and entry.used_seq != GONE:
                    entry.dirty_seq = seq * 10
                elif step == "flush" and entry.dirty_seq:
                    entry.used_seq, entry.dirty_seq = max(entry.used_seq, entry.dirty_seq), 0
                elif step in ("use", "go") and entry.used_seq != GONE:
                    entry.used_seq = GONE if step == "go" else seq * 10
        elif step == "pop":
            popped = [order.pop() for order in orders]
            keys = [None if entry is None else entry.key_bytes for entry in popped]
            assert keys[0] == keys[1]
        elif step == "some":
            some = [[entry.key_bytes for entry in order.pop_unchanged(number)] for order in orders]
            assert some[0] == some[1]
        for order in orders:
            if number == 0:
                order.drop_removed()
        assert len(orders[0]) == len(orders[1])
    orders[1].clear()
    assert len(orders[1]) == 0
    assert orders[1].pop() is None


# ---- the index


@pytest.mark.parametrize("layout", [WINDOWS, SESSIONS])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["note", "note", "unnote", "read"]), KEYS, NUMBERS, NUMBERS),
        max_size=100,
    )
)
def test_windows_of_a_key_are_found_alike(
    native: ModuleType, layout: KeyLayout, steps: list[tuple[str, bytes, int, int]]
) -> None:
    stored: set[bytes] = set()
    indexes = [kind(layout, lambda: iter(stored)) for kind in (PureKeyIndex, native.KeyIndex)]
    for step, key, time, other in steps:
        one = window_key(key, time) if layout is WINDOWS else session_key(key, other, time)
        if step == "read":
            found = [index.of_key(key, time, other) for index in indexes]
            assert found[0] == found[1]
        elif step == "note" and one not in stored:
            stored.add(one)
            for index in indexes:
                index.add(one)
        elif step == "unnote" and one in stored:
            stored.remove(one)
            for index in indexes:
                index.remove(one)
        assert indexes[0].needs_fill is indexes[1].needs_fill
    for index in indexes:
        # Times beyond the first and last windows return all windows.
        by_key = {key: index.of_key(key, -(2**70), 2**63) for key in map(layout.key_of, stored)}
        assert by_key == {
            key: sorted(each for each in stored if layout.key_of(each) == key) for key in by_key
        }


@pytest.mark.parametrize("kind", ["python", "c"])
def test_an_index_can_change_while_it_is_filled(native: ModuleType, kind: str) -> None:
    """New windows are included; reading it meanwhile raises an error."""
    make = PureKeyIndex if kind == "python" else native.KeyIndex
    stored = [window_key(b"k", 1)]

    def adding() -> list[bytes]:
        found = list(stored)
        if len(stored) < 3:
            stored.append(window_key(b"k", 1 + len(stored)))
            index.add(stored[-1])
        return found

    index = make(WINDOWS, adding)
    assert index.of_key(b"k", 0, 99) == stored
    assert len(stored) == 3
    reads = True

    def reading() -> list[bytes]:
        if reads:
            index.of_key(b"k", 0, 99)
        return stored

    index = make(WINDOWS, reading)
    with pytest.raises(RuntimeError, match="index was read while it"):
        index.of_key(b"k", 0, 99)
    assert index.needs_fill
    reads = False
    assert index.of_key(b"k", 0, 99) == stored


@pytest.mark.parametrize("kind", ["python", "c"])
def test_times_before_and_after_all_windows(native: ModuleType, kind: str) -> None:
    """Windows do not start before time 0 or end beyond 63 bits."""
    make = PureKeyIndex if kind == "python" else native.KeyIndex
    times = (0, 10, 20, 2**63 - 1)
    for layout in (WINDOWS, SESSIONS):

        def key_at(key: bytes, time: int, layout: KeyLayout = layout) -> bytes:
            return window_key(key, time) if layout is WINDOWS else session_key(key, time, time)

        stored = [key_at(b"k", time) for time in times]
        index = make(layout, stored.copy)
        for first, last in ((-5, -1), (-100, -100), (-(2**70), -(2**69)), (2**64, 2**70)):
            assert index.of_key(b"k", first, last) == []
        assert index.of_key(b"k", -5, 0) == stored[:1]
        assert index.of_key(b"k", -(2**70), 2**70) == stored
        with pytest.raises(KeyError):
            index.remove(key_at(b"k", 15))
        assert index.of_key(b"k", 0, 2**70) == stored


def test_an_index_is_discarded_and_garbage_collected(native: ModuleType) -> None:
    """It is in a reference cycle with its owner, which supplies the stored keys."""

    class Owner:
        def __init__(self) -> None:
            self.stored = [window_key(b"k", number) for number in range(20_000)]
            self.index = native.KeyIndex(WINDOWS, lambda: self.stored)

    owner = Owner()
    index, gone = owner.index, weakref.ref(owner)
    assert len(index.of_key(b"k", 5, 19_994)) == 19_990
    for number in range(20_000):
        index.add(window_key(b"j", number))
    assert not index.needs_fill
    index.add(b"j" * 20)
    assert index.needs_fill
    index.remove(b"unknown")
    assert index.of_key(b"j", 0, 100) == []
    with pytest.raises(KeyError):
        index.remove(window_key(b"k", 20_000))
    for wrong in (b"short", "text"):
        with pytest.raises(TypeError):
            index.add(wrong)
    with pytest.raises(TypeError):
        index.of_key("text", 0, 1)
    del owner, index
    gc.collect()
    assert gone() is None


# ---- the loops


@given(
    records=st.lists(st.tuples(KEYS, st.none() | NUMBERS, NUMBERS, st.integers(0, 3)), max_size=40),
    spreads=st.booleans(),
    has_headers=st.booleans(),
    places_are_listed=st.booleans(),
    owns=st.booleans(),
)
def test_records_are_folded_and_counted_alike(
    native: ModuleType,
    records: list[tuple[bytes, int | None, int, int]],
    spreads: bool,
    has_headers: bool,
    places_are_listed: bool,
    owns: bool,
) -> None:
    """In batches of ten. Each record is in up to three windows; a fifth of the records fail in one
    of them, some delete the aggregate, and some replace it."""
    results: list[list[Any]] = []
    for cache, fold, count in zip(
        both_caches(native),
        (pure_fold_entries, native.fold_entries),
        (pure_count_entries, native.count_entries),
        strict=True,
    ):
        failures: list[Any] = []
        at = array("q", [-1])

        def aggregator(key: bytes, value: int | None, so_far: int) -> Any:
            if value is None:
                return None
            if value % 10 == 3 and so_far > 1_000:
                raise ValueError(f"{key!r} {value}")
            return value if value % 10 == 4 else value + so_far

        def failed(
            index: int, error: Exception, failures: list[Any] = failures, at: Any = at
        ) -> None:
            assert sys.exception() is error
            failures.append((index, str(error), at[0]))

        for start in range(0, len(records), 10):
            batch = records[start : start + 10]
            copies = [each[3] if spreads else 1 for each in batch]
            indices = [index for index, times in enumerate(copies) for _ in range(times)]
            numbered = [
                (index, number) for index, times in enumerate(copies) for number in range(times)
            ]
            updates = AggregateUpdates(
                [batch[index][0] + b"w" * number for index, number in numbered],
                indices if spreads else None,
                [each[0] for each in batch],
                [each[1] for each in batch],
                [each[2] for each in batch],
                [PLACE] * len(batch) if places_are_listed else repeat(PLACE),
                range(start, start + len(batch)),
                [(("name", b"%d" % index),) for index in range(len(batch))]
                if has_headers
                else None,
                at,
            )
            own: Any = (lambda value: value and value + 0) if owns else None
            fold(cache, updates, lambda: 500, aggregator, own, failed)
        results.append([cache.seen(), failures])
        if records:
            count(cache, updates)
        results[-1].append(cache.seen())
    assert results[0] == results[1]


def test_base_exceptions_and_failing_handlers_end_the_loop(native: ModuleType) -> None:
    """Updates from before the exception stay."""
    cache = both_caches(native)[1]
    updates = AggregateUpdates(
        [b"a", b"b"],
        None,
        ["a", "b"],
        [1, 2],
        [1, 2],
        repeat(PLACE),
        [0, 1],
        None,
        array("q", [-1]),
    )

    def interrupted(key: str, value: int, so_far: int) -> int:
        if key == "b":
            raise KeyboardInterrupt
        return value

    def failing(key: str, value: int, so_far: int) -> int:
        return value // (value - 2)

    with pytest.raises(KeyboardInterrupt):
        native.fold_entries(cache, updates, int, interrupted, None, lambda index, error: None)
    assert (cache.entries[b"a"].value, cache.entries[b"b"].value, cache.seq) == (1, None, 3)

    def failing_handler(index: int, error: Exception) -> None:
        raise RuntimeError(index) from error

    with pytest.raises(RuntimeError, match="1") as raised:
        native.fold_entries(cache, updates, int, failing, None, failing_handler)
    assert sys.exception() is None
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert raised.value.__cause__.__traceback__ is not None
    assert updates.at[0] == 1


def test_the_loops_do_not_leak_references(native: ModuleType) -> None:
    """Keys, values, headers and functions have the same reference counts before and after."""
    key, headers = bytes(bytearray(b"a key of its own")), (("name", b"x"),)
    value, place = object(), TopicPartition("in", 3)

    def aggregator(_: Any, record: Any, so_far: Any) -> Any:
        return so_far if so_far is record else record

    held = (key, headers, value, place, aggregator)
    before = [sys.getrefcount(each) for each in held]
    for _ in range(3):
        cache, order = both_caches(native)[1], native.EvictionOrder()
        at = array("q", [-1])
        updates = AggregateUpdates(
            [key] * 2, [0, 0], [key], [value], [5], [place], [7], [headers], at
        )
        native.fold_entries(cache, updates, object, aggregator, None, lambda index, error: None)
        order.add_many(cache.entries.values())
        (entry,) = native.sorted_by_change(cache.dirty)
        assert native.columns_of(cache.dirty) == (
            [key],
            [value],
            [5],
            [place],
            [7],
            [headers],
        )
        native.mark_flushed(cache.dirty, [key], 1)
        assert order.pop_unchanged(1) == [entry]
        cache.entries.pop(key)
        with pytest.raises(TypeError):
            native.fold_entries(cache, updates, object, 7, None, 7)
        del cache, order, updates, entry
    assert [sys.getrefcount(each) for each in held] == before
