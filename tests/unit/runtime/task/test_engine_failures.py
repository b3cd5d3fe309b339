"""Failures of storage and changelogs below user code, however user code handles them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.machine.failing_disk import CORRUPTION, IO_ERROR, FailingStorages
from support.tasks.commit_bench import INPUTS, Bench, changelog

from millstream import (
    LogAndContinueProcessingExceptionHandler,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
)
from millstream.errors import AccessDeniedError, ProductionError, StreamsError, TaskCorruptedError
from millstream.record import TopicPartition
from millstream.runtime.queries.query_messages import QueryStore
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.serdes import STRING
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology

Use = Callable[[Any, str], None]


def propagate(store: Any, value: str) -> None:
    """Lets errors propagate."""
    store.put(value, store.get("other") or "x")


def swallow(store: Any, value: str) -> None:
    """Ignores errors."""
    try:
        propagate(store, value)
    except Exception:
        return


def wrap(store: Any, value: str) -> None:
    """Raises errors of its own."""
    try:
        propagate(store, value)
    except Exception as error:
        raise ValueError("cannot store it") from error


def hide(store: Any, value: str) -> None:
    """Raises errors of its own, without their cause."""
    try:
        propagate(store, value)
    except Exception:
        raise KeyError(value) from None


class _Put(Processor[str, str, str, str]):
    def __init__(self, use: Use, *, punctuates: bool) -> None:
        self._use = use
        self._punctuates = punctuates
        self._values: list[str] = []

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.store = context.get_state_store("ids")
        if self._punctuates:
            one = timedelta(milliseconds=1)
            context.schedule(one, PunctuationType.STREAM_TIME, self._punctuate)

    def process(self, record: Record[str, str]) -> None:
        if self._punctuates:
            self._values.append(record.value)
        else:
            self._use(self.store, record.value)
        self.context.forward(record)

    def _punctuate(self, time_ms: int) -> None:
        values, self._values = self._values, []
        for value in values:
            self._use(self.store, value)


def _topology(use: Use, *, logged: bool, punctuates: bool = False) -> Topology:
    builder = StreamsBuilder()
    ids = Stores.key_value_builder(Stores.persistent_key_value("ids"), STRING, STRING)
    builder.add_state_store(ids)
    read = builder.stream(list(INPUTS), key=STRING, value=STRING)
    supplier = partial(_Put, use, punctuates=punctuates)
    read.process(supplier, stores=["ids"]).to("out", key=STRING, value=STRING)
    return builder.build()


class _NeverCalled(LogAndContinueProcessingExceptionHandler):
    def __call__(self, *arguments: Any) -> Any:
        pytest.fail("a handler was called for a failure of the engine")


@pytest.fixture(params=["process", "punctuate"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(use: Use, **more: Any) -> Bench:
        topology = partial(_topology, use, punctuates=request.param == "punctuate")
        handler = _NeverCalled()
        benches.append(
            Bench(tmp_path, topology=topology, processing_exception_handler=handler, **more)
        )
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


@pytest.mark.parametrize("use", [propagate, swallow, wrap, hide])
@pytest.mark.parametrize(
    "error", [AccessDeniedError("no login"), ProductionError("too large"), OSError("a defect")]
)
def test_failed_changelog_write_fails_the_task(
    make: Callable[..., Bench], use: Use, error: Exception
) -> None:
    """The store has the write, its changelog does not: the write must not outlive the task.

    Detects errors of the engine that count as the user's, so that CONTINUE drops the record and
    commits its offset.
    """
    bench = make(use)
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    send = bench.log.send_many

    def refuse_once(topic: str, *rest: Any) -> None:
        if "changelog" not in topic:
            return send(topic, *rest)
        bench.log.send_many = send  # type: ignore[method-assign]
        raise error

    bench.log.send_many = refuse_once  # type: ignore[method-assign, assignment]
    with pytest.raises(type(error)) as caught:
        bench.feed(one, "in", "b", "c")
    assert caught.value is error
    with pytest.raises(type(error)):
        one.prepare_commit()
    one.close(clean=False)
    bench.log.purge()
    bench.tasks[0] = one = bench.start(0)
    stored = {value for value in "abc" if one.stores.store("ids").get(value) is not None}
    logged = {key.decode() for key, _ in bench.log.written[changelog("ids", 0)] if key}
    assert stored == logged == {"a"}
    assert bench.group.committed[TopicPartition("in", 0)].offset == 1


@pytest.mark.parametrize("use", [propagate, swallow, wrap, hide])
@pytest.mark.parametrize(
    ("problem", "kind"), [(IO_ERROR, StreamsError), (CORRUPTION, TaskCorruptedError)]
)
def test_unreadable_disk_fails_the_task(
    make: Callable[..., Bench], use: Use, problem: str, kind: type[StreamsError]
) -> None:
    """A failed read must not look like a missing value. A corrupted store is rebuilt."""
    storages = FailingStorages(RocksDBStorages())
    bench = make(use, storages=storages)
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    storages.failures["read"] = problem
    with pytest.raises(kind, match="Cannot read store ids of task 0_0"):
        bench.feed(one, "in", "b")
    storages.failures.clear()
    one.close(clean=False)
    one.revive()
    one.open_stores()
    assert one.stores.failures.first is None


def test_failed_query_does_not_fail_the_task(make: Callable[..., Bench]) -> None:
    """The caller gets the error; the task continues."""
    storages = FailingStorages(RocksDBStorages())
    bench = make(propagate, storages=storages)
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    queries = StoreQueries({}, lambda: bench.tasks, lambda name: None, bench.clock)
    query = QueryStore("ids", ReadRequest(ReadKind.GET, b"never"), "a test", with_position=False)
    storages.failures["read"] = IO_ERROR
    answer = queries.answer(query)
    assert "Cannot read store ids" in str(answer)
    storages.failures.clear()
    bench.feed(one, "in", "b")
    assert one.processed_total == 2


class _PutInInit(Processor[str, str, str, str]):
    """Writes to its store before the first record, ignoring errors."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        swallow(context.get_state_store("ids"), "before the first record")

    def process(self, record: Record[str, str]) -> None: ...


def test_a_failure_in_init_fails_the_task(tmp_path: Path) -> None:
    """Detects a task that continues until a query for another task clears the failure."""

    def topology(*, logged: bool) -> Topology:
        builder = StreamsBuilder()
        ids = Stores.key_value_builder(Stores.persistent_key_value("ids"), STRING, STRING)
        builder.add_state_store(ids)
        builder.stream(list(INPUTS), key=STRING, value=STRING).process(_PutInInit, stores=["ids"])
        return builder.build()

    storages = FailingStorages(RocksDBStorages())
    bench = Bench(tmp_path, topology=topology, storages=storages)
    bench.tasks.pop().close(clean=False)
    storages.failures["read"] = IO_ERROR
    with pytest.raises(StreamsError, match="Cannot read store ids of task 0_1"):
        bench.start(1)
    bench.close()


def test_query_does_not_clear_the_failures_of_user_code(make: Callable[..., Bench]) -> None:
    """Failures that were recorded before the query belong to the task."""
    bench = make(swallow)
    one, _ = bench.tasks
    failure = ProductionError("too large")
    one.stores.failures.record(failure)
    queries = StoreQueries({}, lambda: bench.tasks, lambda name: None, bench.clock)
    queries.answer(
        QueryStore("ids", ReadRequest(ReadKind.GET, b"k"), "a test", with_position=False)
    )
    with pytest.raises(ProductionError, match="too large"):
        one.prepare_commit()
