"""The life of a group member: join, stay, give partitions up, join again, leave.

One coroutine on the client's event loop. It never waits for the stream thread but for receipts, and
for those no longer than `max.poll.interval.ms` without progress; heartbeats go on all the while.

        ┌───────────── a rebalance is called for ◄────────────┐
        ▼                                                     │
     joining ──► Revoked, receipt ──► Assigned ──► in the group, watching
        ▲                                                     │
        └── receipt ◄── Lost ◄── thrown out, or no progress ──┘
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
from millstream.kafka.member.assigning import AssignorCalls
from millstream.kafka.member.contact import CoordinatorContact
from millstream.kafka.member.coordinator import MemberCoordinator, MustGiveUpError
from millstream.kafka.member.errors import membership_error
from millstream.kafka.member.events import Assigned, Failed, Joining, Lost, Revoked
from millstream.kafka.member.link import MemberLink
from millstream.kafka.member.mailbox import Mailbox
from millstream.kafka.member.member_assignor import (
    MemberAssignment,
    MemberAssignor,
    MemberSubscription,
)
from millstream.kafka.member.metadata import partition_counts, topics_matching
from millstream.kafka.member.topics import TopicWatch
from millstream.kafka.rights import user_of
from millstream.record import TopicPartition

log = logging.getLogger("millstream.kafka.member.group_member")

#: How long the loop sleeps at most; whatever happens wakes it earlier.
_TICK_MS: Final = 250
_RETRY_S: Final = 0.1
_LEAVE_TIMEOUT_MS: Final = 5_000


class Membership:
    """One member from its first join to its end.

    Args:
        link: the connections.
        events: where the stream thread hears of rebalances.
        assignor: the part that knows about tasks.
        on_member_thread: runs a call on the member's own thread and answers through a future.
        topics: what to subscribe to; replaced by what matches where there is a pattern.
        pattern: topics to subscribe to as they come and go; must match a name from end to end.
        clock: where the time is read.
        announces_joins: whether the stream thread is to commit before each join.
    """

    def __init__(
        self,
        link: MemberLink,
        events: Mailbox,
        assignor: MemberAssignor,
        on_member_thread: Callable[[Callable[[], Any]], ClientFuture],
        *,
        topics: Sequence[str],
        pattern: re.Pattern[str] | None,
        clock: Clock,
        announces_joins: bool = False,
    ) -> None:
        self._link = link
        self._announces_joins = announces_joins
        self._events = events
        self._clock = clock
        self._pattern = pattern
        self._max_poll_interval_ms: int = link.config["max_poll_interval_ms"]
        self._wakeup = link.wakeup()
        self._watch = TopicWatch(clock, link.config["metadata_max_age_ms"])
        self.coordinator = MemberCoordinator(link, self)
        self._contact = CoordinatorContact(link, self.coordinator, clock)
        self._assignor = AssignorCalls(
            link, assignor, self.coordinator, on_member_thread, self._interrupted, clock
        )

        # Written by the event loop only.
        self._owned: frozenset[TopicPartition] = frozenset()
        #: What the stream thread has to do before the join that is under way.
        self._awaited: Joining | Revoked | None = None
        self._joined_topics: tuple[str, ...] = ()
        self._refusal: Exception | None = None

        # Shared with the stream thread, under the lock where two of them go together.
        self._lock = threading.Lock()
        self._topics = tuple(topics)
        self._rejoins_wanted = 0
        self._rejoins_sent = 0
        self._rejoin_reason = ""
        self._holds = 0
        self._join_begun = False
        self._closing = False
        self._leave_on_close = False
        self._leave_timeout_ms = _LEAVE_TIMEOUT_MS
        self._progress_at_ms = clock.monotonic_ms()
        #: The last progress before a stall that was answered by leaving.
        self._stalled_since_ms: int | None = None

    # What the stream thread calls.

    @property
    def rebalancing(self) -> bool:
        """Whether a commit would be refused right now."""
        return not self.coordinator.stable()

    def wake(self) -> None:
        """Let the coroutine look around."""
        try:
            self._wakeup.notify()
        except Exception:
            # The event loop has ended, and the coroutine with it: there is nothing to wake.
            log.debug("%s: nothing to wake", self._name)

    def progress(self) -> None:
        """The processing loop is alive."""
        self._progress_at_ms = self._clock.monotonic_ms()
        if self._stalled_since_ms is not None:
            self.wake()

    def request_rejoin(self, reason: str, generation: int | None) -> None:
        """Have the group rebalance; see `GroupMember.request_rejoin`."""
        with self._lock:
            if generation is not None and (
                self._join_begun or self.coordinator.generation_id != generation
            ):
                return
            self._rejoins_wanted += 1
            self._rejoin_reason = reason
        self.wake()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to other topics from the next join on, which goes out now."""
        with self._lock:
            if tuple(topics) == self._topics:
                return
            self._topics = tuple(topics)
            self._rejoins_wanted += 1
            self._rejoin_reason = "the subscription changed"
        self.wake()

    def hold(self) -> None:
        """Send no join until `release`.

        Raises:
            RebalanceInProgressError: a join is on its way already.
        """
        with self._lock:
            if self._join_begun or not self.coordinator.stable():
                raise RebalanceInProgressError(
                    f"Group {self.coordinator.group_id!r} is rebalancing. Try again after it."
                )
            self._holds += 1

    def release(self) -> None:
        with self._lock:
            self._holds -= 1
        self.wake()

    def end(self, *, leave_group: bool, timeout_ms: int) -> None:
        """Let the coroutine come to its end."""
        self._leave_on_close = leave_group
        self._leave_timeout_ms = timeout_ms
        self._closing = True
        self.wake()

    # The coroutine.

    async def run(self) -> None:
        """Live until `end` is called or something happens that no retry helps against."""
        try:
            while not self._closing:
                try:
                    await self._step()
                except MustGiveUpError:
                    continue
                except client_errors.RetriableError as error:
                    log.debug("%s: tries again after %s", self._name, error)
                    await self._link.sleep(_RETRY_S)
            if self._leave_on_close:
                await self._leave("the member was closed", self._leave_timeout_ms)
        except Exception as error:
            await self._fail(error)
        finally:
            self.coordinator.stop_heartbeating()

    async def _step(self) -> None:
        coordinator = self.coordinator
        coordinator.keep_heartbeating()
        self._contact.check()
        if self._refusal is not None:
            raise self._refusal
        if self._without_progress():
            await self._leave_for_want_of_progress()
            await self._nap()
            return
        self._stalled_since_ms = None
        if coordinator.fallen_out and self._owned:
            await self._lose("the group has moved on without this member")
        elif self._events.awaits():
            # A commit of what is to be given up must not run into the next generation.
            await self._nap()
        elif self._must_join():
            await self._join()
        else:
            await self._look_at_topics()
            await self._nap()

    async def _join(self) -> None:
        # Without a timeout: the client forgets a join that completes after one, and sends another.
        joining = self._link.call_soon(self.coordinator.ensure_active_group_async)
        while not joining.is_done and not self._closing:
            # How it ended is read off the future; this is only about when.
            with contextlib.suppress(Exception):
                await self._link.wait_for(joining, _TICK_MS)
            if joining.is_done:
                break
            self._contact.check()
            self.coordinator.keep_heartbeating()
            # A static member stays silent: dropping out now, it would leave the group waiting for
            # its part in this join.
            if (
                self._without_progress()
                and self._awaited is None
                and not self.coordinator.is_static
            ):
                await self._leave_for_want_of_progress()
        if joining.is_done and joining.exception is not None:
            raise joining.exception

    def _must_join(self) -> bool:
        wanted = self._rejoins_wanted != self._rejoins_sent
        if wanted and not self.coordinator.need_rejoin():
            self.coordinator.reason = self._rejoin_reason
            self.coordinator.request_rejoin()
        return bool(self.coordinator.need_rejoin())

    async def _nap(self) -> None:
        await self._wakeup.sleep(_TICK_MS / 1000)

    # Steps around a join, called by the coordinator.

    async def prepare(self) -> None:
        if self._pattern is not None:
            self._topics = await topics_matching(self._link, self._pattern)
        gone = frozenset(tp for tp in self._owned if tp.topic not in set(self._topics))
        if gone and not self.coordinator.fallen_out and not await self._give_up(gone):
            raise MustGiveUpError()
        if not await self._announced():
            raise MustGiveUpError()
        while True:
            with self._lock:
                if not self._holds:
                    self._join_begun = True
                    break
            if self._interrupted():
                raise MustGiveUpError()
            await self._nap()
        log.info(
            "%s: joins group %s: %s",
            self._name,
            self.coordinator.group_id,
            self.coordinator.reason,
        )

    async def subscription(self) -> tuple[Sequence[str], bytes]:
        if self._interrupted(fallen_out=bool(self._owned)) or self._events.awaits():
            # The join before this one failed, and something else comes first now.
            raise MustGiveUpError()
        with self._lock:
            self._rejoins_sent = self._rejoins_wanted
            self._joined_topics = self._topics
        return self._joined_topics, await self._assignor.user_data()

    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    async def assign(
        self, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        topics = {topic for member in members.values() for topic in member.topics}
        counts = await partition_counts(self._link, topics)
        assignments = await self._assignor.assign(members)
        self._watch.begin(members, assignments, counts)
        return assignments

    async def follow(self, *, leads: bool, members: Mapping[str, MemberSubscription]) -> None:
        if not leads:
            self._watch.stop()
        elif not self._watch.topics:
            # A static leader that came back takes over an assignment it has not made. What the
            # topics were like then it cannot know: it watches from what they are like now.
            topics = {topic for member in members.values() for topic in member.topics}
            self._watch.begin_from(await partition_counts(self._link, topics), topics)

    async def joined(self, assignment: MemberAssignment) -> None:
        with self._lock:
            self._join_begun = False
        coordinator = self.coordinator
        if coordinator.fallen_out:
            # The group was left while its answer came in, which the client overlooks.
            coordinator.drop_out()
            return
        # Read before any wait: this assignment's, whatever happens meanwhile.
        generation, member_id = coordinator.generation_id, coordinator.member_id
        partitions = frozenset(assignment.partitions)
        coordinator.reason = "a rebalance of the group"
        log.info(
            "%s: joined generation %d of group %s as %s with %d partitions",
            self._name,
            generation,
            coordinator.group_id,
            "leader" if coordinator.leads else "follower",
            len(partitions),
        )
        gone = self._owned - partitions
        if gone and not await self._give_up(gone):
            # What this member was given in this generation it never hears of: nobody works on it.
            # Should the loop be back by now, so that it stays, it has to be given all anew.
            coordinator.reason = "an assignment that came to nothing"
            coordinator.request_rejoin()
            return
        self._owned = partitions
        self._events.put(Assigned(partitions, assignment.user_data, generation, member_id))
        if gone:
            # Whoever gets them is told in the next rebalance, now that they are free (KIP-429).
            coordinator.reason = f"{len(gone)} partitions given up"
            coordinator.request_rejoin()

    def refused(self, error: Exception) -> None:
        self._refusal = error
        self.wake()

    # Giving up.

    async def _give_up(self, partitions: frozenset[TopicPartition]) -> bool:
        """Have the stream thread commit and give up partitions; false if it came to nothing."""
        log.info("%s: gives up %s", self._name, _named(partitions))
        if not await self._received(Revoked(partitions)):
            return False
        self._owned -= partitions
        return not self._interrupted()

    async def _announced(self) -> bool:
        """Have the stream thread commit before a join; false if something else comes first."""
        if not self._announces_joins or not self._owned or self.coordinator.fallen_out:
            return True
        return await self._received(Joining()) and not self._interrupted()

    async def _received(self, event: Joining | Revoked) -> bool:
        """Wait until the stream thread has done what an event asks for; false if it was taken
        back, because something else comes first."""
        self._awaited = event
        self._events.put(event)
        try:
            while self._events.awaits(event):
                if self._interrupted():
                    if self._events.withdraw(event):
                        return False
                    if self._closing or self._without_progress():
                        # The stream thread has the event and hangs over it. Nothing is joined
                        # before its receipt, but others need not wait for that.
                        break
                self.coordinator.keep_heartbeating()
                await self._nap()
        finally:
            self._awaited = None
        return True

    def _interrupted(self, *, fallen_out: bool = True) -> bool:
        return (
            self._closing
            or self._refusal is not None
            or (fallen_out and self.coordinator.fallen_out)
            or self._without_progress()
        )

    async def _lose(self, why: str) -> None:
        lost, self._owned = self._owned, frozenset()
        with self._lock:
            self._join_begun = False
        self.coordinator.prepare_again()
        self.coordinator.reason = why
        if lost:
            log.warning("%s: lost %s: %s", self._name, _named(lost), why)
            self._events.put(Lost(lost))

    def _without_progress(self) -> bool:
        return self._clock.monotonic_ms() - self._progress_at_ms > self._max_poll_interval_ms

    async def _leave_for_want_of_progress(self) -> None:
        # One stall is answered once, and the next one anew, even within one attempt to join.
        since_ms = self._progress_at_ms
        if self._stalled_since_ms == since_ms:
            return
        self._stalled_since_ms = since_ms
        log.warning(
            "%s: %s group %s, because the processing loop has not come round for "
            "max.poll.interval.ms (%d ms): process less at a time, or raise it. "
            "The member joins again when it does.",
            self._name,
            "falls silent in" if self.coordinator.is_static else "leaves",
            self.coordinator.group_id,
            self._max_poll_interval_ms,
        )
        await self._leave_unless_static("max.poll.interval.ms without progress")
        await self._lose("max.poll.interval.ms without progress")

    async def _leave_unless_static(self, reason: str) -> None:
        """Leave without having been asked to. Follows Kafka: a static member never does, it may be
        back before its session ends, and then takes its partitions up without a rebalance."""
        if self.coordinator.is_static:
            self._watch.stop()
            self.coordinator.drop_out()
        else:
            await self._leave(reason, _LEAVE_TIMEOUT_MS)

    async def _leave(self, reason: str, timeout_ms: int) -> None:
        log.info("%s: leaves group %s", self._name, self.coordinator.group_id)
        self._watch.stop()
        try:
            await self.coordinator.leave(reason, timeout_ms)
        except client_errors.KafkaError as error:
            log.warning(
                "%s: could not tell group %s that it leaves (%s); the session timeout will",
                self._name,
                self.coordinator.group_id,
                error,
            )

    async def _fail(self, error: Exception) -> None:
        told = membership_error(
            error,
            group_id=self.coordinator.group_id,
            instance_id=self.coordinator.group_instance_id,
            user=user_of(self._link.config),
        )
        # An error of our own says what is wrong: where it was raised tells the user nothing.
        traced = error.__cause__ if told is error else error
        log.error("%s: ended: %s", self._name, told, exc_info=traced)
        # The others must not wait for this member, least of all for its assignment.
        try:
            await self._leave_unless_static("the member failed")
        except Exception as second:
            log.warning("%s: could not leave after it had failed: %s", self._name, second)
        finally:
            self._events.put(Failed(told))

    # Helpers of the above.

    @property
    def _name(self) -> str:
        return str(self._link.config["client_id"])

    async def _look_at_topics(self) -> None:
        if not self._watch.due or not (self._watch.topics or self._pattern):
            return
        try:
            changes = await self._topic_changes()
        except client_errors.RetriableError as error:
            log.debug("%s: could not look at the topics: %s", self._name, error)
            self._watch.look_failed()
            return
        if changes:
            self.request_rejoin("; ".join(changes), None)

    async def _topic_changes(self) -> list[str]:
        changes: list[str] = []
        if self._pattern is not None:
            matching = await topics_matching(self._link, self._pattern)
            if set(matching) != set(self._joined_topics):
                changes.append("other topics match the pattern")
        changes += self._watch.looked(await partition_counts(self._link, self._watch.topics))
        return changes


def _named(partitions: frozenset[TopicPartition], limit: int = 12) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
