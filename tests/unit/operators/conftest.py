"""An operator on a stage: real stores, a real context, and edges that keep what is emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from millstream.clock import ManualClock
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import Operator
from millstream.processor.handlers import (
    CONTINUE,
    ErrorContext,
    HandlerResponse,
    LogAndFailProcessingExceptionHandler,
)
from millstream.processor.task_context import CurrentRecord
from millstream.record import Headers, Record, TaskId, TopicPartition
from millstream.runtime.task.node_context import Dropped, NodeContext
from millstream.serdes import STRING, Serde
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.task_stores import TaskStores

TASK = TaskId(0, 0)
INPUT = TopicPartition("in", 0)


class Emitted(NamedTuple):
    """A record that an operator emitted."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()


class Edges:
    """The way out of an operator: batches by child, None for all children."""

    children = ("one", "other")
    immediate = False
    ordered = True

    def __init__(self) -> None:
        self.batches: list[tuple[str | None, Batch]] = []

    def emit(self, batch: Batch) -> None:
        self.batches.append((None, batch))

    def emit_to(self, child: str, batch: Batch) -> None:
        self.batches.append((child, batch))

    def take(self) -> list[tuple[str | None, Emitted]]:
        """What was emitted since the last call, record by record."""
        batches, self.batches = self.batches, []
        return [
            (child, Emitted(key, value, batch.timestamps[i], tuple(batch.headers_of(i))))
            for child, batch in batches
            for i, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
        ]


class Stage:
    """Runs one operator.

    `failures` holds the key and value of each record that user code failed on, with the error;
    `changelog` what the store logged: key, value and timestamp.
    """

    def __init__(self, operator: Operator, stores: TaskStores, fails: bool) -> None:
        self.operator = operator
        self.edges = Edges()
        self.failures: list[tuple[ErrorContext, Record[Any, Any], Exception]] = []
        self.drops = Dropped(TASK)
        self.stores = stores
        self.changelog: list[tuple[bytes, bytes | None, int]] = []
        self._offset = 0
        handler = LogAndFailProcessingExceptionHandler() if fails else self._leave_out
        tables = {name: stores.table(name) for name in stores.names}
        context = NodeContext("node", TASK, ManualClock(), self.edges, tables, handler, self.drops)
        operator.init(context)

    def _leave_out(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        self.failures.append((context, record, error))
        return CONTINUE

    def batch(self, *records: tuple[Any, ...], ordered: bool = False) -> Batch:
        """A batch of (key, value, timestamp[, headers]), read at consecutive offsets."""
        size = len(records)
        headers = [tuple(r[3]) if len(r) > 3 else () for r in records]
        offsets = range(self._offset, self._offset + size)
        self._offset += size
        return Batch(
            [r[0] for r in records],
            [r[1] for r in records],
            [r[2] for r in records],
            range(size),
            Origin(INPUT, offsets, headers if any(headers) else None),
            [(i,) for i in range(size)] if ordered else None,
        )

    def feed(self, *records: tuple[Any, ...]) -> list[Emitted]:
        """What the operator emits for some records, to whomever."""
        return [emitted for _, emitted in self.feed_to_children(*records)]

    def feed_to_children(self, *records: tuple[Any, ...]) -> list[tuple[str | None, Emitted]]:
        """What the operator emits for some records, with the child it is for."""
        self.operator.process(self.batch(*records), self.edges)
        return self.edges.take()

    def flush(self) -> list[Emitted]:
        """What a commit makes the operator emit."""
        self.operator.flush()
        return [emitted for _, emitted in self.edges.take()]

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        self.changelog += zip(keys, values, timestamps, strict=True)


MakeStage = Callable[..., Stage]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[MakeStage]:
    """Makes a stage for an operator.

    Args: the operator; `fails`, whether a failure of user code ends everything; `store`, the serde
    of the values of a store "S"; `cache_bytes`, zero for none.
    """
    opened: list[TaskStores] = []

    def make(
        operator: Operator,
        *,
        fails: bool = False,
        store: Serde[Any] | None = None,
        cache_bytes: int = 0,
    ) -> Stage:
        builders = []
        if store is not None:
            builders.append(
                KeyValueStoreBuilder(
                    "S",
                    "in_memory",
                    STRING,
                    store,
                    timestamped=True,
                    caching=cache_bytes > 0,
                )
            )
        log = _Log()
        stores = TaskStores(
            TASK,
            builders,
            StateDirectory(str(tmp_path), "app"),
            application_id="app",
            changelogs={"S": TopicPartition("app-S-changelog", 0)} if builders else {},
            writer=log,
            context=CurrentRecord(),
            budget=CacheBudget(cache_bytes),
        )
        stores.open()
        opened.append(stores)
        made = Stage(operator, stores, fails)
        log.stage = made
        return made

    yield make
    for stores in opened:
        stores.close(clean=False)


class _Log:
    """Hands what a store logs to its stage, which is made later."""

    stage: Stage

    def log_many(self, *columns: Any) -> None:
        self.stage.log_many(*columns)
