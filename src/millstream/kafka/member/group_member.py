"""A stream thread's membership in its consumer group, of which the thread only sees events.

The member joins the group, heartbeats, carries the assignor's bytes and commits offsets. It owns
partitions but fetches nothing: records come through another client. It lives on two threads of its
own (one does network I/O, the other runs the assignor), so that a stream thread that is busy with
a batch neither misses a heartbeat nor holds up a rebalance.

Source of the semantics: Kafka's classic group protocol with incremental cooperative rebalancing
(KIP-429), as used by Kafka Streams' `StreamThread`; `max.poll.interval.ms` as in KIP-62.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from millstream.clock import Clock, Deadline
from millstream.errors import (
    ConfigError,
    GroupMembershipError,
    IllegalStateError,
    RebalanceInProgressError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.kafka_python import ClientFuture, new_future
from millstream.kafka.member.answer import Answer
from millstream.kafka.member.errors import commit_error, membership_error
from millstream.kafka.member.events import (
    Assigned,
    CommitOffset,
    Failed,
    Lost,
    MemberEvent,
    Revoked,
)
from millstream.kafka.member.life import Membership
from millstream.kafka.member.link import MemberLink, open_link
from millstream.kafka.member.mailbox import Mailbox
from millstream.kafka.member.member_assignor import (
    MemberAssignment,
    MemberAssignor,
    MemberSubscription,
)
from millstream.kafka.member.offsets import MemberOffsets
from millstream.kafka.rights import user_of
from millstream.record import TopicPartition
from millstream.waker import Waker

log = logging.getLogger("millstream.kafka.member.group_member")

#: How often the member's thread looks whether the event loop still runs, while nothing happens.
_LOOK_AROUND_S: Final = 1.0
_CLOSE_LINK_TIMEOUT_MS: Final = 5_000
#: By how much a call may exceed its timeout before the event loop counts as stuck.
_GRACE_MS: Final = 1_000


class GroupMember:
    """One member of a consumer group.

    Args:
        settings: kafka-python's consumer settings (`bootstrap_servers`, `session_timeout_ms`,
            `max_poll_interval_ms`, `group_instance_id`, `isolation_level`, `client_rack`,
            `metadata_max_age_ms`, security, ...).
        group_id: the group to join: the application id.
        topics: what to subscribe to; topics that do not exist (yet) are no hindrance.
        pattern: subscribe to the topics whose whole name matches, instead of `topics`.
        assignor: makes the user data and, on the leader, the assignment.
        client_id: the name in broker logs, thread names and log lines.
        clock: where the time is read.
        waker: woken by each event; others that wake it end a wait for events, too.
        announces_joins: whether to report `Joining` before each join of a member that has
            partitions.

    Example:
        member = GroupMember(
            {"bootstrap_servers": "localhost:9092"}, group_id="shop", topics=["orders"],
            pattern=None, assignor=assignor, client_id="shop-1", clock=SystemClock(),
        )
        member.start()
        while running:
            member.progress()
            match member.next_event():
                case Revoked() as event:
                    member.commit(offsets_of(event.partitions), timeout_ms=10_000)
                    member.acknowledge(event)
                case Assigned(partitions=partitions):
                    work_on(partitions)
                case Lost() as event:
                    drop(event.partitions)
                    member.acknowledge(event)
                case Failed(error=error):
                    raise error
        member.close(leave_group=True, timeout_ms=10_000)
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        group_id: str,
        topics: Sequence[str] | None,
        pattern: re.Pattern[str] | None,
        assignor: MemberAssignor,
        client_id: str,
        clock: Clock,
        waker: Waker | None = None,
        announces_joins: bool = False,
    ) -> None:
        if (topics is None) == (pattern is None):
            raise ConfigError("A group member subscribes either to topics or to a pattern.")
        self._settings = dict(settings)
        self._group_id = group_id
        self._topics: Sequence[str] = topics or ()
        self._pattern = pattern
        self._assignor = assignor
        self._client_id = client_id
        self._clock = clock
        self._announces_joins = announces_joins
        self._waker = waker
        self._events = Mailbox(self._wake, waker)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._link: MemberLink | None = None
        self._life: Membership | None = None
        self._offsets: MemberOffsets | None = None
        self._closed = False
        self._rounds = 0

    # What the stream thread does all the time.

    def start(self) -> None:
        """Begin to connect and to join. Returns at once; how it went is told by events.

        A cluster that cannot be reached is waited for, `bootstrap_timeout_ms` at most (15 s by
        default), and then reported as `Failed`; a refused login or a wrong security protocol is
        reported within seconds. Once the member has joined, outages are waited out.
        """
        if self._thread is not None or self._closed:
            raise IllegalStateError("A group member is started once.")
        self._thread = threading.Thread(
            target=self._main, name=f"member-{self._client_id}", daemon=True
        )
        self._thread.start()

    def next_event(self, timeout_ms: int = 0) -> MemberEvent | None:
        """The next event in order, or None if there is none within `timeout_ms`."""
        return self._events.take(timeout_ms)

    def acknowledge(self, event: MemberEvent) -> None:
        """Say that what a `Revoked` or a `Lost` asked for is done, so that the member goes on.

        An acknowledgement that comes too late, or is not needed, does nothing.
        """
        self._events.acknowledge(event)

    def progress(self) -> None:
        """Say that the processing loop has come round. Cheap: call it in each round.

        Without it for `max_poll_interval_ms` the member leaves the group and reports `Lost`. It
        joins again when progress comes back and the event is acknowledged. A static member does
        not leave but falls silent, so that others get its partitions when its session ends.
        """
        self._rounds += 1
        if self._life is not None:
            self._life.progress()

    @property
    def rounds(self) -> int:
        """How often `progress` was called; the same number for long means a loop that hangs."""
        return self._rounds

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        """Commit offsets under the present generation, waiting for the broker's answer.

        Args:
            offsets: for each partition the offset of the next record to process.
            timeout_ms: how long errors that pass are waited out.

        Raises:
            TaskMigratedError: the member is not in the group any more; nothing was committed.
            RebalanceInProgressError: a join is on its way; commit again after it.
            BrokerUnavailableError: no answer in time; whether it was committed is not known.
            StreamsError: the broker refused the commit.
        """
        if offsets:
            self.begin_commit(offsets, timeout_ms).take()

    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> Answer:
        """The same without waiting: the answer wakes who waits for events.

        Commits reach the broker in the order in which they were begun.

        Args:
            offsets: not empty, as for `commit`.
            timeout_ms: how long errors that pass are waited out.

        Returns:
            What raises, when it is taken, what `commit` would.
        """
        begun = self._ask_coordinator(self._connected().commit, offsets, timeout_ms)
        if self._waker is not None:
            begun.when_there(self._waker.wake)
        return begun

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, CommitOffset | None]:
        """What the group has committed; None for a partition without a commit.

        With `isolation_level="read_committed"` offsets of open transactions are waited for.

        Raises:
            BrokerUnavailableError: no (stable) answer in time.
            StreamsError: the broker refused to answer.
        """
        fetched: dict[TopicPartition, CommitOffset | None] = self._ask_coordinator(
            self._connected().fetch, partitions, timeout_ms
        ).take()
        return fetched

    # What it does now and then.

    def request_rejoin(self, reason: str, *, generation: int | None = None) -> None:
        """Have the whole group rebalance once more.

        Args:
            reason: for the logs, here and on the broker.
            generation: the rebalance after which this is asked for. If the group has already gone
                on from it, or is about to, the wish is fulfilled and nothing happens. Without it,
                a join is sent in any case, with user data made from now on.
        """
        if self._life is not None:
            self._life.request_rejoin(reason, generation)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to other topics. What is owned of the others is revoked first.

        Raises:
            IllegalStateError: the member subscribes to a pattern.
        """
        if self._pattern is not None:
            raise IllegalStateError(
                "This member follows a pattern: its topics are the ones that match."
            )
        with self._lock:
            self._topics = tuple(topics)
            if self._life is not None:
                self._life.subscribe(topics)

    @contextlib.contextmanager
    def without_rejoin(self) -> Iterator[GroupMetadata]:
        """Keep the member from joining a rebalance while a transaction is committed, which goes
        with the place in the group that is given here.

        Otherwise the rebalance may be over between the moment where the group metadata is read
        and the one where the broker checks it, and a healthy transaction is aborted. Keep it
        short: the whole group waits.

        Raises:
            RebalanceInProgressError: a join is on its way already; commit after it.
        """
        life = self._life
        if life is None:
            raise IllegalStateError("The group member has not joined yet.")
        life.hold()
        try:
            yield self._place(life)
        finally:
            life.release()

    def _place(self, life: Membership) -> GroupMetadata:
        """The place in the group, which is lost on another thread: a transaction that named none
        would be taken by the broker, whoever has the partitions by then."""
        coordinator = life.coordinator
        generation, member_id = coordinator.generation_id, coordinator.member_id
        if generation < 0 or not member_id:
            raise RebalanceInProgressError(
                f"Group {self._group_id!r} has gone on without this member."
            )
        return GroupMetadata(
            generation, self._group_id, member_id, self._settings.get("group_instance_id")
        )

    @property
    def generation(self) -> int:
        """The generation the broker knows this member in; -1 if it is in none."""
        return -1 if self._life is None else self._life.coordinator.generation_id

    @property
    def member_id(self) -> str:
        """The id the broker gave this member; empty if it has none."""
        return "" if self._life is None else self._life.coordinator.member_id

    @property
    def rebalancing(self) -> bool:
        """Whether the member is joining or not in the group, so that commits are refused."""
        return self._life is None or self._life.rebalancing

    def close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """End the membership. Commit before: nothing can be committed afterwards.

        Args:
            leave_group: tell the group, which rebalances at once. A static member leaves as well.
                Without it the partitions stay with this member until its session times out, or
                until a static member of the same instance id takes its place.
            timeout_ms: how long to wait; what is left then is ended in the background.
        """
        deadline = Deadline(self._clock, timeout_ms)
        with self._lock:
            self._closed = True
            if self._life is not None:
                self._life.end(leave_group=leave_group, timeout_ms=timeout_ms)
        self._events.close()
        if self._thread is not None:
            self._thread.join(deadline.remaining_ms(timeout_ms) / 1000)
            if self._thread.is_alive():
                log.warning("%s: has not ended within %d ms", self._client_id, timeout_ms)

    # The member's own thread.

    def _main(self) -> None:
        try:
            link = open_link(
                self._settings,
                group_id=self._group_id,
                client_id=self._client_id,
                stopped=lambda: self._closed,
                clock=self._clock,
            )
        except Exception as error:
            self._fail(error)
            return
        try:
            self._live(link)
        except Exception as error:
            self._fail(error)
        finally:
            link.close(_CLOSE_LINK_TIMEOUT_MS)

    def _live(self, link: MemberLink) -> None:
        with self._lock:
            if self._closed:
                return
            life = Membership(
                link,
                self._events,
                self._assignor,
                self._on_this_thread,
                topics=self._topics,
                pattern=self._pattern,
                clock=self._clock,
                announces_joins=self._announces_joins,
            )
            stable_only = link.config["isolation_level"] == "read_committed"
            self._offsets = MemberOffsets(
                life.coordinator, stable_only=stable_only, clock=self._clock
            )
            self._link = link
            self._life = life
        ended = link.call_soon(life.run)
        ended.add_both(lambda _: self._jobs.put(None))
        while True:
            try:
                job = self._jobs.get(timeout=_LOOK_AROUND_S)
            except queue.Empty:
                if link.alive:
                    continue
                raise GroupMembershipError(
                    f"The event loop of the member of group {self._group_id!r} died; the log of "
                    "kafka.net.selector says why."
                ) from link.crash
            if job is None:
                if ended.exception is not None:
                    raise ended.exception
                return
            job()

    def _on_this_thread(self, call: Callable[[], Any]) -> ClientFuture:
        """Run a call on this thread; the answer arrives on the event loop."""
        answer = new_future()
        link = self._link

        def job() -> None:
            try:
                value = call()
            except BaseException as error:
                caught = error
                resolve = lambda: answer.failure(caught)  # noqa: E731
            else:
                resolve = lambda: answer.success(value)  # noqa: E731
            assert link is not None
            try:
                link.run_soon(resolve)
            except Exception:
                # The event loop ended while the assignor worked: nobody waits for the answer.
                log.debug("%s: an answer of the assignor came too late", self._client_id)

        self._jobs.put(job)
        return answer

    def _fail(self, error: Exception) -> None:
        if self._closed:
            return
        told = membership_error(
            error,
            group_id=self._group_id,
            instance_id=self._settings.get("group_instance_id"),
            user=user_of(self._settings),
        )
        log.error("%s: %s", self._client_id, told)
        self._events.put(Failed(told))

    # Calls into the event loop.

    def _wake(self) -> None:
        if self._life is not None:
            self._life.wake()

    def _connected(self) -> MemberOffsets:
        if self._closed or self._offsets is None:
            state = "is closed" if self._closed else "has not joined yet"
            raise IllegalStateError(f"The member of group {self._group_id!r} {state}.")
        return self._offsets

    def _ask_coordinator(self, call: Callable[..., Any], what: Any, timeout_ms: int) -> Answer:
        link = self._link
        assert link is not None
        if not link.alive:
            raise TaskMigratedError(
                f"The member of group {self._group_id!r} has ended, so nothing can be committed "
                "for its partitions."
            )
        generation = self.generation

        def told(error: Exception) -> StreamsError:
            return commit_error(
                error,
                group_id=self._group_id,
                generation=generation,
                user=user_of(self._settings),
            )

        try:
            future = link.call_soon(call, what, timeout_ms)
        except Exception as error:
            raise told(error) from error
        return Answer(link, future, timeout_ms + _GRACE_MS, told)


__all__ = [
    "Assigned",
    "CommitOffset",
    "Failed",
    "GroupMember",
    "Lost",
    "MemberAssignment",
    "MemberAssignor",
    "MemberEvent",
    "MemberSubscription",
    "Revoked",
]
