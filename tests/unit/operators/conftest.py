"""A bench for an operator: real stores, a real context, and edges that keep emitted records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from millstream.clock import ManualClock
from millstream.operators.operator import Operator
from millstream.operators.record_batch import Batch, Origin
from millstream.processor.handlers import (
    CONTINUE,
    ErrorContext,
    HandlerResponse,
    LogAndFailProcessingExceptionHandler,
)
from millstream.processor.task_context import CurrentRecord
from millstream.record import Headers, Record, TaskId, TopicPartition
from millstream.runtime.task.node_context import DroppedRecords, NodeContext
from millstream.serdes import STRING, Serde
from millstream.state.builders.store_builder import KeyValueStoreBuilder
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
    """The output of an operator: batches by child, where None stands for all children."""

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
        """Return the records that were emitted since the last call."""
        batches, self.batches = self.batches, []
        return [
            (child, Emitted(key, value, batch.timestamps[i], tuple(batch.headers_of(i))))
            for child, batch in batches
            for i, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
        ]


class OperatorBench:
    """Runs one operator.

    `failures` contains the key and value of each record that user code failed on, with the error;
    `changelog` the records that the store logged: key, value and timestamp.
    """

    def __init__(self, operator: Operator, stores: TaskStores, fails: bool) -> None:
        self.operator = operator
        self.edges = Edges()
        self.failures: list[tuple[ErrorContext, Record[Any, Any], Exception]] = []
        self.drops = DroppedRecords(TASK)
        self.stores = stores
        self.changelog: list[tuple[bytes, bytes | None, int]] = []
        self._offset = 0
        handler = LogAndFailProcessingExceptionHandler() if fails else self._skip
        tables = {name: stores.table(name) for name in stores.names}
        context = NodeContext("node", TASK, ManualClock(), self.edges, tables, handler, self.drops)
        operator.init(context)

    def _skip(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        self.failures.append((context, record, error))
        return CONTINUE

    def batch(self, *records: tuple[Any, ...], ordered: bool = False) -> Batch:
        """Return a batch of (key, value, timestamp[, headers]), read at consecutive offsets."""
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
        """Return the records that the operator emits, to any child."""
        return [emitted for _, emitted in self.feed_to_children(*records)]

    def feed_to_children(self, *records: tuple[Any, ...]) -> list[tuple[str | None, Emitted]]:
        """Return the records that the operator emits, each with its child."""
        self.operator.process(self.batch(*records), self.edges)
        return self.edges.take()

    def flush(self) -> list[Emitted]:
        """Return the records that the operator emits during a commit."""
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


MakeBench = Callable[..., OperatorBench]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    """Return a function that makes a bench for an operator.

    Args: the operator; `fails`: whether a failure of user code ends the task; `store`: the serde of
    the values of a store "S"; `cache_bytes`: zero for no cache.
    """
    opened: list[TaskStores] = []

    def make(
        operator: Operator,
        *,
        fails: bool = False,
        store: Serde[Any] | None = None,
        cache_bytes: int = 0,
    ) -> OperatorBench:
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
        bench = OperatorBench(operator, stores, fails)
        log.bench = bench
        return bench

    yield make
    for stores in opened:
        stores.close(clean=False)


class _Log:
    """Passes the log of a store to its bench, which is created later."""

    bench: OperatorBench

    def log_many(self, *columns: Any) -> None:
        self.bench.log_many(*columns)
