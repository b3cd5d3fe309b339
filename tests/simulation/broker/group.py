"""The coordinator of the one consumer group: members, generations, sessions, committed offsets.

Follows the classic group protocol of Kafka's group coordinator (KIP-62, KIP-345, KIP-394,
KIP-429, KIP-814). Errors are Kafka's error codes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka import errors as client_errors

from millstream.record import TopicPartition
from simulation.scheduler import Scheduler

NONE: Final = 0
UNKNOWN_MEMBER: Final[int] = client_errors.UnknownMemberIdError.errno
ILLEGAL_GENERATION: Final[int] = client_errors.IllegalGenerationError.errno
REBALANCING: Final[int] = client_errors.RebalanceInProgressError.errno
MEMBER_ID_REQUIRED: Final[int] = client_errors.MemberIdRequiredError.errno
FENCED_INSTANCE: Final[int] = client_errors.FencedInstanceIdError.errno
UNSTABLE_OFFSETS: Final[int] = client_errors.UnstableOffsetCommitError.errno


class State(enum.Enum):
    """The state of the group."""

    EMPTY = "empty"
    PREPARING = "preparing"
    COMPLETING = "completing"
    STABLE = "stable"


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    metadata: str
    leader_epoch: int


@dataclass(slots=True)
class JoinAnswer:
    """The answer to a join; only the leader receives `members`."""

    error: int
    member_id: str
    generation: int = -1
    leader: str = ""
    members: list[tuple[str, str | None, bytes]] = field(default_factory=list)
    skip_assignment: bool = False


@dataclass(eq=False, slots=True)
class _Member:
    id: str
    instance: str | None
    session_ms: int
    rebalance_ms: int
    subscription: bytes
    assignment: bytes = b""
    joining: Callable[[JoinAnswer], None] | None = None
    syncing: Callable[[int, bytes], None] | None = None
    timer: int = 0


class GroupCoordinator:
    """One consumer group.

    Args:
        scheduler: the simulation's scheduler.
        is_up: whether the coordinator's broker is up; timers have no effect while it is not.
    """

    def __init__(self, scheduler: Scheduler, is_up: Callable[[], bool]) -> None:
        self._scheduler = scheduler
        self._is_up = is_up
        self.state = State.EMPTY
        self.generation = 0
        self.leader = ""
        self.members: dict[str, _Member] = {}
        self._pending: dict[str, int] = {}
        self._static: dict[str, str] = {}
        self.offsets: dict[TopicPartition, Committed] = {}
        #: The offsets in the open transaction of each producer.
        self.pending_offsets: dict[int, dict[TopicPartition, Committed]] = {}
        self.rebalances = 0
        self._ids = 0
        self._timers = 0
        self._round = 0
        self._stored: tuple[int, str, dict[str, bytes]] = (0, "", {})
        #: Called with generation, member and offsets of each successful commit.
        self.on_commit: list[Callable[[int, str, Mapping[TopicPartition, Committed]], None]] = []

    # --- joining -------------------------------------------------------------------------------

    def join(
        self,
        member_id: str,
        instance: str | None,
        session_ms: int,
        rebalance_ms: int,
        subscription: bytes,
        reply: Callable[[JoinAnswer], None],
    ) -> None:
        """Join the next generation."""
        if not member_id:
            self._join_new(instance, session_ms, rebalance_ms, subscription, reply)
            return
        if instance is not None and self._static.get(instance, member_id) != member_id:
            reply(JoinAnswer(FENCED_INSTANCE, member_id))
            return
        if member_id in self._pending:
            del self._pending[member_id]
            self._add(_Member(member_id, instance, session_ms, rebalance_ms, subscription), reply)
            return
        member = self.members.get(member_id)
        if member is None:
            reply(JoinAnswer(UNKNOWN_MEMBER, member_id))
            return
        same = member.subscription == subscription
        if (self.state is State.COMPLETING and same) or (
            self.state is State.STABLE and same and member_id != self.leader
        ):
            reply(self._joined(member))
        else:
            member.subscription = subscription
            member.session_ms, member.rebalance_ms = session_ms, rebalance_ms
            self._await_join(member, reply)

    def _join_new(
        self,
        instance: str | None,
        session_ms: int,
        rebalance_ms: int,
        subscription: bytes,
        reply: Callable[[JoinAnswer], None],
    ) -> None:
        self._ids += 1
        new_id = f"{instance or 'member'}-{self._ids}"
        if instance is None:
            self._pending[new_id] = self._after(session_ms, lambda: self._pending_expired(new_id))
            reply(JoinAnswer(MEMBER_ID_REQUIRED, new_id))
            return
        known = self._static.get(instance)
        member = self.members.get(known) if known is not None else None
        if member is None:
            self._add(_Member(new_id, instance, session_ms, rebalance_ms, subscription), reply)
            return
        self._replace_static(member, new_id, subscription, reply)

    def _replace_static(
        self,
        member: _Member,
        new_id: str,
        subscription: bytes,
        reply: Callable[[JoinAnswer], None],
    ) -> None:
        """Replace a restarted static member by its new id and fence the old one (KIP-345)."""
        old_id = member.id
        if member.joining is not None:
            member.joining(JoinAnswer(FENCED_INSTANCE, old_id))
        if member.syncing is not None:
            member.syncing(FENCED_INSTANCE, b"")
        member.joining, member.syncing = None, None
        del self.members[old_id]
        member.id = new_id
        self.members[new_id] = member
        assert member.instance is not None
        self._static[member.instance] = new_id
        was_leader = self.leader == old_id
        if was_leader:
            self.leader = new_id
        member.subscription = subscription
        if self.state is State.STABLE:
            # The assignment stays, even if the subscription has changed.
            self._keep_alive(member)
            answer = self._joined(member)
            answer.skip_assignment = was_leader
            reply(answer)
            return
        self._await_join(member, reply)

    def _add(self, member: _Member, reply: Callable[[JoinAnswer], None]) -> None:
        self.members[member.id] = member
        if member.instance is not None:
            self._static[member.instance] = member.id
        if not self.leader:
            self.leader = member.id
        self._await_join(member, reply)

    def _await_join(self, member: _Member, reply: Callable[[JoinAnswer], None]) -> None:
        member.joining = reply
        # A waiting member sends no heartbeats.
        member.timer = 0
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare(f"{member.id} joins")

    def _prepare(self, why: str) -> None:
        """Start a rebalance."""
        for member in self.members.values():
            if member.syncing is not None:
                reply, member.syncing = member.syncing, None
                self._keep_alive(member)
                reply(REBALANCING, b"")
        self.state = State.PREPARING
        self._round += 1
        self._scheduler.log(f"group: rebalance: {why}")
        longest_ms = max((m.rebalance_ms for m in self.members.values()), default=0)
        this_round = self._round

        def expired() -> None:
            if self._is_up() and self.state is State.PREPARING and self._round == this_round:
                self._complete()

        self._scheduler.call_after(longest_ms * 1000, expired)
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        if self.state is State.PREPARING and not self._pending and self.members:
            if all(member.joining is not None for member in self.members.values()):
                this_round = self._round
                # The answers follow the request that completed the round.
                self._scheduler.call_after(0, lambda: self._complete_round(this_round))
        elif self.state is State.PREPARING and not self.members:
            self._complete()

    def _complete_round(self, which: int) -> None:
        waiting = all(member.joining is not None for member in self.members.values())
        if self.state is State.PREPARING and self._round == which and waiting and not self._pending:
            self._complete()

    def _complete(self) -> None:
        """Start the next generation: all members have joined, or the timeout has expired."""
        for member in list(self.members.values()):
            if member.joining is None and member.instance is None:
                self._scheduler.log(f"group: {member.id} has not joined in time")
                self._delete(member)
        self.generation += 1
        self.rebalances += 1
        if not self.members:
            self.state = State.EMPTY
            self._store()
            return
        joined = [member for member in self.members.values() if member.joining is not None]
        if not joined:
            # Wait for absent static members until their sessions end.
            self._prepare("static members are absent")
            return
        if self.leader not in {member.id for member in joined}:
            self.leader = joined[0].id
        self.state = State.COMPLETING
        names = ", ".join(sorted(self.members))
        self._scheduler.log(f"group: generation {self.generation} of {names}, led by {self.leader}")
        for member in joined:
            reply, member.joining = member.joining, None
            self._keep_alive(member)
            if reply is not None:
                reply(self._joined(member))
        generation, this_round = self.generation, self._round
        longest_ms = max(member.rebalance_ms for member in self.members.values())

        def late() -> None:
            waits = self.state is State.COMPLETING and self.generation == generation
            if waits and self._is_up() and self._round == this_round:
                for member in [m for m in self.members.values() if m.syncing is None]:
                    self._scheduler.log(f"group: {member.id} has not synced in time")
                    self._delete(member)
                self._prepare("members have not synced")

        self._scheduler.call_after(longest_ms * 1000, late)

    def _joined(self, member: _Member) -> JoinAnswer:
        members = []
        if member.id == self.leader:
            members = [(m.id, m.instance, m.subscription) for m in self.members.values()]
        return JoinAnswer(NONE, member.id, self.generation, self.leader, members)

    def sync(
        self,
        member_id: str,
        instance: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        reply: Callable[[int, bytes], None],
    ) -> None:
        """Request a member's assignment; the leader sends all assignments."""
        error = self._check(member_id, instance, generation)
        if error:
            reply(error, b"")
            return
        member = self.members[member_id]
        if self.state is State.PREPARING:
            reply(REBALANCING, b"")
        elif self.state is State.STABLE:
            self._keep_alive(member)
            reply(NONE, member.assignment)
        else:
            member.syncing = reply
            member.timer = 0
            if member_id == self.leader:
                self._assign(assignments)

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        self.state = State.STABLE
        self._store()
        for member in self.members.values():
            if member.syncing is not None:
                reply, member.syncing = member.syncing, None
                self._keep_alive(member)
                reply(NONE, member.assignment)
            elif not member.timer:
                self._keep_alive(member)

    # --- staying and leaving -------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance: str | None, generation: int) -> int:
        """Handle a heartbeat."""
        error = self._check(member_id, instance, generation)
        if error:
            return error
        member = self.members[member_id]
        if member.joining is None and member.syncing is None:
            self._keep_alive(member)
        return REBALANCING if self.state is State.PREPARING else NONE

    def leave(self, member_id: str, instance: str | None) -> int:
        """Remove a member that leaves."""
        if instance is not None:
            known = self._static.get(instance)
            if known is None:
                return UNKNOWN_MEMBER
            if member_id and known != member_id:
                return FENCED_INSTANCE
            member_id = known
        if member_id in self._pending:
            del self._pending[member_id]
            self._complete_if_all_joined()
            return NONE
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER
        self._remove(member, "left")
        return NONE

    def _check(self, member_id: str, instance: str | None, generation: int) -> int:
        if instance is not None:
            known = self._static.get(instance)
            if known is None:
                return UNKNOWN_MEMBER
            if known != member_id:
                return FENCED_INSTANCE
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return NONE if generation == self.generation else ILLEGAL_GENERATION

    def _keep_alive(self, member: _Member) -> None:
        timer = member.timer = self._after(member.session_ms, lambda: self._expired(member, timer))

    def _expired(self, member: _Member, timer: int) -> None:
        current = member.timer == timer and self.members.get(member.id) is member
        if current and self._is_up():
            self._remove(member, "missed its heartbeats")

    def _pending_expired(self, member_id: str) -> None:
        if self._is_up() and self._pending.pop(member_id, None) is not None:
            self._complete_if_all_joined()

    def _after(self, delay_ms: int, call: Callable[[], None]) -> int:
        self._timers += 1
        self._scheduler.call_after(delay_ms * 1000, call)
        return self._timers

    def _remove(self, member: _Member, why: str) -> None:
        self._scheduler.log(f"group: {member.id} {why}")
        self._delete(member)
        if member.joining is not None:
            member.joining(JoinAnswer(UNKNOWN_MEMBER, member.id))
        if member.syncing is not None:
            member.syncing(UNKNOWN_MEMBER, b"")
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare(f"{member.id} {why}")
        elif self.state is State.PREPARING:
            self._complete_if_all_joined()

    def _delete(self, member: _Member) -> None:
        del self.members[member.id]
        if member.instance is not None and self._static.get(member.instance) == member.id:
            del self._static[member.instance]
        if self.leader == member.id:
            self.leader = next(iter(self.members), "")

    # --- failover ------------------------------------------------------------------------------

    def _store(self) -> None:
        """Store the state that a new coordinator loads."""
        kept = {member.id: member.assignment for member in self.members.values()}
        self._stored = (self.generation, self.leader, kept)

    def load(self) -> None:
        """Load the stored group after a failover or restart of its coordinator."""
        generation, leader, assignments = self._stored
        for member in self.members.values():
            # Their connections are broken, so nothing receives these answers.
            member.joining = member.syncing = None
        self.members = {m.id: m for m in self.members.values() if m.id in assignments}
        self._static = {m.instance: m.id for m in self.members.values() if m.instance is not None}
        self._pending.clear()
        self._round += 1
        self.generation = generation
        self.leader = leader if leader in self.members else next(iter(self.members), "")
        for member in self.members.values():
            member.assignment = assignments[member.id]
            self._keep_alive(member)
        self.state = State.STABLE if self.members else State.EMPTY
        if len(self.members) < len(assignments):
            self._prepare("some members were missing when the group was loaded")

    def resumed(self) -> None:
        """Restart all sessions after a pause of the coordinator."""
        for member in self.members.values():
            self._keep_alive(member)

    # --- offsets -------------------------------------------------------------------------------

    def commit(
        self,
        member_id: str,
        instance: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, Committed],
    ) -> int:
        """Commit offsets under a generation."""
        error = self.may_commit(member_id, instance, generation)
        if error:
            return error
        self.offsets.update(offsets)
        if member_id in self.members:
            member = self.members[member_id]
            if member.joining is None and member.syncing is None:
                self._keep_alive(member)
        for call in self.on_commit:
            call(generation, member_id, offsets)
        return NONE

    def may_commit(
        self, member_id: str, instance: str | None, generation: int, *, transactional: bool = False
    ) -> int:
        """Check a commit and return an error code.

        A commit in a transaction is accepted as soon as the member has received the generation.
        """
        if generation < 0 and not member_id:
            # A client outside of the group, such as a tool; only accepted for an empty group.
            # Follows Kafka: a transaction without a member is accepted.
            outside = transactional or self.state is State.EMPTY
            return NONE if outside else UNKNOWN_MEMBER
        error = self._check(member_id, instance, generation)
        if error:
            return error
        return REBALANCING if self.state is State.COMPLETING and not transactional else NONE

    def fetch(
        self, places: Collection[TopicPartition], *, stable: bool
    ) -> dict[TopicPartition, Committed | int]:
        """The committed offset of each partition, or an error code."""
        found: dict[TopicPartition, Committed | int] = {}
        for place in places:
            if stable and any(place in pending for pending in self.pending_offsets.values()):
                found[place] = UNSTABLE_OFFSETS
            else:
                found[place] = self.offsets.get(place, Committed(-1, "", -1))
        return found
