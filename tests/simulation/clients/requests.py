"""What consumer, producer and admin client have in common: asking brokers, and waiting for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

from millstream.errors import BrokerUnavailableError, UnknownTopicError
from millstream.record import TopicPartition
from millstream.waker import Waker
from simulation.broker.cluster import Cluster
from simulation.scheduler import Process, Scheduler

T = TypeVar("T")

_RETRY_US: Final = 100_000


class Waits:
    """Where a stream thread waits for records and events, until its time is over or it is woken.

    Args:
        scheduler: the world.
        waker: the thread's own: while it is set, there is no waiting.
    """

    def __init__(self, scheduler: Scheduler, waker: Waker) -> None:
        self._scheduler = scheduler
        self._waker = waker
        self._actor = scheduler.director

    @property
    def is_woken(self) -> bool:
        """Whether there is something to look at."""
        return self._waker.is_set

    def wait(self, delay_us: int) -> None:
        """Wait, unless there is something to look at."""
        if not self.is_woken:
            self._actor = self._scheduler.current
            self._scheduler.step(delay_us, self)

    def end(self, delay_us: int = 0) -> None:
        """There is something: go on, after a while."""
        self._actor.wake(self, delay_us)


class Asking:
    """A client's way to the brokers.

    Args:
        cluster: the cluster.
        process: whose client it is.
    """

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.process = process

    @property
    def dead(self) -> bool:
        """Whether this is called by code that unwinds after its process was killed."""
        return self.scheduler.current.dead

    def leaders(self, places: Iterable[TopicPartition], what: str) -> set[int]:
        """The brokers to ask about partitions.

        Raises:
            UnknownTopicError: a partition does not exist.
        """
        found = set()
        for place in places:
            if place.partition >= self.cluster.topics.get(place.topic, 0):
                raise UnknownTopicError(
                    f"{what} failed: the partition does not exist.",
                    topic=place.topic,
                    partition=place.partition,
                )
            found.add(self.cluster.leader(place))
        return found

    def ask(
        self,
        brokers: Callable[[], Collection[int]],
        answer: Callable[[], T],
        timeout_ms: int,
        what: str,
    ) -> T:
        """A question to some brokers, asked again until all of them answer.

        Args:
            brokers: whom to ask; none means any.
            answer: makes it, on the brokers' side. Made again if it was lost.
            timeout_ms: how long to try.
            what: for the error.

        Raises:
            BrokerUnavailableError: no answer in time.
        """
        scheduler = self.scheduler
        until_us = scheduler.now_us + timeout_ms * 1000
        while True:
            scheduler.step(self.cluster.latency_us())
            if self._reaches(brokers()) and not self.cluster.loses():
                told = answer()
                scheduler.step(self.cluster.latency_us())
                if self._reaches(brokers()) and not self.cluster.loses():
                    return told
            left_us = until_us - scheduler.now_us
            if left_us <= 0:
                raise BrokerUnavailableError(f"{what} failed: no answer within {timeout_ms} ms.")
            scheduler.step(min(_RETRY_US, left_us))

    def _reaches(self, brokers: Collection[int]) -> bool:
        if not brokers:
            return self.cluster.any_reached(self.process)
        return all(self.cluster.reaches(self.process, broker) for broker in brokers)
