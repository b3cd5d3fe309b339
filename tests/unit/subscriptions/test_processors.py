"""Processors that live: when they are opened and closed, and who waits for that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream.errors import IllegalStateError
from millstream.parallel import Scope, Scoped, TaskProcessor
from millstream.record import TopicPartition
from millstream.subscriptions.processors import Chain, Instances

SLOW, OTHER = TopicPartition("tasks", 0), TopicPartition("tasks", 1)


class Slow(TaskProcessor):
    """Takes long to open for one partition."""

    opening = threading.Event()
    gate = threading.Event()
    life: list[tuple[str, TopicPartition | None]] = []  # noqa: RUF012

    def open(self, place: TopicPartition | None) -> None:
        self._place = place
        if place == SLOW:
            self.opening.set()
            assert self.gate.wait(20)
        self.life.append(("opened", place))

    def close(self) -> None:
        self.life.append(("closed", self._place))


@pytest.fixture
def instances() -> Instances:
    Slow.opening, Slow.gate, Slow.life = threading.Event(), threading.Event(), []
    return Instances(Chain.of(Scoped(Slow, Scope.PARTITION)))


def test_one_that_is_opened_holds_up_nobody_else(instances: Instances) -> None:
    """Neither the units of another partition, nor a partition that is given up; and it is opened
    once for all who need it."""
    with ThreadPoolExecutor(3) as pool:
        slow = [pool.submit(instances.calls, SLOW, unit) for unit in (0, 1)]
        assert Slow.opening.wait(20)
        try:
            pool.submit(instances.calls, OTHER, 0).result(20)
            pool.submit(instances.close_partition, OTHER).result(20)
        finally:
            Slow.gate.set()
        first, second = (each.result(20) for each in slow)
    assert first == second
    assert Slow.life == [("opened", OTHER), ("closed", OTHER), ("opened", SLOW)]


def test_one_that_is_given_up_while_it_is_opened_is_closed(instances: Instances) -> None:
    """Once, by whoever opens it; the next one is another."""
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(instances.calls, SLOW, 0)
        assert Slow.opening.wait(20)
        instances.close_partition(SLOW)
        Slow.gate.set()
        with pytest.raises(IllegalStateError, match="Slow was opened for tasks that were given up"):
            slow.result(20)
    instances.calls(SLOW, 0)
    instances.close()
    assert Slow.life == [("opened", SLOW), ("closed", SLOW)] * 2
