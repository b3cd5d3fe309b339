"""Goal: what one question makes a stream thread do and send is bounded, with many tasks as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.opened_alone import opened_alone
from support.tasks.served_tasks import ServedTasks

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
from millstream.runtime.queries.questions import AskStore
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.runtime.states import TaskState
from millstream.serdes import LONG, STRING
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.reads import Read, ReadKind


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    builder = Stores.key_value_builder(Stores.persistent_key_value("s"), STRING, LONG)
    store, _ = opened_alone(builder, directory=tmp_path)
    store.store.put_all((f"{number:0200}", number) for number in range(2_000))
    store.base.commit(None)
    yield store
    store.close()


def test_the_tasks_of_a_thread_share_an_answer(opened: OpenStore) -> None:
    """Each gives a beginning, and the rest page by page."""
    group = SimpleNamespace(group=SimpleNamespace(queues={}))
    stores = Mock(**{"find.return_value": opened, "caches.return_value": {}})
    tasks: list[Any] = [
        SimpleNamespace(
            task_id=TaskId(0, number), stores=stores, state=TaskState.RUNNING, processing=group
        )
        for number in range(50)
    ]
    queries = StoreQueries({}, lambda: tasks, lambda _: None, ManualClock())
    question = AskStore("s", Read(ReadKind.RANGE), "RangeQuery")
    answer = queries.answer(question)
    assert len(answer.tasks) == 50
    assert all(task.page and task.cursor for task in answer.tasks)
    sizes = [sum(len(key) + len(value) for key, value in task.page) for task in answer.tasks]
    assert sum(sizes) < 1.1 * (1 << 20)
    del tasks[1:]
    (alone,) = queries.answer(question).tasks
    assert sum(len(key) + len(value) for key, value in alone.page) > 250_000
    queries.close()


def test_who_is_refused_the_rest_of_an_answer_is_told_to_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Views raise what says so, as they do for all that passes; a request says it in words."""
    with ServedTasks(1) as served:
        for key in (b"a", b"b"):
            served.tasks[0].write("clicks", key, bytes(200_000))
        served.tasks[0].commit()
        carts = served.store("carts", QueryableStoreTypes.key_value(), None, stale=False)
        with monkeypatch.context() as full:
            full.setattr("millstream.runtime.queries.cursors.MOST_CURSORS", 1)
            first = carts.all()
            with pytest.raises(StateStoreNotAvailableError, match="close iterators"):
                carts.all()
            request = StateQueryRequest.in_store("carts").with_query(RangeQuery())
            (result,) = served.query(request).partition_results.values()
            assert result.failure_reason is FailureReason.STORE_EXCEPTION
            assert "Ask again in a moment" in (result.failure_message or "")
            assert [key for key, _ in first] == ["a", "b"]
            assert [key for key, _ in carts.all()] == ["a", "b"]
