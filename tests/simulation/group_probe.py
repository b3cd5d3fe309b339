"""Questions to a group's coordinator, asked of a real broker and of the simulated one alike.

They go through a `MemberLink`, whose simulated twin takes the same requests.
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
from millstream.kafka.member.link import MemberLink

_SESSION_MS: Final = 30_000
_REBALANCE_MS: Final = 60_000
_TIMEOUT_MS: Final = 20_000

#: A name for the answer, and the answer.
Answers = dict[str, str]


def error_of(code: int) -> str:
    """The name of a Kafka error, "ok" for none."""
    return "ok" if not code else str(client_errors.for_code(code).__name__)


class Prober:
    """One client that talks to the coordinator of one group.

    Args:
        link: its connections.
        group: the group.
        topic: some topic that exists, to commit offsets of.
    """

    def __init__(self, link: MemberLink, group: str, topic: str) -> None:
        self._link = link
        self._group = group
        self._topic = topic
        self._node: int | None = None

    def find(self) -> None:
        """Learn who coordinates."""
        while self._node is None:
            request = FindCoordinatorRequest(
                key=self._group, key_type=0, coordinator_keys=[self._group]
            )
            answer = self._wait_for(self._link.send, request)
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code:
                self._pause(0.2)
            else:
                self._node = found.node_id
        while "Coordinator" in self.heartbeat("nobody", 1):
            # It is still loading what it knows of its groups.
            self._pause(0.2)

    def ask(self, request: Any) -> Any:
        """The answer to a request."""
        return self._wait_for(self._link.send, request, self._node)

    def begin(self, request: Any) -> ClientFuture:
        """Ask something whose answer may have to wait for others."""
        return self._link.call_soon(self._link.send, request, self._node)

    def pause(self) -> None:
        """Let what was begun arrive."""
        self._pause(0.5)

    def _pause(self, seconds: float) -> None:
        self._wait_for(self._link.sleep, seconds)

    def _wait_for(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return self._link.value_of(self._link.call_soon(call, *arguments), _TIMEOUT_MS)

    def join(self, member: str, data: bytes = b"a", instance: str | None = None) -> Any:
        """Want to be in the next generation."""
        return self.ask(self.join_request(member, data, instance))

    def join_request(self, member: str, data: bytes, instance: str | None = None) -> Any:
        """The request for that."""
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
        """Join as a dynamic member, in the two steps that this takes."""
        first = self.join("")
        return self.join(first.member_id, data)

    def sync(
        self,
        member: str,
        generation: int,
        given: Mapping[str, bytes] | None = None,
        instance: str | None = None,
    ) -> Any:
        """Ask for an assignment; the leader gives all of them."""
        return self.ask(self.sync_request(member, generation, given, instance))

    def sync_request(
        self,
        member: str,
        generation: int,
        given: Mapping[str, bytes] | None = None,
        instance: str | None = None,
    ) -> Any:
        """The request for that."""
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
        """Say that a member lives."""
        answer = self.ask(
            HeartbeatRequest(
                group_id=self._group,
                generation_id=generation,
                member_id=member,
                group_instance_id=instance,
            )
        )
        return error_of(answer.error_code)

    def leave(self, member: str, instance: str | None = None) -> str:
        """Say that a member goes."""
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=member, group_instance_id=instance, reason="a probe"
        )
        answer = self.ask(
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
        answer = self.ask(
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
        """What is committed."""
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [of_group.OffsetFetchRequestTopics(name=self._topic, partition_indexes=[0])]
        answer = self.ask(
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
    """What a group of one is told, from before its first member to after it."""
    told: Answers = {}
    probe.find()
    told["heartbeat of nobody"] = probe.heartbeat("nobody", 1)
    told["commit from outside, no members"] = probe.commit("", -1, 3)
    told["committed then"] = probe.committed()
    first = probe.join("")
    told["join without an id"] = error_of(first.error_code)
    told["it gets one"] = str(bool(first.member_id))
    told["join of nobody"] = error_of((probe.join("nobody")).error_code)
    joined = probe.join(first.member_id)
    me, generation = joined.member_id, joined.generation_id
    told["join with the id"] = f"{error_of(joined.error_code)}, generation {generation}"
    told["leads"] = str(joined.leader == me)
    told["heartbeat before the sync"] = probe.heartbeat(me, generation)
    told["commit before the sync"] = probe.commit(me, generation)
    told["sync of another generation"] = error_of((probe.sync(me, 7)).error_code)
    synced = probe.sync(me, generation, {me: b"work"})
    told["sync"] = f"{error_of(synced.error_code)} {bytes(synced.assignment)!r}"
    told["sync again"] = repr(bytes((probe.sync(me, generation)).assignment))
    told["commit"] = probe.commit(me, generation, 5)
    told["committed"] = probe.committed()
    told["commit of the generation before"] = probe.commit(me, generation - 1)
    told["commit of another generation"] = probe.commit(me, generation + 1)
    told["commit of nobody"] = probe.commit("nobody", generation)
    told["commit from outside"] = probe.commit("", -1)
    told["heartbeat of another generation"] = probe.heartbeat(me, generation + 1)
    again = probe.join(me)
    told["the leader joins again"] = f"generation {again.generation_id}"
    told["leave of nobody"] = probe.leave("nobody")
    told["leave"] = probe.leave(me)
    told["heartbeat afterwards"] = probe.heartbeat(me, again.generation_id)
    told["commit afterwards"] = probe.commit(me, again.generation_id)
    told["committed at last"] = probe.committed()
    return told


def two_members(probe: Prober, other: Prober) -> Answers:
    """What members are told while the group rebalances."""
    told: Answers = {}
    probe.find()
    other.find()
    joined = probe.new_member()
    me, generation = joined.member_id, joined.generation_id
    probe.sync(me, generation, {me: b"all"})
    coming = other.begin(other.join_request(other.join("").member_id, b"b"))
    probe.pause()
    told["another waits for us"] = str(not coming.is_done)
    told["heartbeat meanwhile"] = probe.heartbeat(me, generation)
    told["commit meanwhile"] = probe.commit(me, generation, 6)
    told["sync meanwhile"] = error_of((probe.sync(me, generation)).error_code)
    joined = probe.join(me)
    probe.pause()
    generation = joined.generation_id
    his = coming.value
    told["both join"] = f"generations {generation} and {his.generation_id}"
    told["members that the leader hears of"] = str(len(joined.members))
    told["members that the other hears of"] = str(len(his.members))
    told["commit before the sync"] = probe.commit(me, generation)
    told["heartbeat before the sync"] = probe.heartbeat(me, generation)
    waiting = other.begin(other.sync_request(his.member_id, generation))
    probe.pause()
    told["a follower's sync waits"] = str(not waiting.is_done)
    given = {me: b"half", his.member_id: b"other half"}
    told["the leader's does not"] = repr(bytes((probe.sync(me, generation, given)).assignment))
    probe.pause()
    told["the follower's answer"] = repr(bytes(waiting.value.assignment))
    same = other.join(his.member_id, b"b")
    told["a follower joins unchanged"] = f"generation {same.generation_id}, {len(same.members)}"
    changed = other.begin(other.join_request(his.member_id, b"c"))
    probe.pause()
    told["a follower joins changed"] = str(changed.is_done)
    told["the leader's heartbeat then"] = probe.heartbeat(me, generation)
    told["the leader leaves"] = probe.leave(me)
    probe.pause()
    told["the follower leads"] = str(changed.value.leader == his.member_id)
    told["its generation"] = str(changed.value.generation_id)
    return told


def static_members(probe: Prober, other: Prober) -> Answers:
    """What a static member is told that comes back, and what its former life is told."""
    told: Answers = {}
    probe.find()
    other.find()
    joined = probe.join("", b"a", "one")
    me, generation = joined.member_id, joined.generation_id
    told["join without an id"] = f"{error_of(joined.error_code)}, generation {generation}"
    probe.sync(me, generation, {me: b"all"}, "one")
    back = other.join("", b"b", "one")
    told["back"] = f"generation {back.generation_id}"
    told["back under another id"] = str(back.member_id != me)
    told["back as the leader"] = str(back.leader == back.member_id)
    told["back, to assign nothing"] = str(back.skip_assignment)
    synced = other.sync(back.member_id, back.generation_id, None, "one")
    told["its assignment"] = repr(bytes(synced.assignment))
    told["heartbeat of the former life"] = probe.heartbeat(me, generation, "one")
    told["commit of the former life"] = probe.commit(me, generation, 9, "one")
    told["join of the former life"] = error_of((probe.join(me, b"a", "one")).error_code)
    told["commit of the new life"] = other.commit(back.member_id, back.generation_id, 8, "one")
    told["committed"] = other.committed()
    told["leave of the former life"] = probe.leave(me, "one")
    told["leave"] = other.leave(back.member_id, "one")
    return told
