"""A member's requests to the group coordinator: join, sync, heartbeat, leave.

All code of this module runs on kafka-python's event loop. `MemberCoordinator` differs from
kafka-python's consumer in three respects:

- The leader's assignor runs on another thread while the leader sends heartbeats, so an assignment
  (which creates topics and fetches end offsets) may take longer than the session timeout.
- A fenced static member fails; in kafka-python, only its heartbeats stop.
- Requests that must not wait behind a pending join use a second connection, because a broker
  processes the requests of a connection in order and may hold a join request for minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from kafka import errors as client_errors

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.kafka_python import (
    ClientConnections,
    ClientCoordinator,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.kafka.membership.connections import MemberConnections
from millstream.kafka.membership.member_assignor import (
    PROTOCOL_NAME,
    PROTOCOL_TYPE,
    MemberAssignment,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.record import TopicPartition

#: Kafka's maximum length of the reason in a join or leave request.
_MAX_REASON_LENGTH = 255

log = logging.getLogger("millstream.kafka.membership.group_member")

#: The timeout of the first connection to the coordinator, while bootstrap servers respond. A longer
#: `bootstrap_timeout_ms` replaces it.
FIRST_CONTACT_TIMEOUT_MS: Final = 60_000
_LOG_INTERVAL_MS: Final = 30_000
_FIRST_LOG_INTERVAL_MS: Final = 10_000


class JoinAbortedError(client_errors.KafkaError):  # type: ignore[misc]  # untyped
    """The join attempt was aborted, because the member must first do something else."""


class JoinCallbacks(Protocol):
    """The callbacks of a join, implemented by `Membership`."""

    #: Called before the first attempt of a rebalance, while heartbeats continue.
    async def prepare(self) -> None: ...

    #: Returns the topics and user data for one attempt. Raises JoinAbortedError to abort it.
    async def subscription(self) -> tuple[Sequence[str], bytes]: ...
    def owned(self) -> frozenset[TopicPartition]: ...

    #: Called on the leader.
    async def assign(
        self, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]: ...

    #: Called if this member computes no assignment. It may still be the leader (KIP-814).
    async def follow(
        self, *, is_leader: bool, members: Mapping[str, MemberSubscription]
    ) -> None: ...

    #: Called when the rebalance is complete.
    async def joined(self, assignment: MemberAssignment) -> None: ...

    #: Wakes the membership coroutine.
    def wake(self) -> None: ...

    #: Called when the broker rejects this member permanently.
    def rejected(self, error: Exception) -> None: ...


class MemberCoordinator(ClientCoordinator):
    def __init__(self, connections: ClientConnections, callbacks: JoinCallbacks) -> None:
        super().__init__(connections)
        self._callbacks = callbacks
        self._rack_id: str | None = connections.config["client_rack"] or None
        self.is_leader = False
        #: The reason for the next join, for the logs of the broker and of this process.
        self.reason = "a new member"

    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    async def prepare_join(self) -> None:
        await self._callbacks.prepare()

    async def join_completed(self, assignment: bytes) -> None:
        await self._callbacks.joined(decode_assignment(assignment))

    def rejected_permanently(self, error: Exception) -> None:
        self._callbacks.rejected(error)

    def request_rejoin(self) -> None:
        super().request_rejoin()
        self._callbacks.wake()

    def reset_generation(self, member_id: str = "") -> None:
        super().reset_generation(member_id)
        self._callbacks.wake()

    @property
    def alternate_node(self) -> Any:
        """A node id of the coordinator for another connection.

        A pending join does not block that connection.
        """
        return self.connections.alternate_node_id(self.coordinator_id)

    # Joining.

    async def join_and_sync(self) -> bytes:
        if self.coordinator_unknown():
            raise client_errors.CoordinatorNotAvailableError(self.coordinator_id)
        topics, user_data = await self._callbacks.subscription()
        self.start_join()
        sent_at = time.monotonic()
        joined = await self.connections.send(
            self._join_request(topics, user_data),
            node_id=self.coordinator_id,
            # The broker responds when all members have joined, which may take up to
            # `max_poll_interval_ms`.
            request_timeout_ms=max(
                self.config["request_timeout_ms"], self.config["max_poll_interval_ms"] + 5_000
            ),
        )
        self.process_join_response(joined, sent_at)
        self.is_leader = joined.leader == joined.member_id
        assignments = await self._assignments(joined)
        sent_at = time.monotonic()
        synced = await self.connections.send(
            self._sync_request(assignments), node_id=self.coordinator_id
        )
        return self.process_sync_response(synced, sent_at)

    def _join_request(self, topics: Sequence[str], user_data: bytes) -> Any:
        subscription = MemberSubscription(
            topics=tuple(topics),
            user_data=user_data,
            owned_partitions=tuple(self._callbacks.owned()),
            instance_id=self.group_instance_id,
            rack_id=self._rack_id,
            # Also makes this subscription differ from the previous one. If a follower's
            # subscription is unchanged, the broker returns the current assignment without a
            # rebalance.
            generation=self.generation_id,
        )
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.config["session_timeout_ms"],
            rebalance_timeout_ms=self.config["max_poll_interval_ms"],
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[(PROTOCOL_NAME, encode_subscription(subscription))],
            reason=self.reason[:_MAX_REASON_LENGTH],
            max_version=9,
        )

    async def _assignments(self, joined: Any) -> list[tuple[str, bytes]]:
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in (joined.members if self.is_leader else ())
        }
        if not self.is_leader or joined.skip_assignment:
            await self._callbacks.follow(is_leader=self.is_leader, members=members)
            return []
        assignments = await self._callbacks.assign(members)
        return [
            (member_id, encode_assignment(assignment))
            for member_id, assignment in assignments.items()
        ]

    def _sync_request(self, assignments: list[tuple[str, bytes]]) -> Any:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.generation_protocol,
            assignments=assignments,
            max_version=5,
        )

    # Heartbeats.

    def heartbeat_while_assigning(self) -> None:
        """Send a heartbeat while the leader's assignor runs.

        The response is ignored, because the sync that follows returns the same errors.
        """
        self.connections.send(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.group_instance_id,
            ),
            node_id=self.coordinator_id,
        )

    # Leaving.

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def abandon_membership(self) -> None:
        """Reset the generation without a leave request.

        The broker removes the member when its session times out.
        """
        self.is_leader = False
        self.reset_generation()

    async def leave(self, reason: str, timeout_ms: int) -> None:
        """Leave the group, even as a static member, and reset the generation.

        Makes one attempt. If it fails, the broker removes the member when its session times out.
        """
        member_id = self.member_id
        try:
            if member_id and not self.coordinator_unknown():
                await self.connections.wait_for(
                    self.connections.send(
                        self._leave_request(member_id, reason),
                        node_id=self.alternate_node if self.joining else self.coordinator_id,
                    ),
                    timeout_ms,
                )
        finally:
            self.abandon_membership()

    def _leave_request(self, member_id: str, reason: str) -> Any:
        return LeaveGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id=member_id,
                    group_instance_id=self.group_instance_id,
                    reason=reason[:_MAX_REASON_LENGTH],
                )
            ],
        )


class CoordinatorMonitor:
    """Checks the connection to the coordinator.

    At the start, a wrong configuration cannot be distinguished from an outage, so the member fails
    if the first connection takes longer than `FIRST_CONTACT_TIMEOUT_MS` or `bootstrap_timeout_ms`,
    whichever is longer. Later outages of any length are tolerated, with a warning every 30 s.
    """

    def __init__(
        self, connections: MemberConnections, coordinator: MemberCoordinator, clock: Clock
    ) -> None:
        self._connections = connections
        self._coordinator = coordinator
        self._clock = clock
        self._timeout_ms = max(FIRST_CONTACT_TIMEOUT_MS, connections.config["bootstrap_timeout_ms"])
        self._first: Deadline | None = Deadline(clock, self._timeout_ms)
        self._seen_at_ms = clock.monotonic_ms()
        self._warned_at_ms: int | None = None

    def check(self) -> None:
        """Raise BrokerUnavailableError if the first connection takes too long.

        Logs outages.
        """
        now_ms = self._clock.monotonic_ms()
        if self._connections.connected(self._coordinator.coordinator_id):
            if self._warned_at_ms is not None:
                log.info("%s: the coordinator of the group is reachable again", self._name)
            self._first = None
            self._seen_at_ms, self._warned_at_ms = now_ms, None
            return
        if self._first is not None and self._first.passed:
            raise self._unreachable()
        since_ms = self._seen_at_ms if self._warned_at_ms is None else self._warned_at_ms
        interval_ms = _LOG_INTERVAL_MS if self._first is None else _FIRST_LOG_INTERVAL_MS
        if now_ms - since_ms >= interval_ms:
            self._warned_at_ms = now_ms
            log.warning(
                "%s: no connection to the coordinator of group %s for %d s, retrying%s",
                self._name,
                self._coordinator.group_id,
                (now_ms - self._seen_at_ms) // 1000,
                "" if self._first is None else f". {self._advice()}",
            )

    @property
    def _name(self) -> str:
        return str(self._connections.config["client_id"])

    def _advice(self) -> str:
        return (
            f"The brokers advertise {', '.join(self._connections.advertised_brokers)}: check that "
            "this host can connect to all of them (advertised.listeners), and that the brokers can "
            "create __consumer_offsets."
        )

    def _unreachable(self) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"Brokers respond, but there was no connection to the coordinator of group "
            f"{self._coordinator.group_id!r} within {self._timeout_ms // 1000} s. {self._advice()}"
        )
