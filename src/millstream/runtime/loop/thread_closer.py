"""Orderly shutdown of a stream thread, and the shutdown request after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import RebalanceInProgressError, ShutdownRequestedError, StreamsError
from millstream.kafka.membership.member_events import CommitOffset
from millstream.kafka.protocols import Producer
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.commits import TaskCommitter, TasksInFlightError, describe_offsets
from millstream.runtime.loop.rebalances import RebalanceHandler
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task_management.task_manager import TaskManager
from millstream.runtime.thread_control import Close, Control, RequestShutdown, ThreadFailed

logger = logging.getLogger(__name__)

#: How long the final commit is retried while the group rebalances, and the pause between attempts.
_FINAL_COMMIT_MS = 5_000
_FINAL_COMMIT_PAUSE_MS = 50
#: The total timeout of the final commit when the driver is lost. It is limited because the driver
#: kills an unreachable thread.
_LOST_COMMIT_MS = 30_000

#: The timeout for the driver's decision after a failure, which may call a user's handler.
_DECISION_TIMEOUT_MS: Final = 2_000
#: The timeout for the group's confirmation; after that, another thread must send the request.
_REQUEST_TIMEOUT_MS: Final = 10_000
_PAUSE_MS: Final = 20


class ShutdownRequester:
    """Awaits the driver's decision after a failure; requests a shutdown if needed.

    The thread stays in the group in the meantime. If the thread left first, its tasks would move to
    other instances, together with the record that caused the failure.
    """

    def __init__(self, control: Control, rebalances: RebalanceHandler, clock: Clock) -> None:
        self._control = control
        self._rebalances = rebalances
        self._clock = clock

    def run(self) -> None:
        """Wait for the decision and act on it. The thread must have stopped processing."""
        why = self._shutdown_reason()
        if why is None:
            return
        try:
            self._rebalances.request_shutdown(why)
            self._await_confirmation()
        except ShutdownRequestedError as answer:
            self._control.report(ThreadFailed(answer))
        except StreamsError as error:
            logger.warning("could not send the shutdown request to the group: %s", error)

    def _shutdown_reason(self) -> str | None:
        deadline = Deadline(self._clock, _DECISION_TIMEOUT_MS)
        while not (deadline.passed or self._control.lost):
            for received in self._control.commands():
                match received.command:
                    case RequestShutdown(why):
                        return why
                    case Close():
                        return None
            self._pause()
        return None

    def _await_confirmation(self) -> None:
        deadline = Deadline(self._clock, _REQUEST_TIMEOUT_MS)
        while not deadline.passed:
            if self._rebalances.handle_next_event() is None:
                self._pause()

    def _pause(self) -> None:
        self._rebalances.progress()
        self._clock.sleep_ms(_PAUSE_MS)


class ThreadCloser:
    """Makes the final commit, leaves the group, and closes all parts of the thread.

    The functions `others` are called after leaving the group.
    """

    def __init__(
        self,
        tasks: TaskManager,
        committer: TaskCommitter,
        rebalances: RebalanceHandler,
        producer: Producer,
        others: Sequence[Callable[[], None]],
        shutdown_requester: ShutdownRequester,
        as_error: Callable[[BaseException], StreamsError],
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._committer = committer
        self._rebalances = rebalances
        self._producer = producer
        self._others = others
        self._shutdown_requester = shutdown_requester
        self._as_error = as_error
        self._clock = clock
        self._close_command = Close()
        #: Tasks that are closed without a commit, unlike the others.
        self._uncommitted: list[TaskId] = []
        self._commit_timeout_ms: int | None = None
        #: Whether everything in flight has finished.
        self.has_drained = True

    def configure(self, command: Close) -> None:
        self._close_command = command
        self._commit_timeout_ms = command.commit_timeout_ms

    def limit_commit_time(self) -> None:
        self._commit_timeout_ms = _LOST_COMMIT_MS

    def close(self, *, clean: bool) -> StreamsError | None:
        """Close everything; return the first error, if any.

        Uncommitted work is only committed if `clean`, that is, if nothing has failed.
        """
        committed, failure = self._commit_if(clean)
        command = self._close_command
        closers: list[Callable[[], None]] = [
            lambda: self._tasks.close(self._uncommitted, clean=False),
            lambda: self._tasks.close_all(clean=committed),
            # Before leaving the group, since unsent records must not follow the records of the new
            # owners.
            lambda: None if committed else self._committer.discard_uncommitted(),
            self._producer.close,
            lambda: None if clean else self._shutdown_requester.run(),
            lambda: self._rebalances.close(
                leave_group=command.leave_group or not clean, for_good=command.for_good
            ),
            *self._others,
        ]
        for close in closers:
            try:
                close()
            except Exception as error:
                logger.warning("error while closing: %s", error)
                failure = failure or self._as_error(error)
        return failure

    def _commit_if(self, clean: bool) -> tuple[bool, StreamsError | None]:
        """Return whether everything was committed, and the error of the commit."""
        if not clean:
            return False, None
        try:
            offsets = self._final_commit()
        except TasksInFlightError as error:
            # Draining the tasks has timed out.
            self.has_drained = False
            logger.warning("closing without a commit because %s", error)
            return False, None
        except Exception as error:
            failure = self._as_error(error)
            logger.warning("could not commit before closing: %s", failure)
            return False, failure
        logger.info("committed before closing: %s", describe_offsets(offsets))
        return True, None

    def _final_commit(self) -> dict[TopicPartition, CommitOffset]:
        """Commit before closing, even during a rebalance: other instances may close, too.

        Raises TasksInFlightError if tasks could not be drained and the commit requires all of them.
        """
        overall = Deadline(self._clock, self._commit_timeout_ms)
        committing: Collection[StreamTask] = self._tasks.running
        self.has_drained = self._committer.drain_to_close(committing, self._commit_timeout_ms)
        deadline = Deadline(self._clock, _FINAL_COMMIT_MS)
        while True:
            try:
                return self._committer.commit(committing, overall.left_ms)
            except TasksInFlightError as error:
                if self._committer.all_or_nothing:
                    raise
                # Draining these tasks has timed out.
                logger.warning("closing some tasks without a commit: %s", error)
                self._uncommitted += [task.task_id for task in error.tasks]
                committing = [task for task in committing if task not in error.tasks]
                continue
            except RebalanceInProgressError:
                if deadline.passed:
                    raise
            self._rebalances.progress()
            self._clock.sleep_ms(_FINAL_COMMIT_PAUSE_MS)
