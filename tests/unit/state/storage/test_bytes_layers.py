"""All writable bytes layers read, scan and delete alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.record import TopicPartition
from millstream.state.storage.bytes_store import CommittableStore, end_including, end_of_prefix
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.overlay import OverlayStore, UncommittedBudget
from millstream.state.storage.rocksdb import RocksDBStorage

TP = TopicPartition("c", 0)


@pytest.fixture(params=["memory", "overlay", "overlay, committed"])
def layer(
    request: pytest.FixtureRequest, open_storage: Callable[..., RocksDBStorage]
) -> CommittableStore:
    if request.param == "memory":
        return MemoryStore()
    store = OverlayStore(open_storage())
    if "committed" in request.param:
        # Half of the keys that the tests write are committed, below newer writes.
        store.put_many([b"a", b"b", b"gone"], [b"old", b"old", b"old"], [0, 0, 0])
        store.commit((TP, 0))
        store.put(b"gone", None, 0)
        store.put(b"b", None, 0)
        store.put(b"a", None, 0)
    return store


def test_written_values_can_be_read(layer: CommittableStore) -> None:
    """Puts, deletes, deletes of missing keys; one by one and in batches."""
    layer.put(b"b", b"1", 0)
    layer.put_many([b"a", b"b", b"c", b"c"], [b"2", b"3", b"4", None], [0, 0, 0, 0])
    layer.put(b"never", None, 0)
    assert layer.get(b"a") == b"2"
    assert layer.get(b"c") is None
    assert layer.get_many([b"c", b"b", b"a", b"b"]) == [None, b"3", b"2", b"3"]
    assert list(layer.scan(None, None)) == [(b"a", b"2"), (b"b", b"3")]


def test_scans_are_half_open_and_in_unsigned_order(layer: CommittableStore) -> None:
    keys = [b"", b"\x00", b"a", b"a\x00", b"a\xff", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
    for key in reversed(keys):
        layer.put(key, b"v" + key, 0)
    expected = sorted(keys)
    assert [key for key, _ in layer.scan(None, None)] == expected
    assert [key for key, _ in layer.scan(None, None, reverse=True)] == expected[::-1]
    bounds: list[bytes | None] = [None, *expected]
    for start in bounds:
        for end in bounds:
            inside = [
                key
                for key in expected
                if (start is None or key >= start) and (end is None or key < end)
            ]
            assert [key for key, _ in layer.scan(start, end)] == inside
            assert [key for key, _ in layer.scan(start, end, reverse=True)] == inside[::-1]


def test_many_keys_are_read_from_both_layers(layer: CommittableStore) -> None:
    """Committed, uncommitted, deleted and empty values, in the order of the keys."""
    layer.put_many([b"a", b"b", b"c"], [b"1", b"2", b"3"], [0, 0, 0])
    layer.commit((TP, 1))
    layer.put_many([b"a", b"b", b"d"], [None, b"", b"4"], [0, 0, 0])
    keys = [b"a", b"c", b"b", b"x", b"d", b"c"]
    assert layer.get_many(keys) == [None, b"3", b"", None, b"4", b"3"]


def test_inclusive_ends_and_prefixes_become_exclusive_ends() -> None:
    assert end_including(None) is None
    assert end_including(b"a") == b"a\x00"
    assert end_of_prefix(b"a") == b"b"
    assert end_of_prefix(b"a\xff\xff") == b"b"
    assert end_of_prefix(b"\xff") is None
    assert end_of_prefix(b"") is None


def test_values_may_be_empty(layer: CommittableStore) -> None:
    layer.put(b"a", b"", 0)
    assert layer.get(b"a") == b""
    assert list(layer.scan(None, None)) == [(b"a", b"")]


def test_the_offset_is_that_of_the_last_commit_or_restored_batch(layer: CommittableStore) -> None:
    layer.commit((TP, 4))
    assert layer.committed_offset(TP) == 4
    layer.commit(None)
    assert layer.committed_offset(TP) == 4
    layer.restore({b"r": b"1", b"a": None}, (TP, 9))
    assert layer.committed_offset(TP) == 9
    assert layer.get(b"r") == b"1"
    assert layer.committed_offset(TopicPartition("other", 0)) is None


def test_a_memory_scan_behaves_as_in_kafka_streams() -> None:
    """It returns the keys present at the call, each with its current value when it is reached."""
    store = MemoryStore()
    store.put_many([b"a", b"b", b"c"], [b"1", b"1", b"1"], [0, 0, 0])
    items = store.scan(None, None)
    assert next(items) == (b"a", b"1")
    store.put(b"b", None, 0)
    store.put(b"c", b"2", 0)
    store.put(b"d", b"2", 0)
    assert list(items) == [(b"c", b"2")]


def test_an_overlay_scan_is_a_snapshot(open_storage: Callable[..., RocksDBStorage]) -> None:
    """A scan sees neither later writes nor their commit."""
    store = OverlayStore(open_storage())
    store.put_many([b"a", b"b"], [b"1", b"1"], [0, 0])
    store.commit((TP, 1))
    store.put_many([b"b", b"c"], [b"2", b"2"], [0, 0])
    for reverse in (False, True):
        items = store.scan(None, None, reverse=reverse)
        store.put_many([b"a", b"b", b"c", b"d"], [None, b"9", None, b"9"], [0] * 4)
        store.commit((TP, 2))
        found = list(items)
        assert found == sorted([(b"a", b"1"), (b"b", b"2"), (b"c", b"2")], reverse=reverse)
        store.put_many([b"a", b"b", b"c", b"d"], [b"1", b"2", b"2", None], [0] * 4)


def test_a_commit_contains_the_writes_before_its_start(
    open_storage: Callable[..., RocksDBStorage],
) -> None:
    """Reads see all writes; only those before the start of the commit reach the disk."""
    storage = open_storage()
    store = OverlayStore(storage)
    store.put_many([b"a", b"b", b"c"], [b"1", b"1", b"1"], [0] * 3)
    store.commit((TP, 1))
    store.put_many([b"b", b"d"], [b"2", b"2"], [0] * 2)
    store.on_commit_started()
    store.put_many([b"c", b"d", b"e"], [None, b"3", b"3"], [0] * 3)
    now = {b"a": b"1", b"b": b"2", b"d": b"3", b"e": b"3"}
    for pending in (True, False):
        assert dict(store.scan(None, None)) == now
        assert list(store.scan(b"b", b"e", reverse=True)) == [(b"d", b"3"), (b"b", b"2")]
        keys = [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert store.get_many(keys) == [now.get(key) for key in keys]
        assert [store.get(key) for key in keys] == [now.get(key) for key in keys]
        if pending:
            assert storage.committed_offset(TP) == 1
            store.commit((TP, 2))
    assert dict(storage.scan(None, None)) == {b"a": b"1", b"b": b"2", b"c": b"1", b"d": b"2"}
    assert storage.committed_offset(TP) == 2
    assert store.uncommitted_bytes == 5
    store.commit((TP, 3))
    assert dict(storage.scan(None, None)) == now
    assert store.uncommitted_bytes == 0


def test_a_failed_commit_is_part_of_the_next(
    open_storage: Callable[..., RocksDBStorage],
) -> None:
    """Including keys dropped since then, which must not reappear."""
    storage = open_storage()
    store = OverlayStore(storage)
    store.put_many([b"a", b"b", b"c"], [b"1", b"1", b"1"], [0] * 3)
    store.on_commit_started()
    store.delete_range(b"a", b"c")
    store.put(b"b", b"2", 0)
    store.on_commit_started()
    assert dict(store.scan(None, None)) == {b"b": b"2", b"c": b"1"}
    store.put(b"d", b"3", 0)
    store.commit((TP, 2))
    assert dict(storage.scan(None, None)) == {b"b": b"2", b"c": b"1"}
    assert dict(store.scan(None, None)) == {b"b": b"2", b"c": b"1", b"d": b"3"}


def test_an_overlay_counts_a_hot_key_once(open_storage: Callable[..., RocksDBStorage]) -> None:
    """Repeated writes of a key do not fill the memory."""
    store = OverlayStore(open_storage())
    budget = UncommittedBudget(1_000)
    for _ in range(1_000):
        store.put(b"hot", bytes(50), 0)
        budget.update(store, store.uncommitted_bytes)
        assert not budget.is_exceeded
    assert store.count_uncommitted() == 53


@pytest.mark.parametrize("begins", [False, True])
def test_dropped_keys_are_not_found_by_scans(
    open_storage: Callable[..., RocksDBStorage], begins: bool
) -> None:
    """Also after a scan has sorted the uncommitted keys, and if a failed commit contained some."""
    storage = open_storage()
    store = OverlayStore(storage)
    store.put_many([b"a", b"c", b"e"], [b"1"] * 3, [0] * 3)
    assert len(list(store.scan(None, None))) == 3
    if begins:
        store.on_commit_started()
        store.put_many([b"b", b"d"], [b"2"] * 2, [0] * 2)
        assert len(list(store.scan(None, None))) == 5
    store.delete_range(b"a", b"d")
    left = [(b"d", b"2"), (b"e", b"1")] if begins else [(b"e", b"1")]
    if begins:
        store.on_commit_started()
    for reverse in (False, True):
        assert list(store.scan(None, None, reverse=reverse)) == left[:: -1 if reverse else 1]
    store.commit((TP, 1))
    assert list(storage.scan(None, None)) == left
