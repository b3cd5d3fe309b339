"""Requests to a group coordinator, sent both to a real broker and to the simulated cluster.

They use a `MemberConnections`; its simulated version accepts the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import errors as client_errors
from kafka.protocol.metadata import FindCoordinatorRequest

from millstream.kafka.kafka_python import (
    ClientFuture,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from millstream.kafka.membership.connections import MemberConnections

_SESSION_MS: Final = 30_000
_REBALANCE_MS: Final = 60_000
_TIMEOUT_MS: Final = 20_000

#: The answers by their names.
Answers = dict[str, str]


def error_of(code: int) -> str:
    """The name of a Kafka error, "ok" for none."""
    return "ok" if not code else str(client_errors.for_code(code).__name__)


class Prober:
    """A client of one group's coordinator.

    Args:
        connections: the connections.
        group: the group id.
        topic: an existing topic, for committed offsets.
    """

    def __init__(self, connections: MemberConnections, group: str, topic: str) -> None:
        self._connections = connections
        self._group = group
        self._topic = topic
        self._node: int | None = None

    def find(self) -> None:
        """Find the group's coordinator."""
        while self._node is None:
            request = FindCoordinatorRequest(
                key=self._group, key_type=0, coordinator_keys=[self._group]
            )
            answer = self._wait_for(self._connections.send, request)
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code:
                self._pause(0.2)
            else:
                self._node = found.node_id
        while "Coordinator" in self.heartbeat("unknown", 1):
            # The coordinator is still loading its groups.
            self._pause(0.2)

    def send(self, request: Any) -> Any:
        """Send a request and return the answer."""
        return self._wait_for(self._connections.send, request, self._node)

    def begin(self, request: Any) -> ClientFuture:
        """Send a request that may need other members before it is answered."""
        return self._connections.call_soon(self._connections.send, request, self._node)

    def pause(self) -> None:
        """Wait until requests in flight have arrived."""
        self._pause(0.5)

    def _pause(self, seconds: float) -> None:
        self._wait_for(self._connections.sleep, seconds)

    def _wait_for(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return self._connections.value_of(
            self._connections.call_soon(call, *arguments), _TIMEOUT_MS
        )

    def join(self, member: str, data: bytes = b"a", instance: str | None = None) -> Any:
        """Join the group."""
        return self.send(self.join_request(member, data, instance))

    def join_request(self, member: str, data: bytes, instance: str | None = None) -> Any:
        """Create a request to join."""
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[("stream", data)],
            reason="a probe",
            max_version=9,
        )

    def new_member(self, data: bytes = b"a") -> Any:
        """Join as a dynamic member, in two steps."""
        first = self.join("")
        return self.join(first.member_id, data)

    def sync(
        self,
        member: str,
        generation: int,
        given: Mapping[str, bytes] | None = None,
        instance: str | None = None,
    ) -> Any:
        """Request an assignment; the leader sends all assignments."""
        return self.send(self.sync_request(member, generation, given, instance))

    def sync_request(
        self,
        member: str,
        generation: int,
        given: Mapping[str, bytes] | None = None,
        instance: str | None = None,
    ) -> Any:
        """Create a request for an assignment."""
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="stream",
            assignments=list((given or {}).items()),
            max_version=5,
        )

    def heartbeat(self, member: str, generation: int, instance: str | None = None) -> str:
        """Send a heartbeat."""
        answer = self.send(
            HeartbeatRequest(
                group_id=self._group,
                generation_id=generation,
                member_id=member,
                group_instance_id=instance,
            )
        )
        return error_of(answer.error_code)

    def leave(self, member: str, instance: str | None = None) -> str:
        """Leave the group."""
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=member, group_instance_id=instance, reason="a probe"
        )
        answer = self.send(
            LeaveGroupRequest(group_id=self._group, member_id=member, members=[identity])
        )
        return error_of(answer.error_code or answer.members[0].error_code)

    def commit(
        self, member: str, generation: int, offset: int = 1, instance: str | None = None
    ) -> str:
        """Commit an offset."""
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        of_partition = of_topic.OffsetCommitRequestPartition
        partition = of_partition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        answer = self.send(
            OffsetCommitRequest(
                max_version=8,
                group_id=self._group,
                generation_id_or_member_epoch=generation,
                member_id=member,
                group_instance_id=instance,
                topics=[of_topic(name=self._topic, partitions=[partition])],
            )
        )
        return error_of(answer.topics[0].partitions[0].error_code)

    def committed(self) -> str:
        """The committed offset."""
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [of_group.OffsetFetchRequestTopics(name=self._topic, partition_indexes=[0])]
        answer = self.send(
            OffsetFetchRequest(
                max_version=8,
                group_id=self._group,
                require_stable=False,
                topics=[],
                groups=[of_group(group_id=self._group, topics=topics)],
            )
        )
        return str(answer.groups[0].topics[0].partitions[0].committed_offset)


def one_member(probe: Prober) -> Answers:
    """The answers to a group's only member, from before it joins until after it leaves."""
    answers: Answers = {}
    probe.find()
    answers["heartbeat of an unknown member"] = probe.heartbeat("unknown", 1)
    answers["commit without a member, empty group"] = probe.commit("", -1, 3)
    answers["committed after that"] = probe.committed()
    first = probe.join("")
    answers["join without an id"] = error_of(first.error_code)
    answers["receives an id"] = str(bool(first.member_id))
    answers["join of an unknown member"] = error_of((probe.join("unknown")).error_code)
    joined = probe.join(first.member_id)
    me, generation = joined.member_id, joined.generation_id
    answers["join with the id"] = f"{error_of(joined.error_code)}, generation {generation}"
    answers["is the leader"] = str(joined.leader == me)
    answers["heartbeat before the sync"] = probe.heartbeat(me, generation)
    answers["commit before the sync"] = probe.commit(me, generation)
    answers["sync of another generation"] = error_of((probe.sync(me, 7)).error_code)
    synced = probe.sync(me, generation, {me: b"work"})
    answers["sync"] = f"{error_of(synced.error_code)} {bytes(synced.assignment)!r}"
    answers["sync again"] = repr(bytes((probe.sync(me, generation)).assignment))
    answers["commit"] = probe.commit(me, generation, 5)
    answers["committed"] = probe.committed()
    answers["commit of the previous generation"] = probe.commit(me, generation - 1)
    answers["commit of another generation"] = probe.commit(me, generation + 1)
    answers["commit of an unknown member"] = probe.commit("unknown", generation)
    answers["commit without a member"] = probe.commit("", -1)
    answers["heartbeat of another generation"] = probe.heartbeat(me, generation + 1)
    again = probe.join(me)
    answers["the leader joins again"] = f"generation {again.generation_id}"
    answers["leave of an unknown member"] = probe.leave("unknown")
    answers["leave"] = probe.leave(me)
    answers["heartbeat after leaving"] = probe.heartbeat(me, again.generation_id)
    answers["commit after leaving"] = probe.commit(me, again.generation_id)
    answers["committed at the end"] = probe.committed()
    return answers


def two_members(probe: Prober, other: Prober) -> Answers:
    """The answers to two members during rebalances."""
    answers: Answers = {}
    probe.find()
    other.find()
    joined = probe.new_member()
    me, generation = joined.member_id, joined.generation_id
    probe.sync(me, generation, {me: b"all"})
    pending_join = other.begin(other.join_request(other.join("").member_id, b"b"))
    probe.pause()
    answers["the second join waits"] = str(not pending_join.is_done)
    answers["heartbeat during the rebalance"] = probe.heartbeat(me, generation)
    answers["commit during the rebalance"] = probe.commit(me, generation, 6)
    answers["sync during the rebalance"] = error_of((probe.sync(me, generation)).error_code)
    joined = probe.join(me)
    probe.pause()
    generation = joined.generation_id
    follower = pending_join.value
    answers["both have joined"] = f"generations {generation} and {follower.generation_id}"
    answers["members in the leader's answer"] = str(len(joined.members))
    answers["members in the follower's answer"] = str(len(follower.members))
    answers["commit before the sync"] = probe.commit(me, generation)
    answers["heartbeat before the sync"] = probe.heartbeat(me, generation)
    waiting = other.begin(other.sync_request(follower.member_id, generation))
    probe.pause()
    answers["a follower's sync waits"] = str(not waiting.is_done)
    given = {me: b"half", follower.member_id: b"other half"}
    answers["the leader's sync does not wait"] = repr(
        bytes((probe.sync(me, generation, given)).assignment)
    )
    probe.pause()
    answers["the follower's assignment"] = repr(bytes(waiting.value.assignment))
    same = other.join(follower.member_id, b"b")
    answers["a follower joins unchanged"] = f"generation {same.generation_id}, {len(same.members)}"
    changed = other.begin(other.join_request(follower.member_id, b"c"))
    probe.pause()
    answers["a follower joins changed"] = str(changed.is_done)
    answers["the leader's heartbeat after that"] = probe.heartbeat(me, generation)
    answers["the leader leaves"] = probe.leave(me)
    probe.pause()
    answers["the follower leads"] = str(changed.value.leader == follower.member_id)
    answers["new generation"] = str(changed.value.generation_id)
    return answers


def static_members(probe: Prober, other: Prober) -> Answers:
    """The answers to a restarted static member and to its previous incarnation."""
    answers: Answers = {}
    probe.find()
    other.find()
    joined = probe.join("", b"a", "one")
    me, generation = joined.member_id, joined.generation_id
    answers["join without an id"] = f"{error_of(joined.error_code)}, generation {generation}"
    probe.sync(me, generation, {me: b"all"}, "one")
    restarted = other.join("", b"b", "one")
    answers["restarted"] = f"generation {restarted.generation_id}"
    answers["restarted with another id"] = str(restarted.member_id != me)
    answers["restarted as the leader"] = str(restarted.leader == restarted.member_id)
    answers["restarted with skip_assignment"] = str(restarted.skip_assignment)
    synced = other.sync(restarted.member_id, restarted.generation_id, None, "one")
    answers["assignment"] = repr(bytes(synced.assignment))
    answers["heartbeat of the previous incarnation"] = probe.heartbeat(me, generation, "one")
    answers["commit of the previous incarnation"] = probe.commit(me, generation, 9, "one")
    answers["join of the previous incarnation"] = error_of((probe.join(me, b"a", "one")).error_code)
    answers["commit of the new incarnation"] = other.commit(
        restarted.member_id, restarted.generation_id, 8, "one"
    )
    answers["committed"] = other.committed()
    answers["leave of the previous incarnation"] = probe.leave(me, "one")
    answers["leave"] = other.leave(restarted.member_id, "one")
    return answers
