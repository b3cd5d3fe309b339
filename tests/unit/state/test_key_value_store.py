"""The key-value store of the Processor API behaves as in Kafka Streams, for all combinations of
layers."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from millstream.errors import InvalidStateStoreError, SerializationError, StreamsError
from millstream.record import TopicPartition, ValueAndTimestamp
from millstream.serdes import INTEGER, JSON, LONG, STRING
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.task_stores import TaskStores

OpenTask = Callable[..., TaskStores]
CHANGELOG = TopicPartition("app-s-changelog", 0)


def plain(**options: Any) -> KeyValueStoreBuilder:
    serdes: dict[str, Any] = {"key_serde": STRING, "value_serde": LONG, "kind": "rocksdb"}
    return KeyValueStoreBuilder("s", **(serdes | options))


@pytest.fixture(params=["rocksdb", "in_memory", "rocksdb cached", "in_memory cached"])
def store(request: pytest.FixtureRequest, open_task: OpenTask) -> Any:
    kind, _, cached = request.param.partition(" ")
    return open_task(plain(kind=kind, caching=bool(cached))).store("s")


def test_point_operations(store: Any) -> None:
    """`get`, `put`, `put_if_absent`, `put_all`, `delete`, and deletion by `None`."""
    assert store.get("a") is None
    store.put("a", 1)
    assert store.put_if_absent("a", 2) == 1
    assert store.put_if_absent("b", 3) is None
    assert (store.get("a"), store.get("b")) == (1, 3)
    store.put_all([("a", None), ("c", 5), ("d", 6)])
    assert store.get("a") is None
    assert store.delete("c") == 5
    assert store.delete("c") is None
    assert store.get("d") == 6


def test_ranges_include_both_ends(store: Any) -> None:
    """Ranges, their reverse and open ends, in the order of serialized keys."""
    store.put_all([(key, i) for i, key in enumerate(["b", "a", "aa", "c", "ba"])])
    assert list(store.range("aa", "b")) == [("aa", 2), ("b", 0)]
    assert list(store.reverse_range("aa", "b")) == [("b", 0), ("aa", 2)]
    assert [key for key, _ in store.range(None, "b")] == ["a", "aa", "b"]
    assert [key for key, _ in store.range("b")] == ["b", "ba", "c"]
    assert [key for key, _ in store.all()] == ["a", "aa", "b", "ba", "c"]
    assert [key for key, _ in store.reverse_all()] == ["c", "ba", "b", "aa", "a"]
    assert [key for key, _ in store.prefix_scan("a", STRING)] == ["a", "aa"]


def test_an_inverted_range_is_empty_and_logs_one_warning(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`lo` > `hi`, for any number of queries."""
    store.put("b", 1)
    with caplog.at_level(logging.WARNING):
        assert list(store.range("c", "a")) == []
        assert list(store.reverse_range("c", "a")) == []
    assert len(caplog.records) == 1
    assert "Store s" in caplog.text


def test_negative_numbers_are_sorted_last(open_task: OpenTask) -> None:
    """Java's big-endian numbers are compared as unsigned bytes."""
    store = open_task(plain(key_serde=INTEGER)).store("s")
    store.put_all([(key, 0) for key in (1, -1, 0, -2)])
    assert [key for key, _ in store.all()] == [0, 1, -2, -1]


def test_null_keys_are_rejected(store: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.get(None),
        lambda: store.put(None, 1),
        lambda: store.put_if_absent(None, 1),
        lambda: store.put_all([(None, 1)]),
        lambda: store.delete(None),
        lambda: store.prefix_scan(None, STRING),
    ]
    for call in calls:
        with pytest.raises(StreamsError, match="Store s needs"):
            call()


def test_a_closed_store_rejects_all_calls(open_task: OpenTask) -> None:
    """Open iterators raise as well."""
    stores = open_task(plain())
    store = stores.store("s")
    store.put_all([("a", 1), ("b", 2)])
    items = store.all()
    assert next(items) == ("a", 1)
    stores.close(clean=False)
    assert not store.is_open
    calls: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.put("a", 1),
        lambda: store.delete("a"),
        lambda: store.range("a", "b"),
        lambda: store.all(),
        lambda: store.approximate_num_entries(),
    ]
    for call in calls:
        with pytest.raises(InvalidStateStoreError, match="Store s is currently closed"):
            call()
    with pytest.raises(InvalidStateStoreError, match="closed while it was being iterated"):
        next(items)


def test_iterators_are_context_managers_and_peek(store: Any) -> None:
    """Peeking does not advance; a closed or exhausted iterator is empty."""
    store.put_all([("a", 1), ("b", 2)])
    with store.all() as items:
        assert items.peek_next_key() == "a"
        assert next(items) == ("a", 1)
        assert items.peek_next_key() == items.peek_next_key() == "b"
    assert list(items) == []
    with store.all() as items:
        assert len(list(items)) == 2
        with pytest.raises(StopIteration):
            items.peek_next_key()


def test_values_are_not_shared_with_callers(open_task: OpenTask) -> None:
    """Changing a value after reading or putting it does not change the store."""
    for caching in (False, True):
        stores = open_task(plain(value_serde=JSON, caching=caching))
        store = stores.store("s")
        value = {"n": [1]}
        store.put("a", value)
        value["n"].append(2)
        store.get("a")["n"].append(3)
        assert store.get("a") == {"n": [1]}
        stores.close(clean=False)


def test_a_plain_store_logs_the_timestamp_of_the_record(
    open_task: OpenTask, changelog: Any, context: Any
) -> None:
    """One changelog record per put. Deletions are tombstones, also for missing keys."""
    store = open_task(plain()).store("s")
    context.timestamp = 77
    store.put("a", 1)
    store.put_all([("a", 2), ("b", 3)])
    store.put_if_absent("b", 9)
    store.delete("b")
    store.delete("never")
    one, two, three = (struct.pack(">q", n) for n in (1, 2, 3))
    assert changelog.records == [
        ("s", b"a", one, 77),
        ("s", b"a", two, 77),
        ("s", b"b", three, 77),
        ("s", b"b", None, 77),
        ("s", b"never", None, 77),
    ]


def test_a_timestamped_store_keeps_and_logs_its_own_timestamps(
    open_task: OpenTask, changelog: Any, context: Any
) -> None:
    """On disk, the timestamp precedes the value; in the changelog, it is the timestamp of the
    record."""
    stores = open_task()
    store = stores.store("s")
    context.timestamp = 77
    store.put("a", ValueAndTimestamp(1, 5))
    store.put("b", ValueAndTimestamp(None, 6))
    store.put("a", None)
    store.put("c", ValueAndTimestamp(-1, 7))
    assert store.get("c") == ValueAndTimestamp(-1, 7)
    assert list(store.all()) == [("c", ValueAndTimestamp(-1, 7))]
    assert changelog.records == [
        ("s", b"a", struct.pack(">q", 1), 5),
        ("s", b"b", None, 77),
        ("s", b"a", None, 77),
        ("s", b"c", struct.pack(">q", -1), 7),
    ]
    base: Any = stores._stores["s"].base
    assert base.get(b"c") == struct.pack(">qq", 7, -1)
    with pytest.raises(StreamsError, match="ValueAndTimestamp"):
        store.put("a", 1)


def test_a_store_without_logging_keeps_its_data(open_task: OpenTask, changelog: Any) -> None:
    """It writes no changelog records, and its data survives a clean close."""
    stores = open_task(plain(logging=False))
    stores.store("s").put("a", 1)
    stores.commit({})
    stores.close(clean=True)
    assert changelog.records == []
    assert open_task(plain(logging=False)).store("s").get("a") == 1


def test_a_value_that_cannot_be_serialized_is_not_stored(store: Any) -> None:
    """The call raises the serde's error, and the store is unchanged."""
    store.put("a", 1)
    with pytest.raises(SerializationError):
        store.put("a", "text")
    with pytest.raises(SerializationError):
        store.put_all([("a", 2), ("a", "text")])
    assert store.get("a") == 1


@pytest.mark.parametrize("serde", [None, str])
def test_a_prefix_needs_a_serde(open_task: OpenTask, serde: Any) -> None:
    store = open_task(KeyValueStoreBuilder("s", "in_memory", STRING, LONG)).store("s")
    with pytest.raises(TypeError, match="needs a Serde as its prefix_serde"):
        store.prefix_scan("a", serde)
