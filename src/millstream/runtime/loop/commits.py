"""Committing the tasks of a thread: everything a record caused is written before its offset is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.cluster.insisting import insist
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.protocols import Producer
from millstream.record import TopicPartition
from millstream.runtime.work import Work, failures_of

logger = logging.getLogger(__name__)

#: How long one attempt to commit offsets may take.
_COMMIT_TIMEOUT_MS = 15_000
#: How long work that is given up may take to finish what it has taken. A part of the time that a
#: group gives its members, and no more than half of what a worker has when its machine ends it.
_DRAIN_TIMEOUT_MS = 5_000
#: How long a flush may keep this thread from anything else. Python handles no signal meanwhile.
_FLUSH_STEP_MS = 1_000


class OffsetCommitter(Protocol):
    """The group member, as far as commits go."""

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None: ...

    def progress(self) -> None:
        """The processing loop is alive, though it waits (`max.poll.interval.ms`)."""
        ...


class Commits:
    """Commits tasks under at-least-once.

    The order is: caches are flushed → the producer is flushed, so that outputs and changelogs are
    acknowledged → offsets are committed → stores write their data with the changelog offset that
    it stands for. A crash anywhere in between repeats work and loses nothing.

    What the cluster does not answer is tried again. `task.timeout.ms` bounds the tries after the
    first failed one: a single try always has the time that its kind of request needs, so with 0
    there is one try.

    Args:
        producer: the thread's producer.
        committer: commits offsets. Told of progress while the cluster does not answer: a thread
            that waits out an outage is not to lose its tasks for it.
        clock: for the timeouts.
        timeout_ms: how long a request that has failed is tried again (`task.timeout.ms`).
        flush_timeout_ms: how long one flush may take: as long as the producer itself goes on trying
            to deliver a record.
    """

    def __init__(
        self,
        producer: Producer,
        committer: OffsetCommitter,
        clock: Clock,
        timeout_ms: int,
        flush_timeout_ms: int,
    ) -> None:
        self._producer = producer
        self._committer = committer
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._flush_timeout_ms = flush_timeout_ms
        #: Commits that went through.
        self.total = 0

    def drain(self, tasks: Collection[Work], within_ms: int | None = None) -> None:
        """Wait for what tasks have taken and not finished, before a commit that is their last here.

        What does not come to its end in time is repeated by the next owners.

        Args:
            tasks: what is given up.
            within_ms: how long it may take at most; None for the usual time.

        Raises:
            StreamsError: user code failed.
        """
        most_ms = _DRAIN_TIMEOUT_MS if within_ms is None else min(within_ms, _DRAIN_TIMEOUT_MS)
        deadline = Deadline(self._clock, most_ms)
        for task in tasks:
            with failures_of(task):
                drained = task.drain(deadline)
            if not drained:
                logger.warning(
                    "task %s has records that are not done after %d ms: its next owner repeats "
                    "them",
                    task.task_id,
                    most_ms,
                )

    def commit(
        self, tasks: Collection[Work], within_ms: int | None = None
    ) -> dict[TopicPartition, CommitOffset]:
        """Commit those of the tasks that have anything to commit; what was committed.

        Args:
            tasks: what to commit.
            within_ms: how long all of it may take, tries included; None for no such bound.

        Raises:
            RebalanceInProgressError: the group takes no commits now; try again after it.
            TaskMigratedError: this member is no longer in the group.
            ProductionError: an output could not be written.
            BrokerUnavailableError: no answer in time.
        """
        needing = [task for task in tasks if task.commit_needed]
        if not needing:
            return {}
        for task in needing:
            with failures_of(task):
                task.prepare_commit()
        # Before the flush: a record that is finished during it may have sent what is not flushed.
        offsets: dict[TopicPartition, CommitOffset] = {}
        for task in needing:
            offsets.update(task.offsets_to_commit())
        whole = Deadline(self._clock, within_ms)
        self._flush(whole)
        self._insist(
            "offsets are not committed",
            lambda timeout_ms: self._committer.commit(offsets, timeout_ms),
            _COMMIT_TIMEOUT_MS,
            whole,
        )
        acked = self._producer.acked_offsets()
        for task in needing:
            task.post_commit(offsets, acked)
        self.total += 1
        return offsets

    def settle(self, tasks: Collection[Work]) -> None:
        """Wait until what tasks have sent is in their topics, as long as a commit would.

        A task that is restored from its changelog, though it has logged since its last commit, must
        not take the end of the changelog for an offset before those records.

        Raises:
            ProductionError: an output could not be written.
            BrokerUnavailableError: no answer in time.
        """
        if any(task.commit_needed for task in tasks):
            self._flush(Deadline(self._clock, None))

    def forget_sent(self) -> None:
        """All tasks were closed without a commit: what they sent is sent again by their owners.

        What still waits in the producer is dropped, since it would come after what the new owners
        write.
        """
        self._producer.purge()

    def _flush(self, whole: Deadline) -> None:
        what = "records that were sent are not acknowledged"
        self._insist(what, self._flush_in_steps, self._flush_timeout_ms, whole)

    def _flush_in_steps(self, timeout_ms: int) -> None:
        deadline = Deadline(self._clock, timeout_ms)
        while True:
            try:
                self._producer.flush(deadline.remaining_ms(_FLUSH_STEP_MS))
                return
            except BrokerUnavailableError as error:
                if deadline.passed:
                    raise BrokerUnavailableError(
                        f"What was sent is not acknowledged after {timeout_ms} ms, at last: "
                        f"{error.message}"
                    ) from error
            self._committer.progress()

    def _insist(
        self, what: str, attempt: Callable[[int], None], most_ms: int, whole: Deadline
    ) -> None:
        insist(
            lambda: attempt(whole.remaining_ms(most_ms)),
            what,
            self._timeout_ms,
            self._clock,
            self._committer.progress,
            # An attempt itself waits for long.
            pause_ms=0,
            whole=whole,
        )
