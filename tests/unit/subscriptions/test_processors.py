"""Processors that live: who makes them, and who waits for that."""

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
from millstream.subscriptions.processors import Chain, Instances

HERE, THERE = TopicPartition("in", 0), TopicPartition("in", 1)


class Slow(TaskProcessor):
    """Opens when it may, in the partition whose opening takes long."""

    may_open: threading.Event
    lives: list[Slow]

    def __init__(self) -> None:
        self.place: TopicPartition | None = None
        self.is_closed = False

    def open(self, place: TopicPartition | None) -> Any:
        self.place = place
        self.lives.append(self)
        if place == HERE:
            assert self.may_open.wait(10)

    def process(self, context: Any, task: Any) -> Any: ...

    def close(self) -> Any:
        self.is_closed = True


@pytest.fixture
def instances() -> Instances:
    Slow.may_open, Slow.lives = threading.Event(), []
    return Instances(Chain.of(Scoped(Slow, Scope.PARTITION)))


class Caller:
    """Asks for the processor of a partition, on a thread of its own."""

    def __init__(self, instances: Instances) -> None:
        self.got: list[Any] = []
        self._instances = instances
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            (call,) = self._instances.calls(HERE, None)
        except IllegalStateError as error:
            self.got.append(error)
        else:
            self.got.append(call)

    def join(self) -> Any:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.got[0]


def test_one_that_takes_long_to_open_holds_up_nobody_else(instances: Instances) -> None:
    """Neither the processors of other partitions nor the closing of one."""
    caller = Caller(instances)
    wait_for(lambda: len(Slow.lives) == 1, 10, "it is being opened")
    other = threading.Thread(target=instances.calls, args=(THERE, None), daemon=True)
    other.start()
    other.join(5)
    assert [each.place for each in Slow.lives] == [HERE, THERE]
    closing = threading.Thread(target=instances.close_partition, args=(THERE,), daemon=True)
    closing.start()
    closing.join(5)
    assert Slow.lives[1].is_closed
    Slow.may_open.set()
    assert caller.join().__self__ is Slow.lives[0]


def test_whoever_needs_one_that_is_being_opened_waits_for_it(instances: Instances) -> None:
    callers = [Caller(instances) for _ in range(4)]
    wait_for(lambda: len(Slow.lives) == 1, 10, "it is being opened")
    Slow.may_open.set()
    assert {caller.join().__self__ for caller in callers} == {Slow.lives[0]}
    assert len(Slow.lives) == 1


def test_what_is_closed_while_it_is_opened_is_closed_when_it_is_open(instances: Instances) -> None:
    """And nobody is given it; the next one of the partition is another one."""
    callers = [Caller(instances) for _ in range(2)]
    wait_for(lambda: len(Slow.lives) == 1, 10, "it is being opened")
    closing = threading.Thread(target=instances.close_partition, args=(HERE,), daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()
    Slow.may_open.set()
    assert all(isinstance(caller.join(), IllegalStateError) for caller in callers)
    assert [each.is_closed for each in Slow.lives] == [True]
    call: Any
    (call,) = instances.calls(HERE, None)
    assert call.__self__ is Slow.lives[1]


def yielding(*arguments: Any) -> Iterator[Any]:
    """A generator function, whose code a call does not execute."""
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
def test_generator_functions_are_refused(processor: Any) -> None:
    """Goal: no task is committed as done although no line of its processor was executed."""
    with pytest.raises(TypeError, match=r"ield\S* is a generator function, because of its yield"):
        Chain.of(processor)


def test_a_supplied_processor_that_yields_is_refused_when_it_is_made() -> None:
    """Goal: the same where only the made object shows it."""
    instances = Instances(Chain.of(Scoped(lambda: Yielding())))
    with pytest.raises(TypeError, match="generator function"):
        instances.calls(TopicPartition("in", 0), None)


def test_batches_that_yield_are_refused() -> None:
    with pytest.raises(TypeError, match="generator function"):
        BatchingProcessor(yielding, capacity=5, linger=timedelta(0))
