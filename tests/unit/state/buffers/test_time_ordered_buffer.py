from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.record import Headers, TopicPartition
from millstream.serdes import STRING
from millstream.state.buffers.time_ordered_buffer import NEVER, TimeOrderedBuffer
from millstream.state.builders.buffer_builders import SuppressBufferBuilder
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)
_PLACE = TopicPartition("in", 0)


class Changelog:
    """The records written to the changelog."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        assert timestamps is None
        self.records += zip(keys, values, strict=True)


def _buffer(changelog: Changelog | None = None) -> TimeOrderedBuffer:
    return TimeOrderedBuffer(
        "s",
        topic="t",
        key_serde=STRING,
        value_serde=STRING,
        changelog=StoreChangelog("s", changelog),
    )


def _put(buffer: TimeOrderedBuffer, time: int, key: str, new: Any, old: Any = None) -> None:
    buffer.put(time, key, new, old, timestamp=time, place=_PLACE, offset=0)


def _restored(changelog: Changelog) -> TimeOrderedBuffer:
    buffer = _buffer(changelog)
    for key, value in changelog.records:
        buffer.restore(key, value, 0)
    return buffer


_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.integers(0, 9),
            st.sampled_from(["", "a", "b", "é"]),
            st.sampled_from([None, "", "x", "yy"]),
            st.sampled_from([None, "", "x"]),
        ),
        st.tuples(st.just("evict"), st.integers(0, 9)),
        st.just(("commit",)),
        st.just(("restore",)),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(steps=_STEPS)
def test_the_buffer_behaves_like_a_dict_sorted_by_time_and_key(
    steps: list[tuple[Any, ...]],
) -> None:
    changelog = Changelog()
    buffer = _buffer(changelog)
    model: dict[str, tuple[int, Any, Any, Any]] = {}
    for step in steps:
        if step[0] == "put":
            _, time, key, new, old = step
            _put(buffer, time, key, new, old)
            first_time, prior = (model[key][0], model[key][3]) if key in model else (time, old)
            model[key] = first_time, new, old, prior
        elif step[0] == "evict":
            expected = sorted((v[0], k.encode(), k) for k, v in model.items() if v[0] <= step[1])
            evicted = list(buffer.evict_while(lambda: buffer.min_timestamp <= step[1]))  # noqa: B023
            assert [change.key for change in evicted] == [key for *_, key in expected]
            for change in evicted:
                _, new, _, prior = model.pop(change.key)
                # The old value is the last emitted one, not one replaced in the buffer.
                assert (change.new_value, change.old_value) == (new, prior)
        else:
            buffer.log_changes()
            if step[0] == "restore":
                size = buffer.size_bytes
                buffer = _restored(changelog)
                assert buffer.size_bytes == size
        assert buffer.num_records == len(model)
        assert buffer.min_timestamp == min((v[0] for v in model.values()), default=NEVER)
        for key in ("", "a", "b", "é"):
            assert buffer.prior_value(key) == (
                (True, model[key][3]) if key in model else (False, None)
            )


def test_a_change_stays_if_its_consumer_fails() -> None:
    buffer = _buffer()
    _put(buffer, 1, "a", "x")
    evicted = buffer.evict_while(lambda: True)
    assert next(evicted).key == "a"
    evicted.close()
    assert buffer.num_records == 1


def test_bytes_are_counted_as_in_kafka_streams() -> None:
    buffer = _buffer()
    # 8 for the time, 1 for the key, 3 for the new value; 16 for timestamp and offset, 2 for the
    # topic, 4 for the partition, 1 + 2 for a header.
    buffer.put(
        1,
        "k",
        "new",
        None,
        timestamp=1,
        place=_PLACE,
        offset=0,
        headers=[("h", b"12"), ("n", None)],
    )
    assert buffer.size_bytes == 8 + 1 + 3 + 16 + 2 + 4 + 3 + 1
    # The old value is also the prior value, so it is counted once.
    _put(buffer, 2, "other", "x", "old")
    assert buffer.size_bytes == 38 + 8 + 5 + 1 + 3 + 22
    for _ in buffer.evict_while(lambda: True):
        pass
    assert buffer.size_bytes == 0


def test_a_task_restores_the_buffer_from_its_changelog(
    open_task: Callable[..., TaskStores], changelog: Any
) -> None:
    builder = SuppressBufferBuilder("s", STRING, STRING)
    stores = open_task(builder)
    buffer = stores.table("s")
    buffer.put(5, "k", "new", "old", timestamp=7, place=_PLACE, offset=3, headers=[("h", b"1")])
    _put(buffer, 6, "gone", "x")
    assert changelog.records == []
    stores.log_changes()
    for _ in buffer.evict_while(lambda: buffer.num_records > 1):
        pass
    stores.log_changes()
    assert [record[3] for record in changelog.records] == [None] * 3
    stores.close(clean=True)
    stores.open()
    _, keys, values, _ = zip(*changelog.records, strict=True)
    stores.restorers()[CHANGELOG].restore_batch(keys, values, [0, 0, 0], [0, 1, 2])
    (change,) = stores.table("s").evict_while(lambda: True)
    assert change.key == "gone"
