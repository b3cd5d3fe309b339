"""The parts that all simulated clients share: requests to brokers, and waiting."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

from millstream.clock import Waker
from millstream.errors import BrokerUnavailableError, UnknownTopicError
from millstream.record import TopicPartition
from simulation.broker.cluster import Cluster
from simulation.scheduler import Process, Scheduler

T = TypeVar("T")

_RETRY_US: Final = 100_000


class WaitPoint:
    """The point where a stream thread waits for records and events, until a timeout or a wake-up.

    Args:
        scheduler: the simulation's scheduler.
        waker: the thread's waker; waits return immediately while it is set.
    """

    def __init__(self, scheduler: Scheduler, waker: Waker) -> None:
        self._scheduler = scheduler
        self._waker = waker
        self._actor = scheduler.director

    @property
    def is_woken(self) -> bool:
        """Whether the thread has been woken."""
        return self._waker.is_set

    def wait(self, delay_us: int) -> None:
        """Wait, unless the thread has been woken."""
        if not self.is_woken:
            self._actor = self._scheduler.current
            self._scheduler.step(delay_us, self)

    def end(self, delay_us: int = 0) -> None:
        """End the wait after a delay."""
        self._actor.wake(self, delay_us)


class BrokerRequests:
    """A client's requests to brokers.

    Args:
        cluster: the cluster.
        process: the client's process.
    """

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.process = process

    @property
    def dead(self) -> bool:
        """Whether the caller's process was killed, so that its code is unwinding."""
        return self.scheduler.current.dead

    def leaders(self, places: Iterable[TopicPartition], what: str) -> set[int]:
        """The leaders of partitions.

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

    def send(
        self,
        brokers: Callable[[], Collection[int]],
        answer: Callable[[], T],
        timeout_ms: int,
        what: str,
    ) -> T:
        """Send a request to brokers, with retries until all of them answer.

        Args:
            brokers: returns the brokers; none means any broker.
            answer: computes the answer on the brokers; called again if the answer was lost.
            timeout_ms: the timeout of all attempts.
            what: the name of the request for the error.

        Raises:
            BrokerUnavailableError: no answer in time.
        """
        scheduler = self.scheduler
        until_us = scheduler.now_us + timeout_ms * 1000
        while True:
            scheduler.step(self.cluster.latency_us())
            if self._reaches(brokers()) and not self.cluster.drops_message():
                response = answer()
                scheduler.step(self.cluster.latency_us())
                if self._reaches(brokers()) and not self.cluster.drops_message():
                    return response
            left_us = until_us - scheduler.now_us
            if left_us <= 0:
                raise BrokerUnavailableError(f"{what} failed: no answer within {timeout_ms} ms.")
            scheduler.step(min(_RETRY_US, left_us))

    def _reaches(self, brokers: Collection[int]) -> bool:
        if not brokers:
            return self.cluster.any_reached(self.process)
        return all(self.cluster.reaches(self.process, broker) for broker in brokers)
