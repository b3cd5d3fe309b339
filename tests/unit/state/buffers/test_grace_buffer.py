from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.record import TopicPartition
from millstream.serdes import STRING
from millstream.state.buffers.grace_buffer import GraceBuffer
from millstream.state.builders.buffer_builders import GraceBufferBuilder
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.storage.memory import MemoryStore
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)
_PLACE = TopicPartition("in", 0)


def _buffer(base: MemoryStore, grace_ms: int) -> GraceBuffer:
    return GraceBuffer(
        "s",
        base,
        topic="t",
        key_serde=STRING,
        value_serde=STRING,
        grace_ms=grace_ms,
        changelog=StoreChangelog("s", None),
    )


def _put(buffer: GraceBuffer, timestamp: int, key: str, value: str) -> bool:
    return buffer.put(key, value, timestamp=timestamp, place=_PLACE, offset=timestamp)


@settings(max_examples=100, deadline=None)
@given(
    grace_ms=st.integers(0, 8),
    puts=st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from(["a", "ab", "b"]), st.booleans()),
        max_size=30,
    ),
    reopened_at=st.integers(0, 30),
)
def test_records_are_evicted_by_time_key_and_arrival(
    grace_ms: int, puts: list[tuple[int, str, bool]], reopened_at: int
) -> None:
    base = MemoryStore()
    buffer = _buffer(base, grace_ms)
    waiting: list[tuple[int, bytes, int]] = []
    stream_time = -1
    for index, (timestamp, key, evicts) in enumerate(puts):
        accepted = _put(buffer, timestamp, key, str(index))
        assert accepted == (timestamp >= stream_time - grace_ms)
        if accepted:
            stream_time = max(stream_time, timestamp)
            waiting.append((timestamp, key.encode(), index))
        if evicts:
            until = stream_time - grace_ms
            expected = sorted(entry for entry in waiting if entry[0] <= until)
            waiting = [entry for entry in waiting if entry[0] > until]
            found = [(r.context.timestamp, r.key.encode(), int(r.value)) for r in buffer.evict()]
            assert found == expected
        if index == reopened_at and waiting:
            buffer = _buffer(base, grace_ms)
            stream_time = max(entry[0] for entry in waiting)


def test_a_record_stays_if_its_consumer_fails() -> None:
    buffer = _buffer(MemoryStore(), 0)
    _put(buffer, 3, "k", "v")
    evicted = buffer.evict()
    assert next(evicted).value == "v"
    evicted.close()
    assert [record.value for record in buffer.evict()] == ["v"]
    assert list(buffer.evict()) == []


def test_a_task_restores_the_buffer_from_its_changelog(
    open_task: Callable[..., TaskStores], changelog: Any
) -> None:
    stores = open_task(GraceBufferBuilder("s", 5, STRING, STRING))
    buffer: Any = stores.table("s")
    buffer.put("k", "one", timestamp=1, place=_PLACE, offset=7, headers=[("h", None)])
    buffer.put("k", "two", timestamp=4, place=None, offset=-1)
    buffer.put("k", "three", timestamp=7, place=_PLACE, offset=9)
    assert [record.value for record in buffer.evict()] == ["one"]
    stores.close(clean=False)
    stores.mark_corrupted()
    stores.open()
    _, keys, values, _ = zip(*changelog.records, strict=True)
    stores.restorers()[CHANGELOG].restore_batch(keys, values, [0] * 4, [0, 1, 2, 3])
    buffer = stores.table("s")
    assert not _put(buffer, 1, "k", "late")
    assert _put(buffer, 12, "k", "four")
    first, second = buffer.evict()
    assert first == ("k", "two", (4, -1, None, ()))
    assert second == ("k", "three", (7, 9, _PLACE, ()))


def test_a_recycled_standby_keeps_records_in_arrival_order(
    open_task: Callable[..., TaskStores], changelog: Any
) -> None:
    """An active task becomes a standby and then active again, with its stores open. Records
    restored as a standby keep their order, and new records do not replace them."""
    stores = open_task(GraceBufferBuilder("s", 0, STRING, STRING))
    _put(stores.table("s"), 7, "k", "old")
    ((_, key, value, _),) = changelog.records
    stores.close(clean=False)
    stores.open()
    assert list(stores.table("s").evict()) == []
    stores.recycle()
    stores.restorers()[CHANGELOG].restore_batch([key], [value], [7], [0])
    assert _put(stores.table("s"), 7, "k", "new")
    assert [record.value for record in stores.table("s").evict()] == ["old", "new"]
