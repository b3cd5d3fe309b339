"""Deleting what is done with: repartition topics hold records only until they are committed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from millstream.clock import Clock
from millstream.kafka.rights import Needs, missing_right, told
from millstream.record import TopicPartition
from millstream.runtime.work import Work

logger = logging.getLogger(__name__)


class RecordDeletion(Protocol):
    """The admin client, as far as deleting records goes."""

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Future[Any]]:
        """Delete the records before these offsets, without waiting."""
        ...


class RepartitionPurge:
    """Every `repartition.purge.interval.ms`, deletes committed records of repartition topics.

    Never waits: while a request is under way none is made, and one that fails is made again at
    the next turn.

    Args:
        deletion: deletes records.
        topics: the repartition topics, by their real names.
        interval_ms: at least this long between two requests.
        clock: for the interval.
        user: as whom it is asked; empty if that is not known.
    """

    def __init__(
        self,
        deletion: RecordDeletion,
        topics: Collection[str],
        interval_ms: int,
        clock: Clock,
        user: str = "",
    ) -> None:
        self._deletion = deletion
        self._topics = frozenset(topics)
        self._interval_ms = interval_ms
        self._clock = clock
        self._user = user
        self._last_ms = clock.monotonic_ms()
        self._pending: Mapping[TopicPartition, Future[Any]] = {}
        self._purged: dict[TopicPartition, int] = {}
        #: The topics of which it was said that nobody may delete their records.
        self._refused: set[str] = set()

    def run(self, tasks: Collection[Work]) -> None:
        """Ask for a deletion if one is due."""
        now_ms = self._clock.monotonic_ms()
        if not self._topics or now_ms - self._last_ms < self._interval_ms:
            return
        if not all(future.done() for future in self._pending.values()):
            return
        self._last_ms = now_ms
        for place, future in self._pending.items():
            error = future.exception()
            if error is not None:
                self._tell(place, error)
                self._purged.pop(place, None)
        before = {
            place: offset
            for task in tasks
            for place, offset in task.committed.items()
            if place.topic in self._topics and offset > self._purged.get(place, 0)
        }
        if before:
            self._pending = self._deletion.delete_records(before)
            self._purged.update(before)
            logger.debug("deleting records of %d repartition partitions", len(before))

    def _tell(self, place: TopicPartition, error: BaseException) -> None:
        code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError.NO_ERROR
        right = missing_right(code, place.topic, Needs(self._user, "Delete"))
        if right is None:
            logger.warning("records of %s are not deleted yet: %s", place, error)
        elif place.topic not in self._refused:
            # Said once: the application works without it, only its topics grow.
            self._refused.add(place.topic)
            logger.warning(
                "records of %s that are done with cannot be deleted, so that the topic grows. %s",
                place.topic,
                told([right], self._user),
            )
