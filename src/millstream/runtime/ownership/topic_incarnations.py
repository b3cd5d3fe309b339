"""Whether a topic is still the one that it was: created anew under its name, it is another one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.record import TopicPartition

logger = logging.getLogger(__name__)

#: How long the loop may stand still for one request.
_TIMEOUT_MS: Final = 3_000


class TopicIndex(Protocol):
    """The admin client, as far as the ids of topics go."""

    def topic_ids(self, topics: Iterable[str], timeout_ms: int, /) -> Mapping[str, str]: ...


class Reader(Protocol):
    """A task that reads topics."""

    @property
    def partitions(self) -> frozenset[TopicPartition]: ...

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of its topics when it began to read them, as far as they were known."""
        ...


R = TypeVar("R", bound=Reader)


class TopicIncarnations:
    """The ids of topics (KIP-516), by which one that was deleted and created again is found out.

    Its offsets begin at 0 again, so a position of before would skip what the new one has below it.
    Brokers before Kafka 2.8 know no ids: there nothing is found out.

    Args:
        index: tells the ids.
        clock: says when to look again.
        interval_ms: how often to look (`metadata.max.age.ms`).
    """

    def __init__(self, index: TopicIndex, clock: Clock, interval_ms: int) -> None:
        self._index = index
        self._clock = clock
        self._interval_ms = interval_ms
        self._next = Deadline(clock, interval_ms)

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The id of each of the topics that exists.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        return self._index.topic_ids(sorted(topics), _TIMEOUT_MS)

    def outdated(self, readers: Sequence[R]) -> list[R]:
        """Those that read a topic which another one has replaced since they began.

        Looks now and then; what brokers do not answer is asked later.
        """
        if not readers or not self._next.passed:
            return []
        self._next = Deadline(self._clock, self._interval_ms)
        try:
            ids = self.ids({topic for reader in readers for topic in reader.topic_ids})
        except BrokerUnavailableError as error:
            logger.debug("it is not known whether topics were created anew: %s", error)
            return []
        return [
            reader
            for reader in readers
            if any(ids.get(topic, known) != known for topic, known in reader.topic_ids.items())
        ]
