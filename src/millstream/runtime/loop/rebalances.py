"""What the group member reports, turned into tasks owned and given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from millstream.assignment.task_assignment import TaskAssignment
from millstream.clock import Clock, Deadline
from millstream.errors import RebalanceInProgressError, TaskCorruptedError, TaskMigratedError
from millstream.kafka.member.events import Assigned, Joining, Lost, MemberEvent, Revoked
from millstream.kafka.protocols import Member
from millstream.runtime.loop.commits import Commits, UnfinishedError
from millstream.runtime.loop.overdue_commits import UncommittedWork
from millstream.runtime.ownership.tasks import Tasks
from millstream.runtime.work import Work

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_MS = 10_000
#: How often a commit is tried while the group rebalances, and the pause in between.
_COMMIT_ATTEMPTS = 20
_COMMIT_PAUSE_MS = 50


@dataclass(frozen=True)
class OwnershipChange:
    """What a rebalance event has done to the thread.

    Args:
        why: for the log.
        revoked: partitions were given up.
        assigned: a rebalance is complete.
        assignment: what the leader has told, then.
        lost: they were given up without a commit.
    """

    why: str
    revoked: bool = False
    assigned: bool = False
    assignment: TaskAssignment | None = None
    lost: bool = False


class Rebalances:
    """Follows the group member on behalf of the processing loop.

    A revoked task is committed and stopped before the member goes on to the next join, so that no
    two threads ever work on one task; the assignment that follows says whether its state stays as
    a standby. A lost task is closed without a commit.

    Args:
        member: the thread's place in the group.
        tasks: what the thread owns.
        commits: commits revoked tasks.
        decode: reads what the leader wrote for this member.
        clock: for follow-up rebalances that are due at a time.
        uncommitted: the work since the last commit.
        static: whether the member has a `group.instance.id`, by which it takes its tasks up again
            after a restart.
        shut_down_all: lets what is sent with each join from now on ask that the whole application
            shuts down.
    """

    def __init__(
        self,
        member: Member,
        tasks: Tasks,
        commits: Commits,
        decode: Callable[[Assigned], TaskAssignment],
        clock: Clock,
        *,
        uncommitted: UncommittedWork,
        static: bool,
        shut_down_all: Callable[[], None],
    ) -> None:
        self._member = member
        self._tasks = tasks
        self._commits = commits
        self._decode = decode
        self._clock = clock
        self._uncommitted = uncommitted
        self._static = static
        self._shut_down_all = shut_down_all
        self._peeked: MemberEvent | None = None
        self._follow_up: tuple[int, int] | None = None
        self._rejoin: tuple[Deadline, int | None, str] | None = None
        self._generation: int | None = None
        self._joining = False

    @property
    def forbids_work(self) -> bool:
        """Whether tasks may not send anything now: it could not be committed before nobody knows
        when, and a transaction has only so long."""
        return self._joining

    @property
    def under_way(self) -> bool:
        """Whether the group is rebalancing, as far as the member knows."""
        return self._member.rebalancing

    def start(self) -> None:
        """Join the group."""
        self._member.start()

    def progress(self) -> None:
        """The processing loop is alive (`max.poll.interval.ms`)."""
        self._member.progress()

    @property
    def rounds(self) -> int:
        """How often it was told that the processing loop is alive."""
        return self._member.rounds

    def has_news(self, timeout_ms: int = 0) -> bool:
        """Whether the member has an event for `next_change`; waits for one that long."""
        if self._peeked is None:
            self._peeked = self._member.next_event(timeout_ms)
        return self._peeked is not None

    def rejoin(self, why: str, after_ms: int = 0) -> None:
        """Ask for a rebalance, unless the group goes on by itself. Does not wait.

        Args:
            why: for the logs.
            after_ms: how long to leave the group in peace first; asked in `next_change`.
        """
        self._rejoin = (Deadline(self._clock, after_ms), self._generation, why)
        self._ask_again()

    def next_change(self) -> OwnershipChange | None:
        """Act on the next event; None if there is none.

        Raises:
            StreamsError: the member failed, or the leader reports an error.
        """
        self._ask_for_follow_up()
        self._ask_again()
        self.has_news()
        event, self._peeked = self._peeked, None
        if event is None:
            return None
        if isinstance(event, Joining):
            return self._join(event)
        if isinstance(event, Revoked):
            return self._revoke(event)
        if isinstance(event, Lost):
            return self._lose(event)
        if isinstance(event, Assigned):
            return self._assign(event)
        raise event.error

    def ask_for_shutdown(self, why: str) -> None:
        """Ask the group that all instances of the application shut down (KIP-671).

        Args:
            why: for the logs, the broker's as well.
        """
        logger.warning("asks the group that the whole application shuts down: %s", why)
        self._shut_down_all()
        # In any case: a join that is on its way may not say it yet.
        self._member.request_rejoin(f"the application is to shut down: {why}")

    def close(self, *, leave_group: bool, for_good: bool = False) -> None:
        """Leave the group, or just stop being heard from, as static members do unless they go for
        good."""
        leave = leave_group and (for_good or not self._static)
        self._member.close(leave_group=leave, timeout_ms=_CLOSE_TIMEOUT_MS)

    def _join(self, event: Joining) -> OwnershipChange:
        """Commit all that is done; whatever goes wrong, the member must go on."""
        self._joining = True
        try:
            # What stays here need not come to its end for it.
            self._commit_if_needed()
        finally:
            self._member.acknowledge(event)
        return OwnershipChange("a rebalance begins")

    def _revoke(self, event: Revoked) -> OwnershipChange:
        """Commit and close what is revoked. Whatever goes wrong, the member must go on."""
        revoked = self._tasks.owners_of(event.partitions)
        names = [str(task.task_id) for task in revoked]
        try:
            self._commits.drain(revoked)
            committed = self._commit_if_needed(revoked)
            # A fenced member or producer has closed all tasks by now.
            left = [task.task_id for task in self._tasks.owners_of(event.partitions)]
            if committed:
                self._tasks.suspend(left)
            else:
                self._tasks.close(left, clean=False)
        except TaskCorruptedError:
            left = [task.task_id for task in self._tasks.owners_of(event.partitions)]
            self._tasks.close(left, clean=False)
            raise
        finally:
            self._member.acknowledge(event)
        return OwnershipChange(f"tasks {names} go to other threads", revoked=True)

    def _commit_if_needed(self, tasks: Collection[Work] | None = None) -> bool:
        """Commit before tasks are given up; whether what they did is committed.

        All tasks are committed, those that stay included: they share one producer.

        Args:
            tasks: those that are given up; None if all are meant.
        """
        committing = self._tasks.running
        if tasks is None:
            tasks = committing
        if not self._commits.is_open and not any(task.commit_needed for task in tasks):
            return True
        drained, began_ms = False, self._clock.monotonic_ms()
        for _ in range(_COMMIT_ATTEMPTS):
            try:
                offsets = self._commits.commit(committing)
            except UnfinishedError as error:
                if not drained:
                    self._commits.land(error.tasks)
                    drained = True
                elif self._commits.all_or_nothing:
                    logger.warning(
                        "work is given up without a commit: %s after waiting for %d ms.%s",
                        error,
                        self._clock.monotonic_ms() - began_ms,
                        self._uncommitted.described(),
                    )
                    self.drop_work()
                    return False
                else:
                    logger.warning("not committed with the others: %s", error)
                    committing = [task for task in committing if task not in error.tasks]
            except RebalanceInProgressError as error:
                logger.debug("commit of tasks that are given up is put off: %s", error)
                self._member.progress()
                self._clock.sleep_ms(_COMMIT_PAUSE_MS)
            except TaskMigratedError as error:
                logger.warning(
                    "tasks that are given up are not committed: %s%s",
                    error,
                    self._uncommitted.described(),
                )
                self.drop_work()
                return False
            else:
                shown = {str(place): offset.offset for place, offset in sorted(offsets.items())}
                logger.info("committed before giving tasks up: %s", shown)
                return len(committing) == len(self._tasks.running)
        logger.warning(
            "tasks that are given up are not committed: the group kept rebalancing for %d ms.%s",
            self._clock.monotonic_ms() - began_ms,
            self._uncommitted.described(),
        )
        if self._commits.all_or_nothing:
            self.drop_work()
            self.rejoin("its work could not be committed")
        return False

    def give_up(self, tasks: Collection[Work], why: str) -> None:
        """Commit and close tasks, and have the group give them to somebody again.

        Args:
            tasks: active ones.
            why: for the logs.
        """
        self._commits.drain(tasks)
        committed = self._commit_if_needed(tasks)
        given_up = {task.task_id for task in tasks}
        left = [task.task_id for task in self._tasks.running if task.task_id in given_up]
        self._tasks.close(left, clean=committed)
        self.rejoin(why)

    def drop_work(self) -> None:
        """Close the active tasks and forget what they did since the last commit: it is done again.

        Needed when the group has gone on without this member, or the producer was fenced: a record
        that any of the tasks sent may be missing. Standbys go on: they depend on neither.
        """
        self._uncommitted.given_up()
        self._tasks.close_active(clean=False)
        self._commits.forget_sent()

    def _lose(self, event: Lost) -> OwnershipChange:
        self._joining = False
        names = [str(task.task_id) for task in self._tasks.owners_of(event.partitions)]
        try:
            self.drop_work()
        finally:
            self._member.acknowledge(event)
        return OwnershipChange(
            f"tasks {names} were lost: the group went on without us", revoked=True, lost=True
        )

    def _assign(self, event: Assigned) -> OwnershipChange:
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
        return OwnershipChange(why, assigned=True, assignment=assignment)

    def _ask_again(self) -> None:
        if self._rejoin is not None and self._rejoin[0].passed:
            (_, generation, why), self._rejoin = self._rejoin, None
            # The member ignores it if the group has gone on since.
            self._member.request_rejoin(why, generation=generation)

    def _ask_for_follow_up(self) -> None:
        if self._follow_up is None or self.under_way:
            return
        due_ms, generation = self._follow_up
        if due_ms <= self._clock.now_ms():
            self._follow_up = None
            # Not if the group has gone on since: that rebalance was the follow-up.
            self._member.request_rejoin(
                "the leader asked for a follow-up rebalance", generation=generation
            )
