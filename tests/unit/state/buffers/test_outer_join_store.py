from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.buffer_builders import OuterJoinStoreBuilder
from millstream.state.builders.store_builder import StoreKind
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_records_are_sorted_by_time_side_and_key_and_survive_a_restore(
    kind: StoreKind, open_task: Callable[..., TaskStores], changelog: Any
) -> None:
    stores = open_task(OuterJoinStoreBuilder("s", kind, STRING, STRING, LONG))
    store = stores.table("s")
    store.put(2, True, "b", "left", record_time=2)
    store.put(2, True, "a", "left", record_time=3)
    store.put(2, False, "b", 5, record_time=4)
    store.put(1, True, "z", "one", record_time=5)
    store.put(1, True, "z", "two", record_time=6)
    store.put(1, False, "z", 7, record_time=6)
    assert store.remove_joined(1, False, "z", record_time=7)
    assert not store.remove_joined(1, False, "z", record_time=8)
    assert changelog.records[4][2] == bytes.fromhex("0100000002 00000004016f6e65 000000040174776f")
    assert [record[3] for record in changelog.records] == [2, 3, 4, 5, 6, 6, 7]
    expected = [(1, True, "z", ["one", "two"]), (2, False, "b", [5])]
    expected += [(2, True, "a", ["left"]), (2, True, "b", ["left"])]
    for _ in range(2):
        store = stores.table("s")
        assert [(u.timestamp, u.left, store.key(u), store.values(u)) for u in store.all()] == (
            expected
        )
        stores.close(clean=False)
        stores.mark_corrupted()
        stores.open()
        _, keys, values, times = zip(*changelog.records, strict=True)
        stores.restorers()[CHANGELOG].restore_batch(keys, values, times, list(range(len(keys))))


def test_records_can_be_removed_during_iteration(open_task: Callable[..., TaskStores]) -> None:
    store = open_task(OuterJoinStoreBuilder("s", "in_memory", STRING, STRING, LONG)).table("s")
    for time in range(5):
        store.put(time, True, "k", "v", record_time=time)
    for unmatched in store.all():
        store.remove(unmatched.stored_key, record_time=9)
    assert list(store.all()) == []
