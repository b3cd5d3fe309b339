"""Goal: what one question makes a stream thread do and send is bounded, with many tasks as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.opened_alone import opened_alone

from millstream import Stores
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
