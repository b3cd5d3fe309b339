"""Values are found by key and by time, however they were written, and their sizes are counted."""

from __future__ import annotations

from millstream.state.windows.key_index import KeyIndex
from millstream.state.windows.time_table import TimeTable
from millstream.state.windows.window_keys import WINDOWS, window_key

BUCKET_MS = 10


def test_batches_are_written_like_single_values() -> None:
    """They are found, counted and dropped alike."""
    together, one_by_one = TimeTable(WINDOWS, BUCKET_MS), TimeTable(WINDOWS, BUCKET_MS)
    new = {window_key(key, start): b"1" for key in (b"a", b"b") for start in (10, 15)}
    later = {window_key(b"a", 15): b"longer", window_key(b"c", 19): b""}
    for pairs in (new, later, later):
        together.put_many(pairs, together.bucket_of(10))
        for stored, value in pairs.items():
            one_by_one.put(stored, value, WINDOWS.time_of(stored))
        # Read in between, so that later values are also indexed by key.
        assert together.of_key(b"c", 0, 99) == one_by_one.of_key(b"c", 0, 99)
    assert together.values == one_by_one.values == new | later
    first, last = (window_key(b"a", 10), b"1"), (window_key(b"a", 15), b"longer")
    assert together.of_key(b"a", 0, 99) == [first, last]
    assert together.of_key(b"c", 0, 99) == [(window_key(b"c", 19), b"")]
    assert sorted(together.between(15, 99)) == sorted(one_by_one.between(15, 99))
    assert together.size_bytes == one_by_one.size_bytes > 0


def test_nothing_remains_of_dropped_buckets() -> None:
    """A bucket is dropped as a whole: it is no longer found or counted."""
    table = TimeTable(WINDOWS, BUCKET_MS)
    table.put_many({window_key(key, 5): b"old" for key in (b"a", b"b")}, table.bucket_of(5))
    table.put(window_key(b"a", 25), b"new", 25)
    assert len(table.of_key(b"a", 0, 99)) == 2
    assert table.drop_oldest() == BUCKET_MS
    assert table.of_key(b"a", 0, 99) == [(window_key(b"a", 25), b"new")]
    assert table.of_key(b"b", 0, 99) == []
    table.discard(window_key(b"a", 25), 25)
    assert table.values == {}
    assert table.size_bytes == 0


def test_an_unused_key_index_is_discarded() -> None:
    """A single query does not slow down writes permanently; the next one builds the index again."""
    stored: list[bytes] = []
    index = KeyIndex(WINDOWS, lambda: stored)

    def put(number: int) -> None:
        stored.append(window_key(b"k%d" % (number % 100), number))
        index.add(stored[-1])

    for number in range(1_000):
        put(number)
    assert index.needs_fill
    assert len(index.of_key(b"k7", 0, 10**9)) == 10
    for number in range(1_000, 5_000):
        put(number)
    assert not index.needs_fill
    assert len(index.of_key(b"k7", 0, 10**9)) == 50
    for number in range(5_000, 16_000):
        put(number)
    assert index.needs_fill
    index.remove(stored.pop(7))
    left = [window_key(b"k7", number) for number in range(107, 16_000, 100)]
    assert index.of_key(b"k7", 0, 10**9) == left
    for number in range(16_000, 31_000):
        put(number)
    assert not index.needs_fill
