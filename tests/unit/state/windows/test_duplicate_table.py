"""Entries of a key are found by time, however they were written; whole buckets are dropped."""

from __future__ import annotations

from millstream.state.windows.duplicate_table import DuplicateTable, Entry
from millstream.state.windows.window_keys import window_key

BUCKET_MS = 10


def entries(key: bytes, *times: int) -> list[Entry]:
    return [(time, window_key(key, time, n), b"%d" % n) for n, time in enumerate(times, 1)]


def test_batches_are_written_like_single_entries() -> None:
    """In any order, with several entries of one time: they are found, counted and dropped alike."""
    together, one_by_one = DuplicateTable(BUCKET_MS), DuplicateTable(BUCKET_MS)
    found = entries(b"a", 5, 25, 25, 3, 12, 25)
    for batch in (found[:2], found[2:]):
        together.add_many([b"a"] * len(batch), batch)
        together.add_sizes(sum(len(stored) + len(value) for _, stored, value in batch), len(batch))
        for time, stored, value in batch:
            one_by_one.put(stored, value, time)
    ordered = [(stored, value) for _, stored, value in sorted(found)]
    for table in (together, one_by_one):
        assert table.of_key(b"a", 0, 99) == ordered
        assert table.of_key(b"a", 5, 24) == ordered[1:3]
        assert sorted(table.between(4, 25)) == sorted(ordered[1:])
        assert len(table) == len(found)
        assert [table.get(stored) for stored, _ in ordered] == [value for _, value in ordered]
    assert together.size_bytes == one_by_one.size_bytes > 0
    for table in (together, one_by_one):
        assert table.drop_oldest() == BUCKET_MS
        assert table.of_key(b"a", 0, 99) == ordered[2:]
        table.drop_before(30)
        assert table.of_key(b"a", 0, 99) == []
        assert (len(table), table.size_bytes, dict(table.by_key)) == (0, 0, {})


def test_values_are_replaced_or_deleted() -> None:
    """For example, when a changelog is read again."""
    table = DuplicateTable(BUCKET_MS)
    ((time, stored, _),) = entries(b"a", 5)
    table.put(stored, b"old", time)
    table.put(stored, b"new", time)
    assert table.of_key(b"a", 0, 99) == [(stored, b"new")]
    table.discard(stored, time)
    table.discard(stored, time)
    assert table.of_key(b"a", 0, 99) == []
    table.drop_before(99)
    assert table.size_bytes == 0


def test_entries_of_a_large_key_are_dropped_together() -> None:
    table = DuplicateTable(BUCKET_MS)
    found = entries(b"a", *range(200))
    table.add_many([b"a"] * len(found), found)
    table.add_sizes(len(found), len(found))
    for gone in range(10, 200, BUCKET_MS):
        table.drop_before(gone)
        assert [value for _, value in table.of_key(b"a", 0, 199)] == [
            value for _, _, value in found[gone:]
        ]


def test_removed_entries_are_not_found() -> None:
    """Whether or not their bucket still exists."""
    table = DuplicateTable(BUCKET_MS)
    early, late = entries(b"a", 5, 15)
    table.add_many([b"a", b"a"], [early, late])
    table.drop_before(10)
    table.remove_entry(b"a", early)
    assert table.of_key(b"a", 0, 99) == [late[1:]]
    table.remove_entry(b"a", late)
    assert dict(table.by_key) == {}
