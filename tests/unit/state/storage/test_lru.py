from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import ConfigError
from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.storage.lru import LRUStore
from millstream.state.stores import Stores
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)


_STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "get", "delete", "scan"]), st.binary(max_size=1)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=_STEPS, max_entries=st.integers(1, 4))
def test_the_least_recently_used_key_is_evicted(
    steps: list[tuple[str, bytes]], max_entries: int
) -> None:
    store = LRUStore(max_entries)
    used: list[bytes] = []
    for step, key in steps:
        if step == "scan":
            assert [found for found, _ in store.scan(None, None)] == sorted(used)
            continue
        if step == "get":
            assert (store.get(key) is not None) == (key in used)
        elif step == "delete":
            store.put(key, None, 0)
        else:
            store.put(key, b"v", 0)
        is_in = step == "put" or (step == "get" and key in used)
        used = [each for each in used if each != key] + [key] * is_in
        used = used[-max_entries:]
    assert [key for key, _ in store.scan(None, None, reverse=True)] == sorted(used, reverse=True)


def test_evicted_keys_are_deleted_from_the_changelog(
    open_task: Callable[..., TaskStores], changelog: Any, context: Any
) -> None:
    builder = Stores.key_value_builder(Stores.lru_map("s", 2), STRING, LONG)
    stores = open_task(builder)
    store = stores.store("s")
    for context.timestamp, key in enumerate(["a", "b"]):
        store.put(key, 1)
    store.get("a")
    context.timestamp = 9
    store.put("c", 1)
    assert [(key, value is None, time) for _, key, value, time in changelog.records[2:]] == [
        (b"b", True, 9),
        (b"c", False, 9),
    ]
    stores.close(clean=True)
    stores.open()
    _, keys, values, times = zip(*changelog.records, strict=True)
    stores.restorers()[CHANGELOG].restore_batch(keys, values, times, [0, 1, 2, 3])
    with stores.store("s").all() as items:
        assert list(items) == [("a", 1), ("c", 1)]
    assert len(changelog.records) == 4, "restoring logs nothing"


def test_a_store_without_capacity_is_rejected() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Stores.lru_map("s", 0)
