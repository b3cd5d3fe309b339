"""A stream thread's membership in its consumer group, reported as events."""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from millstream.clock import Clock, Deadline, Waker
from millstream.errors import (
    ConfigError,
    GroupMembershipError,
    IllegalStateError,
    RebalanceInProgressError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.kafka_python import ClientFuture, new_future
from millstream.kafka.membership.connections import MemberConnections, open_connections
from millstream.kafka.membership.group_offsets import GroupOffsets
from millstream.kafka.membership.member_assignor import MemberAssignor
from millstream.kafka.membership.member_errors import commit_error, membership_error
from millstream.kafka.membership.member_events import (
    CommitOffset,
    Failed,
    MemberEvent,
    MemberEventQueue,
)
from millstream.kafka.membership.membership import Membership
from millstream.kafka.membership.pending_response import PendingResponse
from millstream.kafka.user_permissions import user_of
from millstream.record import TopicPartition

log = logging.getLogger("millstream.kafka.membership.group_member")

#: How often the idle member thread checks that the event loop is running.
_CHECK_INTERVAL_S: Final = 1.0
_CLOSE_CONNECTIONS_TIMEOUT_MS: Final = 5_000
#: How long a call may exceed its timeout before the event loop is considered stuck.
_GRACE_MS: Final = 1_000


class GroupMember:
    """One member of a consumer group.

    Args:
        settings: kafka-python's consumer settings.
        topics: the topics to subscribe to. They do not need to exist yet.
        pattern: the pattern of the topics to subscribe to, instead of `topics`. It must match the
            whole name.
        client_id: the name in broker logs, thread names and log lines.
        waker: woken by each event. Its other wakeups also end a wait for events.
        announces_joins: whether to report `Joining` before each join while the member has
            partitions.
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
        self._events = MemberEventQueue(self._wake, waker)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connections: MemberConnections | None = None
        self._membership: Membership | None = None
        self._offsets: GroupOffsets | None = None
        self._closed = False
        #: The number of `progress` calls. If it stops increasing, the processing loop is stuck.
        self.rounds = 0

    # Called regularly by the stream thread.

    def start(self) -> None:
        """Start connecting and joining. Returns immediately; events report the outcome.

        The member waits for an unreachable cluster up to `bootstrap_timeout_ms` (15 s by default)
        and then reports `Failed`; a rejected login or a wrong security protocol is reported within
        seconds. After the first join, outages have no timeout.
        """
        if self._thread is not None or self._closed:
            raise IllegalStateError("A group member can only be started once.")
        self._thread = threading.Thread(
            target=self._main, name=f"member-{self._client_id}", daemon=True
        )
        self._thread.start()

    def next_event(self, timeout_ms: int = 0) -> MemberEvent | None:
        """Return the next event, or None if there is none within `timeout_ms`."""
        return self._events.take(timeout_ms)

    def acknowledge(self, event: MemberEvent) -> None:
        """Confirm that a `Joining`, `Revoked` or `Lost` event was processed.

        The member then continues. Late or unnecessary acknowledgments are ignored.
        """
        self._events.acknowledge(event)

    def progress(self) -> None:
        """Report an iteration of the processing loop. Cheap: call this in each iteration.

        Without progress for `max_poll_interval_ms`, the member leaves the group and reports `Lost`.
        It rejoins when progress is reported again and the event is acknowledged. A static member
        does not leave but stops its heartbeats, so other members get its partitions when its
        session times out.
        """
        self.rounds += 1
        if self._membership is not None:
            self._membership.progress()

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        """Commit the offsets of the next records to process under the current generation.

        Waits for the response. Retriable errors are retried for `timeout_ms`.

        Raises:
            TaskMigratedError: the member is no longer in the group; nothing was committed.
            RebalanceInProgressError: a join is in progress; commit again after the rebalance.
            BrokerUnavailableError: no response in time; the outcome is unknown.
            StreamsError: the broker rejected the commit.
        """
        if offsets:
            self.begin_commit(offsets, timeout_ms).result()

    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> PendingResponse:
        """Start a commit of at least one offset.

        The response wakes the thread that waits for events. Commits reach the broker in the order
        of the calls. The response's `result` raises the errors of `commit`.
        """
        response = self._call_coordinator(self._started_offsets().commit, offsets, timeout_ms)
        if self._waker is not None:
            response.add_done_callback(self._waker.wake)
        return response

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, CommitOffset | None]:
        """Return the committed offsets of the group.

        The value is None for a partition without a commit. Raises the same errors as `commit`. With
        `isolation_level="read_committed"`, the call waits until pending transactional offset
        commits have completed.
        """
        fetched: dict[TopicPartition, CommitOffset | None] = self._call_coordinator(
            self._started_offsets().fetch, partitions, timeout_ms
        ).result()
        return fetched

    # Called occasionally by the stream thread.

    def request_rejoin(self, reason: str, *, generation: int | None = None) -> None:
        """Request another rebalance of the whole group.

        This process and the broker log the reason. With a `generation`, the request is ignored if
        that generation is no longer current or a join has begun. Without it, a join is always sent,
        with new user data.
        """
        if self._membership is not None:
            self._membership.request_rejoin(reason, generation)

    @contextlib.contextmanager
    def without_rejoin(self) -> Iterator[GroupMetadata]:
        """Block joins while a transaction is committed with the yielded group metadata.

        Otherwise, if a rebalance completed after the group metadata was read and before the broker
        checks it, a valid transaction would be aborted. Keep the block short, because the whole
        group waits. Raises RebalanceInProgressError if a join is in progress: commit after the
        rebalance.
        """
        membership = self._membership
        if membership is None:
            raise IllegalStateError("The group member has not joined yet.")
        membership.block_joins()
        try:
            yield self._group_metadata(membership)
        finally:
            membership.unblock_joins()

    def _group_metadata(self, membership: Membership) -> GroupMetadata:
        """Return the group metadata, or raise if the member is no longer in the group.

        The broker would accept a transaction without a member id, even if another member already
        owns the partitions.
        """
        coordinator = membership.coordinator
        generation, member_id = coordinator.generation_id, coordinator.member_id
        if generation < 0 or not member_id:
            raise RebalanceInProgressError(f"Group {self._group_id!r} has removed this member.")
        return GroupMetadata(
            generation, self._group_id, member_id, self._settings.get("group_instance_id")
        )

    @property
    def generation(self) -> int:
        """The current generation of the member; -1 if it is not in the group."""
        return -1 if self._membership is None else self._membership.coordinator.generation_id

    @property
    def member_id(self) -> str:
        """The member id that the broker assigned; empty if there is none."""
        return "" if self._membership is None else self._membership.coordinator.member_id

    @property
    def rebalancing(self) -> bool:
        """Whether the member is joining, or is not in the group.

        While this is true, commits are rejected.
        """
        return self._membership is None or self._membership.rebalancing

    def close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """End the membership. Later commits are not possible.

        With `leave_group`, a leave request is sent, even for a static member, so the group
        rebalances immediately. Otherwise, the partitions stay with this member until its session
        times out, or until a static member with the same instance id replaces it. After the
        timeout, closing continues in the background.
        """
        deadline = Deadline(self._clock, timeout_ms)
        with self._lock:
            self._closed = True
            if self._membership is not None:
                self._membership.end(leave_group=leave_group, timeout_ms=timeout_ms)
        self._events.close()
        if self._thread is not None:
            self._thread.join(deadline.remaining_ms(timeout_ms) / 1000)
            if self._thread.is_alive():
                log.warning("%s: the member did not end within %d ms", self._client_id, timeout_ms)

    # The member's thread.

    def _main(self) -> None:
        try:
            connections = open_connections(
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
            self._run_membership(connections)
        except Exception as error:
            self._fail(error)
        finally:
            connections.close(_CLOSE_CONNECTIONS_TIMEOUT_MS)

    def _run_membership(self, connections: MemberConnections) -> None:
        with self._lock:
            if self._closed:
                return
            membership = Membership(
                connections,
                self._events,
                self._assignor,
                self._on_this_thread,
                topics=self._topics,
                pattern=self._pattern,
                clock=self._clock,
                announces_joins=self._announces_joins,
            )
            stable_only = connections.config["isolation_level"] == "read_committed"
            self._offsets = GroupOffsets(
                membership.coordinator, stable_only=stable_only, clock=self._clock
            )
            self._connections = connections
            self._membership = membership
        ended = connections.call_soon(membership.run)
        ended.add_both(lambda _: self._jobs.put(None))
        while True:
            try:
                job = self._jobs.get(timeout=_CHECK_INTERVAL_S)
            except queue.Empty:
                if connections.alive:
                    continue
                raise GroupMembershipError(
                    f"The event loop of the member of group {self._group_id!r} stopped "
                    "unexpectedly; see the log of kafka.net.selector for the reason."
                ) from connections.crash
            if job is None:
                if ended.exception is not None:
                    raise ended.exception
                return
            job()

    def _on_this_thread(self, call: Callable[[], Any]) -> ClientFuture:
        """Run a call on the member's thread and resolve its future on the event loop."""
        future = new_future()
        connections = self._connections

        def job() -> None:
            try:
                value = call()
            except BaseException as error:
                caught = error
                resolve = lambda: future.failure(caught)  # noqa: E731
            else:
                resolve = lambda: future.success(value)  # noqa: E731
            assert connections is not None
            try:
                connections.run_soon(resolve)
            except Exception:
                # The event loop ended while the assignor ran, so the result is not needed.
                log.debug("%s: dropped a late result of the assignor", self._client_id)

        self._jobs.put(job)
        return future

    def _fail(self, error: Exception) -> None:
        if self._closed:
            return
        failure = membership_error(
            error,
            group_id=self._group_id,
            instance_id=self._settings.get("group_instance_id"),
            user=user_of(self._settings),
        )
        log.error("%s: %s", self._client_id, failure)
        self._events.put(Failed(failure))

    # Calls into the event loop.

    def _wake(self) -> None:
        if self._membership is not None:
            self._membership.wake()

    def _started_offsets(self) -> GroupOffsets:
        if self._closed or self._offsets is None:
            state = "is closed" if self._closed else "has not joined yet"
            raise IllegalStateError(f"The member of group {self._group_id!r} {state}.")
        return self._offsets

    def _call_coordinator(
        self, call: Callable[..., Any], what: Any, timeout_ms: int
    ) -> PendingResponse:
        connections = self._connections
        assert connections is not None
        if not connections.alive:
            raise TaskMigratedError(
                f"The member of group {self._group_id!r} has ended, so offsets can no longer be "
                "committed or fetched."
            )
        generation = self.generation

        def as_commit_error(error: Exception) -> StreamsError:
            return commit_error(
                error, group_id=self._group_id, generation=generation, user=user_of(self._settings)
            )

        try:
            future = connections.call_soon(call, what, timeout_ms)
        except Exception as error:
            raise as_commit_error(error) from error
        return PendingResponse(connections, future, timeout_ms + _GRACE_MS, as_commit_error)
