"""A group member's talk with the group's coordinator: join, sync, heartbeat, leave.

Built on kafka-python's `BaseCoordinator`, which finds the coordinator, retries, heartbeats and
keeps the generation. Everything here runs on the client's event loop. Three things differ from
kafka-python's own consumer:

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
from kafka.coordinator.base import BaseCoordinator
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.structs import MemberState

from millstream.kafka.member.assignor_interface import (
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


class MemberCoordinator(BaseCoordinator):  # type: ignore[misc]  # the client has no types
    """One member of one group.

    Args:
        client: kafka-python's client.
        config: kafka-python's settings, all of them.
        steps: what to do around a join.
    """

    def __init__(self, client: Any, config: Mapping[str, Any], steps: JoinSteps) -> None:
        super().__init__(client, **config)
        self._steps = steps
        self._rack_id: str | None = config["client_rack"] or None
        self.leads = False
        #: Why the next join goes out, for the broker's log and ours.
        self.reason = "a new member"

    # What kafka-python asks of a coordinator.

    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    def group_protocols(self) -> list[tuple[str, bytes]]:
        raise NotImplementedError("A member's subscription is built where it joins.")

    def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Any:
        raise NotImplementedError("A member assigns where it joins, on another thread.")

    async def _on_join_prepare_async(
        self, generation: int, member_id: str, timeout_ms: float | None = None
    ) -> None:
        await self._steps.prepare()

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        await self._steps.joined(decode_assignment(member_assignment_bytes))

    def request_rejoin(self) -> None:
        super().request_rejoin()
        self._steps.wake()

    def reset_generation(self, member_id: str = "") -> None:
        super().reset_generation(member_id)
        self._steps.wake()

    # Membership, as others see it.

    @property
    def member_id(self) -> str:
        return str(self._generation.member_id)

    @property
    def generation_id(self) -> int:
        return int(self._generation.generation_id)

    @property
    def fallen_out(self) -> bool:
        """Whether the broker no longer counts this member in: what it owned may be another's."""
        return bool(self._generation.is_lost())

    @property
    def joining(self) -> bool:
        """Whether a join is on its way."""
        return self.state is MemberState.REBALANCING

    def prepare_again(self) -> None:
        """Have the next attempt to join begin with its preparation, even within a rebalance."""
        self.rejoining = False

    @property
    def side_node(self) -> Any:
        """The coordinator's broker by a connection that a pending join does not block."""
        coordinator = self._cluster.broker_metadata(self.coordinator_id)
        if coordinator is not None:
            for broker in self._cluster.brokers():
                if (broker.host, broker.port) == (coordinator.host, coordinator.port):
                    return broker.node_id
        return self.coordinator_id

    # Joining.

    async def _do_join_and_sync_async(self) -> bytes:
        if self.coordinator_unknown():
            raise client_errors.CoordinatorNotAvailableError(self.coordinator_id)
        topics, user_data = await self._steps.subscription()
        with self._lock:
            self.state = MemberState.REBALANCING
        asked_at = time.monotonic()
        joined = await self._manager.send(
            self._join_request(topics, user_data),
            node_id=self.coordinator_id,
            # The broker answers when all members have joined, for which they have this long.
            request_timeout_ms=max(
                self.config["request_timeout_ms"], self.config["max_poll_interval_ms"] + 5_000
            ),
        )
        self._process_join_group_response(joined, asked_at)
        self.leads = joined.leader == joined.member_id
        assignments = await self._assignments(joined)
        asked_at = time.monotonic()
        synced = await self._manager.send(
            self._sync_request(assignments), node_id=self.coordinator_id
        )
        return bytes(self._process_sync_group_response(synced, asked_at))

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
            member_id=self._generation.member_id,
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
            generation_id=self._generation.generation_id,
            member_id=self._generation.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._generation.protocol,
            assignments=assignments,
            max_version=5,
        )

    # Staying in.

    def heartbeat_while_assigning(self) -> None:
        """Tell the broker that the leader lives. The answer does not matter: whatever is wrong,
        the sync that follows is told as well."""
        self._manager.send(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._generation.generation_id,
                member_id=self._generation.member_id,
                group_instance_id=self.group_instance_id,
            ),
            node_id=self.coordinator_id,
        )

    def _handle_heartbeat_response(self, response: Any, send_time: float) -> Any:
        try:
            return super()._handle_heartbeat_response(response, send_time)
        except (
            client_errors.FencedInstanceIdError,
            client_errors.GroupAuthorizationFailedError,
        ) as error:
            self.refused_for_good(error)
            raise

    def refused_for_good(self, error: Exception) -> None:
        """A heartbeat or a commit was answered with an error that does not pass."""
        self._steps.refused(error)

    def keep_heartbeating(self) -> None:
        """Say that this member is alive, and start the heartbeats anew should they have ended."""
        try:
            self.poll_heartbeat()
        finally:
            self._maybe_start_heartbeat_loop()

    def stop_heartbeating(self) -> None:
        """For good."""
        self._close_heartbeat()

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
        generation = self._generation
        try:
            if generation.has_member_id() and not self.coordinator_unknown():
                await self._manager.wait_for(
                    self._manager.send(
                        self._leave_request(generation.member_id, reason),
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
