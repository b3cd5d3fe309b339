"""Giving up everything that a stream thread owns, in an orderly way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from millstream.clock import Clock, Deadline
from millstream.errors import RebalanceInProgressError, StreamsError
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.protocols import Producer
from millstream.record import TaskId, TopicPartition
from millstream.runtime.control import Close
from millstream.runtime.loop.commits import Commits, UnfinishedError
from millstream.runtime.loop.last_words import LastWords
from millstream.runtime.loop.rebalances import Rebalances
from millstream.runtime.ownership.tasks import Tasks
from millstream.runtime.work import Work

logger = logging.getLogger(__name__)

#: How long the last commit is tried while the group rebalances, and how often.
_LAST_COMMIT_MS = 5_000
_LAST_COMMIT_PAUSE_MS = 50
#: How long it may take in all when the driver is lost: it kills a thread that it does not hear of.
_LOST_COMMIT_MS = 30_000


class Closing:
    """Commits for the last time, leaves the group, and closes what the thread has.

    Args:
        tasks: what it owns.
        commits: commits them.
        rebalances: the place in the group.
        producer: the producer.
        others: closes everything else, after the group was left.
        last_words: what a thread that has failed still does.
        as_error: what to tell of a failure.
        clock: for patience.
    """

    def __init__(
        self,
        tasks: Tasks,
        commits: Commits,
        rebalances: Rebalances,
        producer: Producer,
        others: Sequence[Callable[[], None]],
        last_words: LastWords,
        as_error: Callable[[BaseException], StreamsError],
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._commits = commits
        self._rebalances = rebalances
        self._producer = producer
        self._others = others
        self._last_words = last_words
        self._as_error = as_error
        self._clock = clock
        self._told = Close()
        #: Tasks that are closed without a commit, while the others are committed.
        self._left_out: list[TaskId] = []
        self._within_ms: int | None = None
        #: Whether all that tasks had in flight came to its end.
        self.has_drained = True

    def obey(self, command: Close) -> None:
        """This is how to close."""
        self._told = command
        self._within_ms = command.commit_timeout_ms

    def hurry(self) -> None:
        """Nobody waits for long: the driver is lost."""
        self._within_ms = _LOST_COMMIT_MS

    def close(self, *, clean: bool) -> StreamsError | None:
        """Give everything up; the first error on the way, if any.

        Args:
            clean: whether what was done may be committed, since nothing has failed.
        """
        committed, failure = self._commit_if(clean)
        told = self._told
        closers: list[Callable[[], None]] = [
            lambda: self._tasks.close(self._left_out, clean=False),
            lambda: self._tasks.close_all(clean=committed),
            # Before the group is left: what is not sent yet must not come after the records of
            # those who take over.
            lambda: None if committed else self._commits.forget_sent(),
            self._producer.close,
            lambda: None if clean else self._last_words.say(),
            lambda: self._rebalances.close(
                leave_group=told.leave_group or not clean, for_good=told.for_good
            ),
            *self._others,
        ]
        for close in closers:
            try:
                close()
            except Exception as error:
                logger.warning("while closing: %s", error)
                failure = failure or self._as_error(error)
        return failure

    def _commit_if(self, clean: bool) -> tuple[bool, StreamsError | None]:
        """Whether everything was committed, and what went wrong with that."""
        if not clean:
            return False, None
        try:
            offsets = self._commit_at_last()
        except UnfinishedError as error:
            # It was waited for.
            self.has_drained = False
            logger.warning("closing without a commit, since %s", error)
            return False, None
        except Exception as error:
            failure = self._as_error(error)
            logger.warning("could not commit before closing: %s", failure)
            return False, failure
        shown = {str(place): offset.offset for place, offset in sorted(offsets.items())}
        logger.info("committed before closing: %s", shown)
        return True, None

    def _commit_at_last(self) -> dict[TopicPartition, CommitOffset]:
        """Commit before closing, also if the group rebalances just now: others close, too.

        Raises:
            UnfinishedError: what tasks have in flight did not come to its end, and was to.
        """
        whole = Deadline(self._clock, self._within_ms)
        committing: Collection[Work] = self._tasks.running
        self.has_drained = self._commits.drain_to_close(committing, self._within_ms)
        deadline = Deadline(self._clock, _LAST_COMMIT_MS)
        while True:
            try:
                return self._commits.commit(committing, whole.left_ms)
            except UnfinishedError as error:
                if self._commits.all_or_nothing:
                    raise
                # They were waited for.
                logger.warning("closing without the commit of some: %s", error)
                self._left_out += [task.task_id for task in error.tasks]
                committing = [task for task in committing if task not in error.tasks]
                continue
            except RebalanceInProgressError:
                if deadline.passed:
                    raise
            self._rebalances.progress()
            self._clock.sleep_ms(_LAST_COMMIT_PAUSE_MS)
