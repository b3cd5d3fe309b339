"""The state machine of a group member: join, release partitions, rejoin, leave.

`Membership` runs as one coroutine on kafka-python's event loop. It waits for the stream thread only
if an event must be acknowledged, and gives up after `max.poll.interval.ms` without progress.
Heartbeats continue during the wait.

        ┌───────────── a rebalance is needed ◄────────────────┐
        ▼                                                     │
     joining ──► Revoked, ack ──► Assigned ──► in the group, watching
        ▲                                                     │
        └──── ack ◄── Lost ◄── removed, or no progress ───────┘
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafka import errors as client_errors

from millstream.clock import Clock
from millstream.errors import RebalanceInProgressError
from millstream.kafka.kafka_python import ClientFuture
from millstream.kafka.membership.assignor_thread import AssignorRunner
from millstream.kafka.membership.connections import MemberConnections
from millstream.kafka.membership.coordinator import (
    CoordinatorMonitor,
    JoinAbortedError,
    MemberCoordinator,
)
from millstream.kafka.membership.member_assignor import (
    MemberAssignment,
    MemberAssignor,
    MemberSubscription,
)
from millstream.kafka.membership.member_errors import membership_error
from millstream.kafka.membership.member_events import (
    Assigned,
    Failed,
    Joining,
    Lost,
    MemberEventQueue,
    Revoked,
)
from millstream.kafka.membership.topic_changes import (
    TopicMonitor,
    partition_counts,
    topics_matching,
)
from millstream.kafka.user_permissions import user_of
from millstream.record import TopicPartition

log = logging.getLogger("millstream.kafka.membership.group_member")

#: The maximum sleep of the coroutine, which wakeups end earlier.
_TICK_MS: Final = 250
_RETRY_S: Final = 0.1
_LEAVE_TIMEOUT_MS: Final = 5_000


class Membership:
    """The membership of one member in its group, until the member is closed or fails.

    If there is a `pattern`, the matching topics replace `topics`. With `announces_joins`, the
    stream thread commits before each join.
    """

    def __init__(
        self,
        connections: MemberConnections,
        events: MemberEventQueue,
        assignor: MemberAssignor,
        on_member_thread: Callable[[Callable[[], Any]], ClientFuture],
        *,
        topics: Sequence[str],
        pattern: re.Pattern[str] | None,
        clock: Clock,
        announces_joins: bool = False,
    ) -> None:
        self._connections = connections
        self._announces_joins = announces_joins
        self._events = events
        self._clock = clock
        self._pattern = pattern
        self._max_poll_interval_ms: int = connections.config["max_poll_interval_ms"]
        self._wakeup = connections.wakeup()
        self._topic_monitor = TopicMonitor(clock, connections.config["metadata_max_age_ms"])
        self.coordinator = MemberCoordinator(connections, self)
        self._monitor = CoordinatorMonitor(connections, self.coordinator, clock)
        self._assignor = AssignorRunner(
            connections, assignor, self.coordinator, on_member_thread, self._interrupted, clock
        )

        # Only written by the event loop.
        self._owned: frozenset[TopicPartition] = frozenset()
        #: The event that the stream thread must acknowledge before the current join.
        self._pending_event: Joining | Revoked | None = None
        self._joined_topics: tuple[str, ...] = ()
        self._rejection: Exception | None = None

        # Shared with the stream thread. The lock guards fields that change together.
        self._lock = threading.Lock()
        self._topics = tuple(topics)
        self._rejoins_requested = 0
        self._rejoins_sent = 0
        self._rejoin_reason = ""
        self._join_blocks = 0
        self._join_begun = False
        self._closing = False
        self._leave_on_close = False
        self._leave_timeout_ms = _LEAVE_TIMEOUT_MS
        self._progress_at_ms = clock.monotonic_ms()
        #: The time of the last progress before the current stall; None if there is no stall. The
        #: member leaves the group once per stall.
        self._stalled_since_ms: int | None = None

    # Called by the stream thread.

    @property
    def rebalancing(self) -> bool:
        """Whether a commit would currently be rejected."""
        return not self.coordinator.stable()

    def wake(self) -> None:
        try:
            self._wakeup.notify()
        except Exception:
            # The event loop has ended, and the coroutine with it.
            log.debug("%s: the event loop has already ended", self._name)

    def progress(self) -> None:
        self._progress_at_ms = self._clock.monotonic_ms()
        if self._stalled_since_ms is not None:
            self.wake()

    def request_rejoin(self, reason: str, generation: int | None) -> None:
        with self._lock:
            if generation is not None and (
                self._join_begun or self.coordinator.generation_id != generation
            ):
                return
            self._rejoins_requested += 1
            self._rejoin_reason = reason
        self.wake()

    def block_joins(self) -> None:
        """Block joins until `unblock_joins`.

        Raises RebalanceInProgressError during a join.
        """
        with self._lock:
            if self._join_begun or not self.coordinator.stable():
                raise RebalanceInProgressError(
                    f"Group {self.coordinator.group_id!r} is rebalancing. Try again after the "
                    "rebalance."
                )
            self._join_blocks += 1

    def unblock_joins(self) -> None:
        with self._lock:
            self._join_blocks -= 1
        self.wake()

    def end(self, *, leave_group: bool, timeout_ms: int) -> None:
        self._leave_on_close = leave_group
        self._leave_timeout_ms = timeout_ms
        self._closing = True
        self.wake()

    # The coroutine.

    async def run(self) -> None:
        """Run until `end` is called or a permanent error occurs."""
        try:
            while not self._closing:
                try:
                    await self._step()
                except JoinAbortedError:
                    continue
                except client_errors.RetriableError as error:
                    log.debug("%s: retrying after %s", self._name, error)
                    await self._connections.sleep(_RETRY_S)
            if self._leave_on_close:
                await self._leave("the member was closed", self._leave_timeout_ms)
        except Exception as error:
            await self._fail(error)
        finally:
            self.coordinator.stop_heartbeats()

    async def _step(self) -> None:
        coordinator = self.coordinator
        coordinator.ensure_heartbeats()
        self._monitor.check()
        if self._rejection is not None:
            raise self._rejection
        if self._without_progress():
            await self._leave_without_progress()
            await self._sleep()
            return
        self._stalled_since_ms = None
        if coordinator.membership_lost and self._owned:
            await self._lose("the group has removed this member")
        elif self._events.is_unacknowledged():
            # The commit for revoked partitions must not reach the broker in the next generation.
            await self._sleep()
        elif self._must_join():
            await self._join()
        else:
            await self._check_topics()
            await self._sleep()

    async def _join(self) -> None:
        # No timeout, because kafka-python drops a join that completes after its timeout, and sends
        # another one.
        joining = self._connections.call_soon(self.coordinator.ensure_active_group_async)
        while not joining.is_done and not self._closing:
            # This call only waits; the result is read from the future below.
            with contextlib.suppress(Exception):
                await self._connections.wait_for(joining, _TICK_MS)
            if joining.is_done:
                break
            self._monitor.check()
            self.coordinator.ensure_heartbeats()
            # A static member does not abandon this join, because the group would wait for it to
            # join.
            if (
                self._without_progress()
                and self._pending_event is None
                and not self.coordinator.is_static
            ):
                await self._leave_without_progress()
        if joining.is_done and joining.exception is not None:
            raise joining.exception

    def _must_join(self) -> bool:
        requested = self._rejoins_requested != self._rejoins_sent
        if requested and not self.coordinator.need_rejoin():
            self.coordinator.reason = self._rejoin_reason
            self.coordinator.request_rejoin()
        return bool(self.coordinator.need_rejoin())

    async def _sleep(self) -> None:
        await self._wakeup.sleep(_TICK_MS / 1000)

    # Callbacks of a join, called by the coordinator.

    async def prepare(self) -> None:
        if self._pattern is not None:
            self._topics = await topics_matching(self._connections, self._pattern)
        revoked = frozenset(tp for tp in self._owned if tp.topic not in set(self._topics))
        if revoked and not self.coordinator.membership_lost and not await self._revoke(revoked):
            raise JoinAbortedError()
        if not await self._commit_before_join():
            raise JoinAbortedError()
        while True:
            with self._lock:
                if not self._join_blocks:
                    self._join_begun = True
                    break
            if self._interrupted():
                raise JoinAbortedError()
            await self._sleep()
        log.info(
            "%s: joining group %s: %s",
            self._name,
            self.coordinator.group_id,
            self.coordinator.reason,
        )

    async def subscription(self) -> tuple[Sequence[str], bytes]:
        if self._interrupted(membership_lost=bool(self._owned)) or self._events.is_unacknowledged():
            # An earlier attempt of this join has failed, and since then, the member was interrupted
            # or has reported an event that must be acknowledged.
            raise JoinAbortedError()
        with self._lock:
            self._rejoins_sent = self._rejoins_requested
            self._joined_topics = self._topics
        return self._joined_topics, await self._assignor.user_data()

    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    async def assign(
        self, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        topics = {topic for member in members.values() for topic in member.topics}
        counts = await partition_counts(self._connections, topics)
        assignments = await self._assignor.assign(members)
        self._topic_monitor.watch_assignment(members, assignments, counts)
        return assignments

    async def follow(self, *, is_leader: bool, members: Mapping[str, MemberSubscription]) -> None:
        if not is_leader:
            self._topic_monitor.stop()
        elif not self._topic_monitor.topics:
            # A restarted static leader takes over the current assignment, which this process has
            # not computed (KIP-814). The partition counts at that time are unknown, so the monitor
            # starts from the current counts.
            topics = {topic for member in members.values() for topic in member.topics}
            self._topic_monitor.watch_counts(
                await partition_counts(self._connections, topics), topics
            )

    async def joined(self, assignment: MemberAssignment) -> None:
        with self._lock:
            self._join_begun = False
        coordinator = self.coordinator
        if coordinator.membership_lost:
            # The member left the group before the response arrived, which kafka-python does not
            # check.
            coordinator.abandon_membership()
            return
        # Read these before any await, so that they belong to this assignment.
        generation, member_id = coordinator.generation_id, coordinator.member_id
        partitions = frozenset(assignment.partitions)
        coordinator.reason = "the group is rebalancing"
        log.info(
            "%s: joined generation %d of group %s as %s with %d partitions",
            self._name,
            generation,
            coordinator.group_id,
            "leader" if coordinator.is_leader else "follower",
            len(partitions),
        )
        revoked = self._owned - partitions
        if revoked and not await self._revoke(revoked):
            # The stream thread does not receive the assignment of this generation. If the
            # processing loop makes progress again and the member stays in the group, the member
            # needs a complete new assignment.
            coordinator.reason = "an assignment that was not delivered"
            coordinator.request_rejoin()
            return
        self._owned = partitions
        self._events.put(Assigned(partitions, assignment.user_data, generation, member_id))
        if revoked:
            # The next rebalance assigns the released partitions (KIP-429).
            coordinator.reason = f"released partitions ({len(revoked)})"
            coordinator.request_rejoin()

    def rejected(self, error: Exception) -> None:
        self._rejection = error
        self.wake()

    # Releasing partitions and leaving.

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> bool:
        """Make the stream thread commit and release partitions.

        Returns False if interrupted.
        """
        log.info("%s: releasing %s", self._name, _format_partitions(partitions))
        if not await self._wait_acknowledged(Revoked(partitions)):
            return False
        self._owned -= partitions
        return not self._interrupted()

    async def _commit_before_join(self) -> bool:
        """Make the stream thread commit before a join; return False if interrupted."""
        if not self._announces_joins or not self._owned or self.coordinator.membership_lost:
            return True
        return await self._wait_acknowledged(Joining()) and not self._interrupted()

    async def _wait_acknowledged(self, event: Joining | Revoked) -> bool:
        """Wait for the acknowledgment of an event.

        Returns False if the event was withdrawn, because the wait was interrupted.
        """
        self._pending_event = event
        self._events.put(event)
        try:
            while self._events.is_unacknowledged(event):
                if self._interrupted():
                    if self._events.withdraw(event):
                        return False
                    if self._closing or self._without_progress():
                        # The member is closing, or the stream thread hangs while it processes the
                        # event. This member joins only after the acknowledgment, but the other
                        # members do not need to wait for the acknowledgment.
                        break
                self.coordinator.ensure_heartbeats()
                await self._sleep()
        finally:
            self._pending_event = None
        return True

    def _interrupted(self, *, membership_lost: bool = True) -> bool:
        return (
            self._closing
            or self._rejection is not None
            or (membership_lost and self.coordinator.membership_lost)
            or self._without_progress()
        )

    async def _lose(self, why: str) -> None:
        lost, self._owned = self._owned, frozenset()
        with self._lock:
            self._join_begun = False
        self.coordinator.reset_join_preparation()
        self.coordinator.reason = why
        if lost:
            log.warning("%s: lost %s: %s", self._name, _format_partitions(lost), why)
            self._events.put(Lost(lost))

    def _without_progress(self) -> bool:
        return self._clock.monotonic_ms() - self._progress_at_ms > self._max_poll_interval_ms

    async def _leave_without_progress(self) -> None:
        # Each stall is handled once, even within one join attempt.
        since_ms = self._progress_at_ms
        if self._stalled_since_ms == since_ms:
            return
        self._stalled_since_ms = since_ms
        log.warning(
            "%s: %s group %s, because the processing loop made no progress for "
            "max.poll.interval.ms (%d ms). Process less at a time, or increase this timeout. "
            "The member rejoins when the loop makes progress.",
            self._name,
            "stopped heartbeats in" if self.coordinator.is_static else "left",
            self.coordinator.group_id,
            self._max_poll_interval_ms,
        )
        await self._leave_unless_static("max.poll.interval.ms without progress")
        await self._lose("max.poll.interval.ms without progress")

    async def _leave_unless_static(self, reason: str) -> None:
        """Leave after a problem. As in Kafka, a static member only stops its heartbeats.

        If a static member rejoins before its session times out, the group does not rebalance.
        """
        if self.coordinator.is_static:
            self._topic_monitor.stop()
            self.coordinator.abandon_membership()
        else:
            await self._leave(reason, _LEAVE_TIMEOUT_MS)

    async def _leave(self, reason: str, timeout_ms: int) -> None:
        log.info("%s: leaving group %s", self._name, self.coordinator.group_id)
        self._topic_monitor.stop()
        try:
            await self.coordinator.leave(reason, timeout_ms)
        except client_errors.KafkaError as error:
            log.warning(
                "%s: could not leave group %s (%s). The broker removes the member when its session "
                "times out.",
                self._name,
                self.coordinator.group_id,
                error,
            )

    async def _fail(self, error: Exception) -> None:
        failure = membership_error(
            error,
            group_id=self.coordinator.group_id,
            instance_id=self.coordinator.group_instance_id,
            user=user_of(self._connections.config),
        )
        # For our own errors, the traceback of the cause is more useful.
        traced = error.__cause__ if failure is error else error
        log.error("%s: failed: %s", self._name, failure, exc_info=traced)
        # Other members must not wait for this member, especially not for its assignment.
        try:
            await self._leave_unless_static("the member failed")
        except Exception as second:
            log.warning("%s: could not leave after the failure: %s", self._name, second)
        finally:
            self._events.put(Failed(failure))

    # Helpers.

    @property
    def _name(self) -> str:
        return str(self._connections.config["client_id"])

    async def _check_topics(self) -> None:
        if not self._topic_monitor.is_due or not (self._topic_monitor.topics or self._pattern):
            return
        try:
            changes = await self._topic_changes()
        except client_errors.RetriableError as error:
            log.debug("%s: could not look up the topics: %s", self._name, error)
            self._topic_monitor.check_failed()
            return
        if changes:
            self.request_rejoin("; ".join(changes), None)

    async def _topic_changes(self) -> list[str]:
        changes: list[str] = []
        if self._pattern is not None:
            matching = await topics_matching(self._connections, self._pattern)
            if set(matching) != set(self._joined_topics):
                changes.append("the topics that match the pattern changed")
        changes += self._topic_monitor.compare(
            await partition_counts(self._connections, self._topic_monitor.topics)
        )
        return changes


def _format_partitions(partitions: frozenset[TopicPartition], limit: int = 12) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
