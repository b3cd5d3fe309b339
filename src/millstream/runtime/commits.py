"""Committing the tasks of a thread: everything a record caused is written before its offset is."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.member_events import CommitOffset
from millstream.kafka.producer import RecordProducer
from millstream.record import TopicPartition
from millstream.runtime.stream_task import StreamTask

logger = logging.getLogger(__name__)

#: How long one attempt to commit offsets may take.
_COMMIT_TIMEOUT_MS = 15_000


class OffsetCommitter(Protocol):
    """The group member, as far as commits go."""

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None: ...


class Commits:
    """Commits tasks under at-least-once.

    The order is: caches are flushed → the producer is flushed, so that outputs and changelogs are
    acknowledged → offsets are committed → stores write their data with the changelog offset that
    it stands for. A crash anywhere in between repeats work and loses nothing.

    Args:
        producer: the thread's producer.
        committer: commits offsets.
        clock: for the timeout.
        timeout_ms: how long the cluster may not answer (`task.timeout.ms`).
    """

    def __init__(
        self,
        producer: RecordProducer,
        committer: OffsetCommitter,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._producer = producer
        self._committer = committer
        self._clock = clock
        self._timeout_ms = timeout_ms
        #: Commits that went through.
        self.total = 0

    def commit(
        self, tasks: Collection[StreamTask], timeout_ms: int | None = None
    ) -> dict[TopicPartition, CommitOffset]:
        """Commit those of the tasks that have anything to commit; what was committed.

        Args:
            tasks: what to commit.
            timeout_ms: how long the cluster may not answer; by default `task.timeout.ms`.

        Raises:
            RebalanceInProgressError: the group takes no commits now; try again after it.
            TaskMigratedError: this member is no longer in the group.
            ProductionError: an output could not be written.
            BrokerUnavailableError: no answer for the whole timeout.
        """
        needing = [task for task in tasks if task.commit_needed]
        if not needing:
            return {}
        for task in needing:
            try:
                task.prepare_commit()
            except Exception as error:
                failure = task.fail(error)
                raise failure from failure.__cause__
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = Deadline(self._clock, timeout_ms)
        self._producer.flush(deadline.remaining_ms(timeout_ms))
        offsets: dict[TopicPartition, CommitOffset] = {}
        for task in needing:
            offsets.update(task.offsets_to_commit())
        self._commit_offsets(offsets, deadline)
        acked = self._producer.acked_offsets()
        for task in needing:
            task.post_commit(offsets, acked)
        self.total += 1
        return offsets

    def settle(self, tasks: Collection[StreamTask]) -> None:
        """Wait until what tasks have sent is in their topics, as long as a commit would.

        A task that is restored from its changelog, though it has logged since its last commit, must
        not take the end of the changelog for an offset before those records.

        Raises:
            ProductionError: an output could not be written.
            BrokerUnavailableError: no answer for the whole timeout.
        """
        if any(task.commit_needed for task in tasks):
            self._producer.flush(self._timeout_ms)

    def forget_sent(self) -> None:
        """All tasks were closed without a commit: what they sent is sent again by their owners.

        What still waits in the producer is dropped, since it would come after what the new owners
        write.
        """
        self._producer.purge()

    def _commit_offsets(
        self, offsets: Mapping[TopicPartition, CommitOffset], deadline: Deadline
    ) -> None:
        while True:
            try:
                self._committer.commit(offsets, deadline.remaining_ms(_COMMIT_TIMEOUT_MS))
                return
            except BrokerUnavailableError as error:
                if deadline.passed:
                    raise
                logger.warning("offsets are not committed yet, trying again: %s", error)
