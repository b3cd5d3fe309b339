"""Applies the group member's events to the thread's tasks, and rejoins the group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from millstream.assignment.task_assignment import TaskAssignment
from millstream.clock import Clock, Deadline
from millstream.errors import RebalanceInProgressError, TaskCorruptedError, TaskMigratedError
from millstream.kafka.membership.member_events import Assigned, Joining, Lost, MemberEvent, Revoked
from millstream.kafka.protocols import Member
from millstream.runtime.loop.commits import TaskCommitter, TasksInFlightError, describe_offsets
from millstream.runtime.loop.uncommitted_work import UncommittedWork
from millstream.runtime.retry import Backoff
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task_management.task_manager import TaskManager

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_MS = 10_000
#: The number of commit attempts while the group rebalances, and the pause between them.
_COMMIT_ATTEMPTS = 20
_COMMIT_PAUSE_MS = 50
#: The backoff before the group is rejoined, which a successful commit resets.
_INITIAL_BACKOFF_MS = 100
_MAX_BACKOFF_MS = 10_000


@dataclass(frozen=True)
class RebalanceResult:
    """The effect of a member event on the thread's tasks.

    Lost tasks are not committed.
    """

    why: str
    revoked: bool = False
    assigned: bool = False
    assignment: TaskAssignment | None = None
    lost: bool = False


class _DelayedRejoin(NamedTuple):
    due: Deadline
    generation: int | None
    why: str


class RebalanceHandler:
    """Handles the events of the group member for the processing loop.

    A revoked task is committed and suspended before the member rejoins, so two threads never
    process the same task. The next assignment decides whether its state is kept as a standby. A
    lost task is closed without a commit.

    Args:
        static: whether the member has a `group.instance.id`, with which it keeps its tasks across a
            restart.
        shut_down_all: adds a shutdown request to all future joins.
    """

    def __init__(
        self,
        member: Member,
        tasks: TaskManager,
        committer: TaskCommitter,
        decode: Callable[[Assigned], TaskAssignment],
        clock: Clock,
        *,
        uncommitted: UncommittedWork,
        static: bool,
        shut_down_all: Callable[[], None],
    ) -> None:
        self._member = member
        self._tasks = tasks
        self._committer = committer
        self._decode = decode
        self._clock = clock
        self._uncommitted = uncommitted
        self._static = static
        self._mark_shutdown_requested = shut_down_all
        self._next_event: MemberEvent | None = None
        self._follow_up: tuple[int, int] | None = None
        self._rejoin: _DelayedRejoin | None = None
        self._generation: int | None = None
        self._joining = False

    @property
    def blocks_processing(self) -> bool:
        """Whether tasks must not send records.

        During a rebalance, a transaction could time out before its commit.
        """
        return self._joining

    @property
    def is_rebalancing(self) -> bool:
        """Whether the group is rebalancing, according to the member."""
        return self._member.rebalancing

    def start(self) -> None:
        self._member.start()

    def progress(self) -> None:
        """Report that the processing loop makes progress (`max.poll.interval.ms`)."""
        self._member.progress()

    @property
    def rounds(self) -> int:
        return self._member.rounds

    def has_event(self, timeout_ms: int = 0) -> bool:
        """Wait for an event; return whether `handle_next_event` has one to handle."""
        if self._next_event is None:
            self._next_event = self._member.next_event(timeout_ms)
        return self._next_event is not None

    def rejoin(self, why: str, after_ms: int = 0) -> None:
        """Request a rebalance, unless the group starts one in the meantime.

        Does not wait: after the delay, `handle_next_event` sends the request.
        """
        self._rejoin = _DelayedRejoin(Deadline(self._clock, after_ms), self._generation, why)
        self._request_due_rejoin()

    def handle_next_event(self) -> RebalanceResult | None:
        """Handle the next event; return None if there is none.

        Raises StreamsError if the member has failed or the leader reports an error.
        """
        self._request_follow_up()
        self._request_due_rejoin()
        self.has_event()
        event, self._next_event = self._next_event, None
        if event is None:
            return None
        if isinstance(event, Joining):
            return self._on_joining(event)
        if isinstance(event, Revoked):
            return self._on_revoked(event)
        if isinstance(event, Lost):
            return self._on_lost(event)
        if isinstance(event, Assigned):
            return self._on_assigned(event)
        raise event.error

    def request_shutdown(self, why: str) -> None:
        """Request through the group that all instances shut down (KIP-671)."""
        logger.warning("requesting a shutdown of all instances of the application: %s", why)
        self._mark_shutdown_requested()
        # Rejoin even during a rebalance: a join in progress may not contain the request.
        self._member.request_rejoin(f"shutdown of the application requested: {why}")

    def close(self, *, leave_group: bool, for_good: bool = False) -> None:
        """Leave the group. Static members only stop heartbeats, unless `for_good`."""
        leave = leave_group and (for_good or not self._static)
        self._member.close(leave_group=leave, timeout_ms=_CLOSE_TIMEOUT_MS)

    def _on_joining(self, event: Joining) -> RebalanceResult:
        """Commit all finished work. The member must continue even if this fails."""
        self._joining = True
        try:
            # Tasks that remain do not need to be drained.
            self._commit_if_needed()
        finally:
            self._member.acknowledge(event)
        return RebalanceResult("a rebalance has started")

    def _on_revoked(self, event: Revoked) -> RebalanceResult:
        """Commit and suspend revoked tasks. The member must continue even if this fails."""
        revoked = self._tasks.tasks_reading(event.partitions)
        names = [str(task.task_id) for task in revoked]
        try:
            self._committer.drain(revoked)
            committed = self._commit_if_needed(revoked)
            # After a fencing error, all active tasks are already closed.
            left = [task.task_id for task in self._tasks.tasks_reading(event.partitions)]
            if committed:
                self._tasks.suspend(left)
            else:
                self._tasks.close(left, clean=False)
        except TaskCorruptedError:
            left = [task.task_id for task in self._tasks.tasks_reading(event.partitions)]
            self._tasks.close(left, clean=False)
            raise
        finally:
            self._member.acknowledge(event)
        return RebalanceResult(f"tasks {names} move to other threads", revoked=True)

    def _commit_if_needed(self, tasks: Collection[StreamTask] | None = None) -> bool:
        """Commit before these tasks (by default all) are released.

        Commits all tasks, including those that remain, because they share one producer. Returns
        whether the commit succeeded.
        """
        committing = self._tasks.running
        if tasks is None:
            tasks = committing
        if not self._committer.has_pending_work and not any(task.commit_needed for task in tasks):
            return True
        drained, began_ms = False, self._clock.monotonic_ms()
        for _ in range(_COMMIT_ATTEMPTS):
            try:
                offsets = self._committer.commit(committing)
            except TasksInFlightError as error:
                if not drained:
                    self._committer.wait_for_in_flight(error.tasks)
                    drained = True
                elif self._committer.all_or_nothing:
                    logger.warning(
                        "discarding work without a commit: %s after waiting for %d ms.%s",
                        error,
                        self._clock.monotonic_ms() - began_ms,
                        self._uncommitted.describe(),
                    )
                    self.discard_work()
                    return False
                else:
                    logger.warning("committing only the other tasks: %s", error)
                    committing = [task for task in committing if task not in error.tasks]
            except RebalanceInProgressError as error:
                logger.debug("retrying the commit of tasks to be released: %s", error)
                self._member.progress()
                self._clock.sleep_ms(_COMMIT_PAUSE_MS)
            except TaskMigratedError as error:
                logger.warning(
                    "tasks to be released are not committed: %s%s",
                    error,
                    self._uncommitted.describe(),
                )
                self.discard_work()
                return False
            else:
                logger.info("committed before releasing tasks: %s", describe_offsets(offsets))
                return len(committing) == len(self._tasks.running)
        logger.warning(
            "tasks to be released are not committed: the group kept rebalancing for %d ms.%s",
            self._clock.monotonic_ms() - began_ms,
            self._uncommitted.describe(),
        )
        if self._committer.all_or_nothing:
            self.discard_work()
            self.rejoin("the work of the thread could not be committed")
        return False

    def release_tasks(self, tasks: Collection[StreamTask], why: str) -> None:
        """Commit and close tasks, and rejoin so that the group assigns them again."""
        self._committer.drain(tasks)
        committed = self._commit_if_needed(tasks)
        released = {task.task_id for task in tasks}
        left = [task.task_id for task in self._tasks.running if task.task_id in released]
        self._tasks.close(left, clean=committed)
        self.rejoin(why)

    def discard_work(self) -> None:
        """Close the active tasks and discard their uncommitted work, which is repeated.

        This is required if the group has continued without this member or the producer was fenced:
        records that the tasks sent may be missing. Standbys continue, because they depend on
        neither.
        """
        self._uncommitted.discarded()
        self._tasks.close_active(clean=False)
        self._committer.discard_uncommitted()

    def _on_lost(self, event: Lost) -> RebalanceResult:
        self._joining = False
        names = [str(task.task_id) for task in self._tasks.tasks_reading(event.partitions)]
        try:
            self.discard_work()
        finally:
            self._member.acknowledge(event)
        return RebalanceResult(
            f"lost tasks {names}: the group has continued without this member",
            revoked=True,
            lost=True,
        )

    def _on_assigned(self, event: Assigned) -> RebalanceResult:
        assignment = self._decode(event)
        self._joining = False
        self._generation = event.generation
        self._commit_if_needed(self._tasks.outdated(assignment.active, assignment.standby))
        self._tasks.assign(assignment.active, assignment.standby)
        names = [str(task_id) for task_id in sorted(assignment.active)]
        names += [f"{task_id} (standby)" for task_id in sorted(assignment.standby)]
        due_ms = assignment.next_rebalance_ms
        self._follow_up = None if due_ms is None else (due_ms, event.generation)
        why = f"generation {event.generation}: tasks {names}"
        return RebalanceResult(why, assigned=True, assignment=assignment)

    def _request_due_rejoin(self) -> None:
        if self._rejoin is not None and self._rejoin.due.passed:
            rejoin, self._rejoin = self._rejoin, None
            # The member ignores the request if there has been a rebalance since the rejoin was
            # scheduled.
            self._member.request_rejoin(rejoin.why, generation=rejoin.generation)

    def _request_follow_up(self) -> None:
        if self._follow_up is None or self.is_rebalancing:
            return
        due_ms, generation = self._follow_up
        if due_ms <= self._clock.now_ms():
            self._follow_up = None
            # The member ignores the request if there has been another rebalance since the
            # assignment: that rebalance was the follow-up.
            self._member.request_rejoin(
                "the leader requested a follow-up rebalance", generation=generation
            )


class GroupRejoin:
    """Discards uncommittable work and rejoins the group with backoff.

    The loop does not wait for the rejoin: it continues as a thread without active tasks.
    """

    def __init__(
        self,
        rebalances: RebalanceHandler,
        committer: TaskCommitter,
        uncommitted: UncommittedWork,
        clock: Clock,
    ) -> None:
        self._rebalances = rebalances
        self._committer = committer
        self._uncommitted = uncommitted
        self._backoff = Backoff(clock, initial_ms=_INITIAL_BACKOFF_MS, max_ms=_MAX_BACKOFF_MS)
        self._commits_before = 0

    def rejoin_after(self, error: TaskMigratedError) -> None:
        if self._committer.total > self._commits_before:
            self._backoff.reset()
        self._commits_before = self._committer.total
        pause_ms = self._backoff.next_pause_ms()
        logger.warning(
            "closing all active tasks without a commit and rejoining the group in %d ms: %s%s",
            pause_ms,
            error,
            self._uncommitted.describe(),
        )
        self._rebalances.discard_work()
        self._rebalances.rejoin("the work of the thread could not be committed", pause_ms)
