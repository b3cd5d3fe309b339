"""The record cache deduplicates, orders, evicts and forwards as in Kafka Streams, and never changes
old or forwarded values in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.standalone_store import flush_caches

from millstream.errors import SerializationError
from millstream.record import TopicPartition, ValueAndTimestamp
from millstream.serdes import JSON, LONG, STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.caches.cache_entries import CacheBudget, FlushedChanges
from millstream.state.caches.record_cache import RecordCache
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.state.task_stores import TaskStores

OpenTask = Callable[..., TaskStores]
CHANGELOG = TopicPartition("app-s-changelog", 0)
SOURCE = TopicPartition("in", 0)


def cached(**options: Any) -> KeyValueStoreBuilder:
    defaults: dict[str, Any] = {
        "kind": "rocksdb",
        "key_serde": STRING,
        "value_serde": LONG,
        "timestamped": True,
        "caching": True,
    }
    return KeyValueStoreBuilder("s", **(defaults | options))


@pytest.fixture
def stores(open_task: OpenTask) -> TaskStores:
    return open_task(cached())


@pytest.fixture
def cache(stores: TaskStores) -> RecordCache:
    cache = stores.caches()["s"]
    cache.forwards_changes = True
    return cache


def change(cache: RecordCache, key: bytes, value: Any, timestamp: int, offset: int = 0) -> None:
    """Change a key as an operator does."""
    entry = cache.entries.get(key) or cache.load(key)
    cache.change(entry, value, timestamp, SOURCE, offset)


def rows(changes: FlushedChanges | None) -> list[tuple[Any, ...]]:
    assert changes is not None
    return list(zip(changes.keys, changes.new_values, changes.timestamps, strict=True))


def test_only_the_last_change_of_each_key_is_flushed(cache: RecordCache, changelog: Any) -> None:
    """Nothing reaches the changelog before the flush, and then one record per key."""
    for n in range(5):
        change(cache, b"a", n, 10 + n, offset=n)
    assert changelog.records == []
    changes = cache.flush()
    assert rows(changes) == [("a", 4, 14)]
    assert changes is not None
    assert (changes.places, changes.offsets, changes.headers) == ([SOURCE], [4], None)
    assert changes.key_bytes == [b"a"]
    assert [(key, time) for _, key, _, time in changelog.records] == [(b"a", 14)]
    assert cache.flush() is None


def test_keys_are_flushed_in_the_order_of_their_last_change(
    cache: RecordCache, changelog: Any
) -> None:
    """A key changed again moves to the end, in the forwarded changes and in the changelog."""
    for timestamp, key in enumerate([b"c", b"a", b"b", b"c", b"a"]):
        change(cache, key, 1, timestamp)
    assert rows(cache.flush()) == [("b", 1, 2), ("c", 1, 3), ("a", 1, 4)]
    assert [key for _, key, _, _ in changelog.records] == [b"b", b"c", b"a"]


def test_reading_a_dirty_key_does_not_move_it(cache: RecordCache, stores: TaskStores) -> None:
    """Only changes count for the order of a flush."""
    change(cache, b"a", 1, 1)
    change(cache, b"b", 1, 2)
    assert stores.store("s").get("a") == ValueAndTimestamp(1, 1)
    assert stores.table("s").read_many([b"a", b"x", b"b"]) == [(1, 1), None, (1, 2)]
    assert [key for key, _, _ in rows(cache.flush())] == ["a", "b"]


def test_a_loaded_entry_has_the_stored_timestamp(cache: RecordCache) -> None:
    """An aggregate's time must not go back because its entry was evicted in between."""
    change(cache, b"a", 1, 7)
    cache.flush()
    cache.clear()
    entry = cache.load(b"a")
    assert (entry.value, entry.timestamp) == (1, 7)


def test_a_cleared_cache_has_nothing_to_flush(cache: RecordCache, changelog: Any) -> None:
    """Its entries may be stale, because another thread owned the task."""
    change(cache, b"a", 1, 1)
    cache.clear()
    assert cache.flush() is None
    assert (changelog.records, cache.size_bytes) == ([], 0)


def test_peeking_at_a_key_does_not_cache_it(cache: RecordCache, stores: TaskStores) -> None:
    """Queries also read standby stores, whose changelogs change the layer below. The cache must not
    return earlier values, in particular not after the task becomes active."""
    change(cache, b"a", 1, 7)
    assert len(query(stores, b"a")) == 1
    cache.flush()
    cache.clear()
    before = cache.statistics()
    (found,) = query(stores, b"a")
    assert found[0] == b"a"
    assert cache.peek(b"b") is None
    assert cache.statistics() == before
    assert before.entries == 0


def query(stores: TaskStores, key: bytes) -> list[tuple[bytes, bytes]]:
    opened = stores.find("s")
    assert opened is not None
    assert opened.read is not None
    return list(opened.read(ReadRequest(ReadKind.GET, key)) or ())


def test_the_end_of_a_scan_is_exclusive(cache: RecordCache) -> None:
    for key in (b"a", b"b", b"c"):
        change(cache, key, 1, 1)
    assert [key for key, _ in cache.scan(b"b", b"c")] == [b"b"]


def test_uncached_keys_are_read_from_the_store_in_one_call(
    cache: RecordCache, stores: TaskStores, changelog: Any
) -> None:
    """The results are in order and cached. Changes in the cache override stored values."""
    for key in (b"a", b"b", b"c", b"d"):
        change(cache, key, 1, 1)
    cache.flush()
    stores.commit({CHANGELOG: changelog.last_offset})
    cache.clear()
    stores.store("s").put("a", ValueAndTimestamp(2, 2))
    change(cache, b"b", 3, 3)
    loads = cache.statistics().loads
    table = stores.table("s")
    keys = [b"d", b"a", b"new", b"c", b"d", b"b", b"c"]
    assert table.read_many(keys) == [(1, 1), (2, 2), None, (1, 1), (1, 1), (3, 3), (1, 1)]
    assert cache.statistics().loads == loads + 2
    assert table.read_many(keys[:5]) == [(1, 1), (2, 2), None, (1, 1), (1, 1)]
    assert cache.statistics().loads == loads + 2


def test_keys_evicted_during_a_read_are_read_again(open_task: OpenTask) -> None:
    """The cache holds two entries, so reading evicts entries that it has just loaded."""
    stores = open_task(cached(), budget=CacheBudget(200))
    cache = stores.caches()["s"]
    for number, key in enumerate((b"a", b"b", b"c", b"d")):
        change(cache, key, number, number)
        cache.evict()
    cache.flush()
    keys = [b"a", b"b", b"c", b"d", b"a", b"d", b"b"]
    assert stores.table("s").read_many(keys) == [
        (number, number) for number in (0, 1, 2, 3, 0, 3, 1)
    ]
    assert cache.size_bytes <= 200


def test_an_insert_and_delete_between_flushes_cancel_out(
    cache: RecordCache, changelog: Any
) -> None:
    """They are neither forwarded nor logged. A delete of a flushed value is both."""
    change(cache, b"a", 1, 1)
    change(cache, b"b", 1, 1)
    change(cache, b"a", None, 2)
    assert rows(cache.flush()) == [("b", 1, 1)]
    change(cache, b"b", None, 3)
    assert rows(cache.flush()) == [("b", None, 3)]
    assert [(key, value is None, time) for _, key, value, time in changelog.records] == [
        (b"b", False, 1),
        (b"b", True, 3),
    ]
    change(cache, b"b", 1, 4)
    change(cache, b"b", None, 5)
    assert cache.flush() is None
    assert cache.statistics().entries == 0
    assert cache.size_bytes == 0


def test_without_a_listener_a_delete_is_always_logged(
    open_task: OpenTask, changelog: Any, context: Any
) -> None:
    """Follows Kafka Streams: only a flush listener makes insert and delete collapse."""
    stores = open_task(cached())
    store = stores.store("s")
    context.timestamp = 3
    store.put("a", ValueAndTimestamp(1, 1))
    store.put("a", None)
    assert changelog.records == []
    flush_caches(stores, lambda name, changes: pytest.fail("unexpected forward"))
    assert changelog.records == [("s", b"a", None, 3)]


def test_puts_of_processors_into_an_operator_cache_are_evicted_at_a_commit(
    open_task: OpenTask,
) -> None:
    """The operator's next batch may never come. Only clean entries are evicted."""
    stores = open_task(cached(), budget=CacheBudget(1_000))
    cache = stores.caches()["s"]
    cache.forwards_changes = True

    def put_many() -> None:
        for number in range(100):
            stores.store("s").put(f"{number}", ValueAndTimestamp(1, 1))

    put_many()
    assert cache.size_bytes > 1_000
    cache.flush()
    put_many()
    stores.flush_cache("s")
    assert len(cache.dirty) == 100
    cache.flush()
    stores.flush_cache("s")
    assert 0 < cache.size_bytes <= 1_000


def test_old_values_come_from_the_last_flush(cache: RecordCache) -> None:
    """With `sends_old_values`, a change contains the value forwarded before."""
    cache.sends_old_values = True
    change(cache, b"a", 1, 1)
    changes = cache.flush()
    assert changes is not None
    assert changes.old_values == [None]
    change(cache, b"a", 2, 2)
    change(cache, b"a", 3, 3)
    change(cache, b"b", 1, 3)
    changes = cache.flush()
    assert changes is not None
    assert (changes.new_values, changes.old_values) == ([3, 1], [1, None])


def test_raw_puts_and_operator_changes_mix(
    cache: RecordCache, stores: TaskStores, changelog: Any, context: Any
) -> None:
    """A processor may write into an aggregated store; old values are read where needed."""
    cache.sends_old_values = True
    store = stores.store("s")
    change(cache, b"a", 1, 1)
    cache.flush()
    stores.commit({CHANGELOG: changelog.last_offset})
    cache.clear()
    context.place, context.offset, context.headers = SOURCE, 9, (("h", b"1"),)
    store.put("a", ValueAndTimestamp(2, 2))
    store.put("b", ValueAndTimestamp(5, 2))
    change(cache, b"b", 6, 3, offset=10)
    store.put("c", None)
    changes = cache.flush()
    assert rows(changes) == [("a", 2, 2), ("b", 6, 3)]
    assert changes is not None
    assert changes.old_values == [1, None]
    assert changes.offsets == [9, 10]
    assert changes.headers == [(("h", b"1"),), ()]
    assert store.get("b") == ValueAndTimestamp(6, 3)


def test_flushed_values_are_never_changed_in_place(open_task: OpenTask) -> None:
    """A mutating aggregator gets a newly decoded value after its value was forwarded."""
    stores = open_task(cached(value_serde=JSON))
    cache = stores.caches()["s"]
    cache.forwards_changes = cache.sends_old_values = True
    seen: list[tuple[Any, Any]] = []
    for round_ in range(3):
        for n in range(2):
            entry = cache.entries.get(b"a") or cache.load(b"a")
            aggregate = entry.value if entry.value is not None else []
            aggregate.append(10 * round_ + n)
            cache.change(entry, aggregate, 0, SOURCE, 0)
        peeked = stores.table("s").read_many([b"a"])[0]
        assert peeked is not None
        peeked[0].append("by a reader")
        changes = cache.flush()
        assert changes is not None
        assert changes.old_values is not None
        seen.append((changes.new_values[0], changes.old_values[0]))
        changes.old_values[0] = None
    assert seen == [
        ([0, 1], None),
        ([0, 1, 10, 11], [0, 1]),
        ([0, 1, 10, 11, 20, 21], [0, 1, 10, 11]),
    ]


def test_immutable_values_stay_decoded(cache: RecordCache) -> None:
    """A counter's entry stays usable after a flush: no decode, no read from below."""
    change(cache, b"a", 1, 1)
    cache.flush()
    assert cache.entries[b"a"].value == 1
    assert cache.statistics().loads == 1


def test_scans_merge_changes_and_stored_values(
    cache: RecordCache, stores: TaskStores, changelog: Any
) -> None:
    """Changes override, deletions hide, and later changes do not affect the scan."""
    for key in (b"a", b"b", b"c"):
        change(cache, key, 1, 1)
    cache.flush()
    stores.commit({CHANGELOG: changelog.last_offset})
    change(cache, b"b", None, 2)
    change(cache, b"c", 2, 2)
    change(cache, b"d", 3, 2)
    store = stores.store("s")
    expected = [("a", 1), ("c", 2), ("d", 3)]
    assert [(key, value.value) for key, value in store.all()] == expected
    assert [(key, value.value) for key, value in store.reverse_all()] == expected[::-1]
    assert [key for key, _ in store.range("b", "c")] == ["c"]
    items = store.all()
    change(cache, b"d", None, 3)
    cache.flush()
    assert [key for key, _ in items] == ["a", "c", "d"]


def test_the_least_recently_used_entry_is_evicted(open_task: OpenTask) -> None:
    """Reads and changes count as use. Clean entries are dropped without a flush, until the budget
    holds."""
    budget = CacheBudget(10_000)
    cache = open_task(cached(), budget=budget).caches()["s"]
    cache.forwards_changes = True
    for key in (b"a", b"b", b"c", b"d"):
        change(cache, key, 1, 1)
    cache.flush()
    budget.resize(cache.size_bytes)
    assert cache.evict() is None
    assert sorted(cache.entries) == [b"a", b"b", b"c", b"d"]
    cache.get(b"a")
    change(cache, b"e", 1, 2)
    assert budget.excess_bytes() > 0
    assert cache.evict() is None
    assert sorted(cache.entries) == [b"a", b"c", b"d", b"e"]
    assert budget.excess_bytes() <= 0


def test_evicting_a_dirty_key_flushes_it_and_then_the_rest(open_task: OpenTask) -> None:
    """Follows Kafka Streams: the evicted key, then every dirty key in dirty order."""
    budget = CacheBudget(10_000)
    cache = open_task(cached(), budget=budget).caches()["s"]
    cache.forwards_changes = True
    for timestamp, key in enumerate([b"d", b"a", b"c", b"b"]):
        change(cache, key, 1, timestamp)
    budget.resize(cache.size_bytes - 1)
    changes = cache.evict()
    assert [key for key, _, _ in rows(changes)] == ["d", "a", "c", "b"]
    assert b"d" not in cache.entries
    assert not cache.dirty
    budget.resize(0)
    assert cache.evict() is None
    assert cache.statistics().entries == 0
    assert cache.size_bytes == 0


def test_eviction_order_puts_the_evicted_key_first(open_task: OpenTask) -> None:
    """The least recently used dirty key is flushed first, before dirty keys used later."""
    budget = CacheBudget(10_000)
    cache = open_task(cached(), budget=budget).caches()["s"]
    cache.forwards_changes = True
    for key in (b"a", b"b", b"c"):
        change(cache, key, 1, 1)
    cache.flush()
    for key in (b"c", b"b"):
        change(cache, key, 2, 2)
    # a was used least recently and is clean: it is dropped. Then c, which is dirty, flushes all.
    budget.resize(cache.entries[b"b"].size)
    changes = cache.evict()
    assert [key for key, _, _ in rows(changes)] == ["c", "b"]
    assert list(cache.entries) == [b"b"]


def test_evicting_an_inserted_and_deleted_key(open_task: OpenTask, changelog: Any) -> None:
    """The entry is dropped once, and the size stays correct."""
    budget = CacheBudget(10_000)
    cache = open_task(cached(), budget=budget).caches()["s"]
    cache.forwards_changes = True
    change(cache, b"a", 1, 1)
    change(cache, b"a", None, 2)
    budget.resize(0)
    assert cache.evict() is None
    assert (cache.size_bytes, cache.statistics().entries) == (0, 0)
    assert changelog.records == []


def test_growing_values_count_before_they_are_flushed(open_task: OpenTask) -> None:
    """A list that grows between commits can exceed the budget long before the commit."""
    budget = CacheBudget(50_000)
    stores = open_task(cached(value_serde=JSON), budget=budget)
    cache = stores.caches()["s"]
    cache.forwards_changes = True
    evictions = 0
    for n in range(60_000):
        entry = cache.entries.get(b"a") or cache.load(b"a")
        value = entry.value or []
        value.append(n % 10)
        cache.change(entry, value, n, SOURCE, n)
        if n % 1_000 == 999:
            evictions += cache.evict() is not None
    assert evictions > 0
    cache.flush()
    held = [*cache.entries.values(), *cache._encoded.values()]
    assert cache.size_bytes == sum(entry.size for entry in held)
    kept = stores.store("s").get("a")
    assert len(kept.value) == 60_000


def test_reads_do_not_evict_changes(open_task: OpenTask, changelog: Any) -> None:
    """A reader cannot forward a flush, so it evicts clean keys only."""
    budget = CacheBudget(10_000)
    stores = open_task(cached(), budget=budget)
    cache = stores.caches()["s"]
    cache.forwards_changes = True
    for n in range(50):
        change(cache, b"%03d" % n, n, 1)
    cache.flush()
    stores.commit({CHANGELOG: changelog.last_offset})
    cache.clear()
    change(cache, b"dirty", 1, 2)
    budget.resize(400)
    for _ in range(2):
        for n in range(50):
            assert cache.get(b"%03d" % n) is not None
    assert budget.excess_bytes() < 100
    assert [entry.key_bytes for entry in cache.dirty] == [b"dirty"]
    assert cache.flush() is not None


def test_caches_share_one_budget(open_task: OpenTask, tmp_path: Any) -> None:
    """A cache evicts its own entries, even if another cache exceeds the budget."""
    budget = CacheBudget(1_000)
    one = open_task(cached(), budget=budget, state_dir=tmp_path / "1").caches()["s"]
    other = open_task(cached(), budget=budget, state_dir=tmp_path / "2").caches()["s"]
    for n in range(9):
        change(one, b"%d" % n, n, 1)
    for n in range(9):
        change(other, b"%d" % n, n, 1)
        other.evict()
    assert one.statistics().entries == 9
    assert other.statistics().entries < 9
    assert budget.excess_bytes() <= 0
    one.close()
    assert budget.used_bytes == other.size_bytes


def test_no_budget_means_no_cache(open_task: OpenTask) -> None:
    """With `statestore.cache.max.bytes` 0, the stores have no cache layer."""
    assert open_task(cached(), budget=CacheBudget(0)).caches() == {}


def test_a_serialization_error_leaves_all_entries_dirty(cache: RecordCache, changelog: Any) -> None:
    """A failed flush writes nothing and can be repeated."""
    change(cache, b"a", 1, 1)
    change(cache, b"b", "text", 1)
    with pytest.raises(SerializationError):
        cache.flush()
    assert changelog.records == []
    change(cache, b"b", 2, 1)
    assert rows(cache.flush()) == [("a", 1, 1), ("b", 2, 1)]


def test_plain_stores_are_cached_too(open_task: OpenTask, changelog: Any, context: Any) -> None:
    """The changelog gets the timestamp of the record of the last put."""
    stores = open_task(cached(timestamped=False))
    store = stores.store("s")
    for context.timestamp in (1, 2, 3):
        store.put("a", context.timestamp)
    assert store.get("a") == 3
    flush_caches(stores, lambda name, changes: pytest.fail("unexpected forward"))
    assert [(key, time) for _, key, _, time in changelog.records] == [(b"a", 3)]
    assert store.get("a") == 3


def test_emptied_entries_do_not_accumulate(cache: RecordCache) -> None:
    """Deleted keys are removed from the eviction order."""
    for n in range(5_000):
        change(cache, b"%d" % n, 1, 1)
        change(cache, b"%d" % n, None, 1)
        if n % 100 == 0:
            cache.flush()
    assert len(cache._eviction) < 1_500
