"""The lifecycle of processors: their creation, and the wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.waiting import wait_for

from millstream.errors import IllegalStateError
from millstream.parallel import BatchingProcessor, Scope, Scoped, TaskProcessor
from millstream.record import TopicPartition
from millstream.subscriptions.task_processors import ProcessorChain, ProcessorInstances

FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)


class Slow(TaskProcessor):
    """Opens when the test allows; only in the first partition this takes long."""

    may_open: threading.Event
    created: list[Slow]

    def __init__(self) -> None:
        self.place: TopicPartition | None = None
        self.is_closed = False

    def open(self, place: TopicPartition | None) -> Any:
        self.place = place
        self.created.append(self)
        if place == FIRST:
            assert self.may_open.wait(10)

    def process(self, context: Any, task: Any) -> Any: ...

    def close(self) -> Any:
        self.is_closed = True


@pytest.fixture
def instances() -> ProcessorInstances:
    Slow.may_open, Slow.created = threading.Event(), []
    return ProcessorInstances(ProcessorChain.of(Scoped(Slow, Scope.PARTITION)))


class Caller:
    """Requests the processor of a partition, in a thread of its own."""

    def __init__(self, instances: ProcessorInstances) -> None:
        self.results: list[Any] = []
        self._instances = instances
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            (call,) = self._instances.calls(FIRST, None)
        except IllegalStateError as error:
            self.results.append(error)
        else:
            self.results.append(call)

    def join(self) -> Any:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.results[0]


def test_slow_open_does_not_delay_others(instances: ProcessorInstances) -> None:
    """Neither the processors of other partitions nor their close."""
    caller = Caller(instances)
    wait_for(lambda: len(Slow.created) == 1, 10, "it is being opened")
    other = threading.Thread(target=instances.calls, args=(SECOND, None), daemon=True)
    other.start()
    other.join(5)
    assert [each.place for each in Slow.created] == [FIRST, SECOND]
    closing = threading.Thread(target=instances.close_partition, args=(SECOND,), daemon=True)
    closing.start()
    closing.join(5)
    assert Slow.created[1].is_closed
    Slow.may_open.set()
    assert caller.join().__self__ is Slow.created[0]


def test_callers_wait_for_a_processor_that_is_being_opened(instances: ProcessorInstances) -> None:
    callers = [Caller(instances) for _ in range(4)]
    wait_for(lambda: len(Slow.created) == 1, 10, "it is being opened")
    Slow.may_open.set()
    assert {caller.join().__self__ for caller in callers} == {Slow.created[0]}
    assert len(Slow.created) == 1


def test_processor_that_is_closed_during_its_open_is_closed_afterwards(
    instances: ProcessorInstances,
) -> None:
    """It is not returned to its callers; later calls get a new one."""
    callers = [Caller(instances) for _ in range(2)]
    wait_for(lambda: len(Slow.created) == 1, 10, "it is being opened")
    closing = threading.Thread(target=instances.close_partition, args=(FIRST,), daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()
    Slow.may_open.set()
    assert all(isinstance(caller.join(), IllegalStateError) for caller in callers)
    assert [each.is_closed for each in Slow.created] == [True]
    call: Any
    (call,) = instances.calls(FIRST, None)
    assert call.__self__ is Slow.created[1]


def yielding(*arguments: Any) -> Iterator[Any]:
    """A generator function: a call does not execute its code."""
    yield arguments


class Yielding(TaskProcessor):
    def process(self, context: Any, task: Any) -> Any:
        yield task


@pytest.mark.parametrize(
    "processor",
    [
        yielding,
        partial(yielding, 1),
        Yielding,
        Yielding(),
        Scoped(Yielding, Scope.PARTITION),
        [lambda context, task: context.push(task), yielding],
    ],
)
def test_generator_functions_are_rejected(processor: Any) -> None:
    """Detects a task that is committed although no line of its processor was executed."""
    with pytest.raises(TypeError, match=r"ield\S* is a generator function, because of its yield"):
        ProcessorChain.of(processor)


def test_supplied_processor_that_yields_is_rejected_at_its_creation() -> None:
    """Only the created object shows that its `process` is a generator function."""
    instances = ProcessorInstances(ProcessorChain.of(Scoped(lambda: Yielding())))
    with pytest.raises(TypeError, match="generator function"):
        instances.calls(TopicPartition("in", 0), None)


def test_batch_functions_that_yield_are_rejected() -> None:
    with pytest.raises(TypeError, match="generator function"):
        BatchingProcessor(yielding, capacity=5, linger=timedelta(0))
