"""Deletes committed records of repartition topics, and unused state directories."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from millstream.clock import Clock
from millstream.kafka.user_permissions import AccessContext, missing_permission, permission_advice
from millstream.record import TopicPartition
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.directories.state_directory import StateDirectory

logger = logging.getLogger(__name__)


class RecordDeletion(Protocol):
    """Deletes records, like the admin client."""

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Future[Any]]:
        """Delete the records before these offsets, without waiting."""


class RepartitionPurge:
    """Deletes committed records of repartition topics at intervals.

    The interval is `repartition.purge.interval.ms`. The purge never waits: there is one request at
    a time, and a failed request is repeated after the interval.

    Args:
        topics: the real names of the repartition topics.
        user: the user that sends the requests; empty if unknown.
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
        #: Topics for which a missing permission was logged.
        self._denied_topics: set[str] = set()

    def run(self, tasks: Collection[StreamTask]) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._topics or now_ms - self._last_ms < self._interval_ms:
            return
        if not all(future.done() for future in self._pending.values()):
            return
        self._last_ms = now_ms
        for partition, future in self._pending.items():
            error = future.exception()
            if error is not None:
                self._log_failure(partition, error)
                self._purged.pop(partition, None)
        before = {
            partition: offset
            for task in tasks
            for partition, offset in task.committed.items()
            if partition.topic in self._topics and offset > self._purged.get(partition, 0)
        }
        if before:
            self._pending = self._deletion.delete_records(before)
            self._purged.update(before)
            logger.debug("deleting records of %d repartition partitions", len(before))

    def _log_failure(self, partition: TopicPartition, error: BaseException) -> None:
        code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError.NO_ERROR
        permission = missing_permission(code, partition.topic, AccessContext(self._user, "Delete"))
        if permission is None:
            logger.warning("records of %s are not deleted yet: %s", partition, error)
        elif partition.topic not in self._denied_topics:
            # Logged once: the application works without the deletion, but its topics grow.
            self._denied_topics.add(partition.topic)
            logger.warning(
                "committed records of %s cannot be deleted, so the topic grows. %s",
                partition.topic,
                permission_advice([permission], self._user),
            )


class StateCleanup:
    """Deletes the state directories of tasks that have been unused for a while.

    A directory is deleted if it has been unused for `state.cleanup.delay.ms`, which is also the
    interval of the cleanup.

    An unused directory is kept for a while because its task may return. Much later, the directory
    would be harmful: by then, the changelog no longer contains the tombstones of keys that were
    deleted in the meantime.
    """

    def __init__(self, directory: StateDirectory, unused_for_ms: int, clock: Clock) -> None:
        self._directory = directory
        self._unused_for_ms = unused_for_ms
        self._clock = clock
        self._last_run_ms = clock.monotonic_ms()

    def run(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_run_ms < self._unused_for_ms:
            return
        self._last_run_ms = now_ms
        self._directory.remove_obsolete_tasks(unused_for_ms=self._unused_for_ms, clock=self._clock)
