"""The work and the response of a stream thread for one query are bounded, also with many tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.served_tasks import ServedTasks
from support.tasks.standalone_store import open_standalone_store

from millstream import (
    FailureReason,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    StateStoreNotAvailableError,
    Stores,
)
from millstream.clock import ManualClock
from millstream.record import TaskId
from millstream.runtime.queries.query_messages import QueryStore
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.runtime.states.thread_states import TaskState
from millstream.serdes import LONG, STRING
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.read_requests import ReadKind, ReadRequest


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    builder = Stores.key_value_builder(Stores.persistent_key_value("s"), STRING, LONG)
    store, _ = open_standalone_store(builder, directory=tmp_path)
    store.store.put_all((f"{number:0200}", number) for number in range(2_000))
    store.base.commit(None)
    yield store
    store.close()


def test_tasks_of_a_thread_share_an_answer(opened: OpenStore) -> None:
    """Each task returns the first records, and the rest page by page."""
    group = SimpleNamespace(group=SimpleNamespace(queues={}))
    stores = Mock(**{"find.return_value": opened, "caches.return_value": {}})
    tasks: list[Any] = [
        SimpleNamespace(
            task_id=TaskId(0, number), stores=stores, state=TaskState.RUNNING, processing=group
        )
        for number in range(50)
    ]
    queries = StoreQueries({}, lambda: tasks, lambda _: None, ManualClock())
    query = QueryStore("s", ReadRequest(ReadKind.RANGE), "RangeQuery")
    answer = queries.answer(query)
    assert len(answer.tasks) == 50
    assert all(task.page and task.cursor for task in answer.tasks)
    sizes = [sum(len(key) + len(value) for key, value in task.page) for task in answer.tasks]
    assert sum(sizes) < 1.1 * (1 << 20)
    del tasks[1:]
    (alone,) = queries.answer(query).tasks
    assert sum(len(key) + len(value) for key, value in alone.page) > 250_000
    queries.close()


def test_query_without_a_free_cursor_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Views raise a retriable exception, as usual; the result of a request contains the advice."""
    with ServedTasks(1) as served:
        for key in (b"a", b"b"):
            served.tasks[0].write("clicks", key, bytes(200_000))
        served.tasks[0].commit()
        carts = served.store("carts", QueryableStoreTypes.key_value(), None, stale=False)
        with monkeypatch.context() as full:
            full.setattr("millstream.runtime.queries.open_cursors.MAX_CURSORS", 1)
            first = carts.all()
            with pytest.raises(StateStoreNotAvailableError, match="close iterators"):
                carts.all()
            request = StateQueryRequest.in_store("carts").with_query(RangeQuery())
            (result,) = served.query(request).partition_results.values()
            assert result.failure_reason is FailureReason.STORE_EXCEPTION
            assert "Repeat the query in a moment" in (result.failure_message or "")
            assert [key for key, _ in first] == ["a", "b"]
            assert [key for key, _ in carts.all()] == ["a", "b"]
