from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.record import TopicPartition
from millstream.serdes import STRING
from millstream.state.builders.versioned_builders import VersionedStoreBuilder, default_segment_ms
from millstream.state.storage.memory import MemoryStore
from millstream.state.task_stores import TaskStores
from millstream.state.versioned.versions import NOT_PUT, VALID_TO_UNDEFINED, VersionedBytes

CHANGELOG = TopicPartition("app-s-changelog", 0)


_Put = tuple[str, bytes, bytes | None, int]
#: Some keys are prefixes of others, even with a timestamp appended.
_KEYS = st.sampled_from([b"", b"a", b"a\x00", b"a" + bytes(8), b"b"])
_PUTS = st.lists(
    st.tuples(st.just("put"), _KEYS, st.sampled_from([b"", b"x", b"y", None]), st.integers(0, 60)),
    max_size=40,
)


class _Model:
    """All versions of all keys, with the results of Kafka Streams.

    Does not model a deletion at the timestamp of the latest version, which may leave no trace.
    """

    def __init__(self, history_ms: int) -> None:
        self.history_ms = history_ms
        self.stream_time = -1
        self.versions: dict[bytes, dict[int, bytes | None]] = {}

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        if timestamp < self.stream_time - self.history_ms:
            return NOT_PUT
        self.stream_time = max(self.stream_time, timestamp)
        versions = self.versions.setdefault(key, {})
        versions[timestamp] = value
        return min((time for time in versions if time > timestamp), default=VALID_TO_UNDEFINED)

    def is_latest(self, key: bytes, timestamp: int) -> bool:
        versions = self.versions.get(key, {})
        return timestamp in versions and timestamp == max(versions)

    def get_as_of(self, key: bytes, timestamp: int) -> tuple[bytes, int] | None:
        versions = self.versions.get(key, {})
        began = max((time for time in versions if time <= timestamp), default=None)
        expired = timestamp < self.stream_time - self.history_ms
        if began is None or (expired and began != max(versions)):
            return None
        value = versions[began]
        return None if value is None else (value, began)


def _read_all(store: VersionedBytes, times: range) -> dict[tuple[bytes, int], object]:
    found: dict[tuple[bytes, int], object] = {}
    for key in (b"", b"a", b"a\x00", b"a" + bytes(8), b"b"):
        for time in times:
            version = store.get_as_of(key, time)
            found[key, time] = None if version is None else (version.value, version.timestamp)
    return found


@settings(max_examples=150, deadline=None)
@given(
    puts=_PUTS,
    history_ms=st.integers(0, 30),
    segment_ms=st.sampled_from([1, 4, 7, 100]),
    reopened_at=st.integers(0, 40),
)
def test_versions_equal_those_of_a_list_of_all_puts(
    puts: list[_Put], history_ms: int, segment_ms: int, reopened_at: int
) -> None:
    model = _Model(history_ms)
    base = MemoryStore()

    def opened() -> VersionedBytes:
        return VersionedBytes("s", base, history_ms=history_ms, segment_ms=segment_ms)

    store = opened()
    for index, (_, key, value, timestamp) in enumerate(puts):
        if value is None and model.is_latest(key, timestamp):
            continue
        assert store.put(key, value, timestamp) == model.put(key, value, timestamp)
        if index == reopened_at:
            store.save_stream_time()
            store = opened()
    for (key, time), found in _read_all(store, range(-1, 70)).items():
        assert found == model.get_as_of(key, time), (key, time)


@pytest.mark.parametrize("segment_ms", [1, 3, 100])
def test_a_deletion_at_the_time_of_the_only_version_leaves_no_trace(segment_ms: int) -> None:
    store = VersionedBytes("s", MemoryStore(), history_ms=50, segment_ms=segment_ms)
    store.put(b"k", b"v", 10)
    assert store.put(b"k", None, 10) == VALID_TO_UNDEFINED
    # As in Kafka Streams. If the deletion were stored, the result would be 10.
    assert store.put(b"k", b"older", 0) == VALID_TO_UNDEFINED
    assert store.get_as_of(b"k", 20) == (b"older", 0, None)
    # If there is an earlier version, it ends at the deletion.
    store.put(b"k", b"newer", 30)
    store.put(b"k", None, 30)
    assert store.put(b"k", b"between", 20) == 30
    assert store.get_as_of(b"k", 35) is None


def test_a_late_version_in_a_gap_ends_where_the_next_one_begins() -> None:
    """A deletion is often just such a gap, between versions of one segment."""
    store = VersionedBytes("s", MemoryStore(), history_ms=100, segment_ms=100)
    for value, timestamp in ((b"v", 10), (None, 20), (b"w", 30), (b"x", 40)):
        store.put(b"k", value, timestamp)
    assert store.put(b"k", b"y", 22) == 30
    found = [store.get_as_of(b"k", time) for time in (21, 25, 35, 45)]
    assert [None if each is None else each.value for each in found] == [None, b"y", b"w", b"x"]


def test_expired_versions_are_deleted_from_disk() -> None:
    base = MemoryStore()
    store = VersionedBytes("s", base, history_ms=10, segment_ms=5)
    for timestamp in range(100):
        store.put(b"often", b"%d" % timestamp, timestamp)
    store.put(b"deleted", b"x", 100)
    store.put(b"deleted", None, 101)
    assert base.get(b"\x00deleted") is not None
    store.put(b"often", b"last", 120)
    assert base.get(b"\x00deleted") is None
    assert [key for key, _ in base.scan(b"\x01", None) if b"deleted" in key] == []
    assert base.approximate_num_entries() == 2, "the latest version, and the one before it"


def test_default_segments_equal_those_of_kafka_streams() -> None:
    hour = 3_600_000
    assert [default_segment_ms(ms) for ms in (0, 60_000, 300_000, hour, 24 * hour)] == [
        2_000,
        20_000,
        60_000,
        300_000,
        hour,
    ]


def test_restoring_gives_the_same_store(
    open_task: Callable[..., TaskStores], changelog: Any
) -> None:
    builder = VersionedStoreBuilder("s", 10, 3, key_serde=STRING, value_serde=STRING)
    stores = open_task(builder)
    store = stores.store("s")
    for timestamp, value in ((5, "a"), (20, "b"), (12, "late"), (3, "too late"), (25, None)):
        store.put("k", value, timestamp)
    before = [store.get("k", as_of=time) for time in range(30)]
    assert before[15] == ("late", 12, None)
    # Records that are too late are logged as well, as in Kafka Streams.
    assert [record[3] for record in changelog.records] == [5, 20, 12, 3, 25]
    stores.close(clean=False)
    stores.mark_corrupted()
    stores.open()
    restorer = stores.restorers()[CHANGELOG]
    _, keys, values, times = zip(*changelog.records, strict=True)
    for first, last in ((0, 2), (1, 5)):
        offsets = list(range(first, last))
        restorer.restore_batch(keys[first:last], values[first:last], times[first:last], offsets)
    store = stores.store("s")
    assert [store.get("k", as_of=time) for time in range(30)] == before
    assert store.put("k", "x", 14) == store.NOT_PUT
    assert stores.changelog_offsets() == {CHANGELOG: 4}
