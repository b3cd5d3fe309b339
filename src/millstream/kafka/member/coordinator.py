"""A group member's talk with the group's coordinator: join, sync, heartbeat, leave.

Everything here runs on the client's event loop. Three things differ from kafka-python's own
consumer:

- The leader's assignor runs on another thread and the leader heartbeats meanwhile, so that working
  out an assignment (creating topics, asking for end offsets) may outlast the session timeout.
- A fenced static member is told so; kafka-python only stops its heartbeats.
- A request that must not wait behind a pending join goes through a second connection, because a
  broker answers one request of a connection after the other and may hold a join for minutes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kafka import errors as client_errors

from millstream.kafka.kafka_python import (
    ClientConnections,
    ClientCoordinator,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.kafka.member.member_assignor import (
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

#: Kafka's own bound for reasons that travel in requests.
_LONGEST_REASON = 255


class MustGiveUpError(client_errors.KafkaError):  # type: ignore[misc]  # the client has no types
    """This attempt to join stops: partitions have to be given up first."""


class JoinSteps(Protocol):
    """What happens around a join on the side of the member's life."""

    async def prepare(self) -> None:
        """Before the first attempt of a rebalance, while heartbeats go on."""
        ...

    async def subscription(self) -> tuple[Sequence[str], bytes]:
        """Topics and user data, anew for each attempt. Raises MustGiveUpError to stop it."""
        ...

    def owned(self) -> frozenset[TopicPartition]:
        """What this member owns and has not given up."""
        ...

    async def assign(
        self, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """As the leader: an assignment for each member."""
        ...

    async def follow(self, *, leads: bool, members: Mapping[str, MemberSubscription]) -> None:
        """No assignment is this member's to make. It may lead all the same (KIP-814)."""
        ...

    async def joined(self, assignment: MemberAssignment) -> None:
        """The rebalance is complete."""
        ...

    def wake(self) -> None:
        """Something happened that the member's life should look at."""
        ...

    def refused(self, error: Exception) -> None:
        """The broker refuses this member, and will go on doing so."""
        ...


class MemberCoordinator(ClientCoordinator):
    """One member of one group.

    Args:
        connections: to the brokers; their settings are the member's, too.
        steps: what to do around a join.
    """

    def __init__(self, connections: ClientConnections, steps: JoinSteps) -> None:
        super().__init__(connections)
        self._steps = steps
        self._rack_id: str | None = connections.config["client_rack"] or None
        self.leads = False
        #: Why the next join goes out, for the broker's log and ours.
        self.reason = "a new member"

    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    async def prepare_join(self) -> None:
        await self._steps.prepare()

    async def join_completed(self, assignment: bytes) -> None:
        await self._steps.joined(decode_assignment(assignment))

    def heartbeat_refused(self, error: Exception) -> None:
        self.refused_for_good(error)

    def request_rejoin(self) -> None:
        super().request_rejoin()
        self._steps.wake()

    def reset_generation(self, member_id: str = "") -> None:
        super().reset_generation(member_id)
        self._steps.wake()

    @property
    def side_node(self) -> Any:
        """The coordinator's broker by a connection that a pending join does not block."""
        return self.connections.same_broker(self.coordinator_id)

    # Joining.

    async def join_and_sync(self) -> bytes:
        if self.coordinator_unknown():
            raise client_errors.CoordinatorNotAvailableError(self.coordinator_id)
        topics, user_data = await self._steps.subscription()
        self.begin_to_join()
        asked_at = time.monotonic()
        joined = await self.connections.send(
            self._join_request(topics, user_data),
            node_id=self.coordinator_id,
            # The broker answers when all members have joined, for which they have this long.
            request_timeout_ms=max(
                self.config["request_timeout_ms"], self.config["max_poll_interval_ms"] + 5_000
            ),
        )
        self.take_join_response(joined, asked_at)
        self.leads = joined.leader == joined.member_id
        assignments = await self._assignments(joined)
        asked_at = time.monotonic()
        synced = await self.connections.send(
            self._sync_request(assignments), node_id=self.coordinator_id
        )
        return self.take_sync_response(synced, asked_at)

    def _join_request(self, topics: Sequence[str], user_data: bytes) -> Any:
        subscription = MemberSubscription(
            topics=tuple(topics),
            user_data=user_data,
            owned_partitions=tuple(self._steps.owned()),
            instance_id=self.group_instance_id,
            rack_id=self._rack_id,
            # It also makes this subscription differ from the one of the join before: a broker
            # answers a follower that joins unchanged with the assignment it has, no rebalance.
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
            reason=self.reason[:_LONGEST_REASON],
            max_version=9,
        )

    async def _assignments(self, joined: Any) -> list[tuple[str, bytes]]:
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in (joined.members if self.leads else ())
        }
        if not self.leads or joined.skip_assignment:
            await self._steps.follow(leads=self.leads, members=members)
            return []
        assignments = await self._steps.assign(members)
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

    # Staying in.

    def heartbeat_while_assigning(self) -> None:
        """Tell the broker that the leader lives. The answer does not matter: whatever is wrong,
        the sync that follows is told as well."""
        self.connections.send(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.group_instance_id,
            ),
            node_id=self.coordinator_id,
        )

    def refused_for_good(self, error: Exception) -> None:
        """A heartbeat or a commit was answered with an error that does not pass."""
        self._steps.refused(error)

    # Leaving.

    @property
    def is_static(self) -> bool:
        """Whether this member has a `group.instance.id`."""
        return self.group_instance_id is not None

    def drop_out(self) -> None:
        """Be no member any more without telling: no heartbeats, and the session timeout follows."""
        self.leads = False
        self.reset_generation()

    async def leave(self, reason: str, timeout_ms: int) -> None:
        """Leave the group, static members too, and forget the generation.

        One attempt: without it the session timeout ends the membership.
        """
        member_id = self.member_id
        try:
            if member_id and not self.coordinator_unknown():
                await self.connections.wait_for(
                    self.connections.send(
                        self._leave_request(member_id, reason),
                        node_id=self.side_node if self.joining else self.coordinator_id,
                    ),
                    timeout_ms,
                )
        finally:
            self.drop_out()

    def _leave_request(self, member_id: str, reason: str) -> Any:
        return LeaveGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id=member_id,
                    group_instance_id=self.group_instance_id,
                    reason=reason[:_LONGEST_REASON],
                )
            ],
        )
