"""Group members in a processing loop, and an assignor that can misbehave."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from millstream.clock import SystemClock
from millstream.kafka.membership.group_member import GroupMember
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription
from millstream.kafka.membership.member_events import (
    Assigned,
    CommitOffset,
    Failed,
    Lost,
    MemberEvent,
    Revoked,
)
from millstream.record import TopicPartition
from support.waiting import stays, wait_for

E = TypeVar("E", bound=MemberEvent)

#: Settings of a broker that allows the short sessions of these tests and automatic topic creation.
BROKER = {"group.min.session.timeout.ms": 500, "auto.create.topics.enable": True}
SESSION_MS = 3_000


class Assignor:
    """Assigns partitions of known topics round-robin; moved partitions are withheld until they are
    free.
    """

    def __init__(self, counts: Mapping[str, int], user_data: bytes = b"constant") -> None:
        self.counts = dict(counts)
        self.data = user_data
        self.assign_requests: list[Mapping[str, MemberSubscription]] = []
        self.before_assign: Callable[[], None] = lambda: None
        self.before_user_data: Callable[[], None] = lambda: None

    def user_data(self) -> bytes:
        self.before_user_data()
        return self.data

    def assign(self, members: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        self.assign_requests.append(members)
        self.before_assign()
        subscribed = {topic for member in members.values() for topic in member.topics}
        owner = {tp: m for m, s in members.items() for tp in s.owned_partitions}
        owned = {member: sorted(s.owned_partitions) for member, s in members.items()}
        # The member with the first partition stays first, so that nothing moves unnecessarily.
        turns = sorted(members, key=lambda m: (-len(owned[m]), owned[m][:1], m))
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        every = [
            TopicPartition(topic, number)
            for topic in sorted(subscribed)
            for number in range(self.counts.get(topic, 0))
        ]
        for index, partition in enumerate(every):
            member = turns[index % len(turns)]
            if owner.get(partition, member) == member:
                assigned[member].append(partition)
        round_number = len(self.assign_requests)
        return {
            m: MemberAssignment(tuple(tps), f"round {round_number} for {m}".encode())
            for m, tps in assigned.items()
        }


class Loop:
    """A processing loop: handles and acknowledges events, and commits revoked partitions.

    `on_revoked` and `on_lost` replace its handlers; a handler that returns False leaves the event
    unacknowledged.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str] | None,
        assignor: Any,
        *,
        name: str = "m",
        pattern: str | None = None,
        **settings: Any,
    ) -> None:
        self.member = GroupMember(
            {
                "bootstrap_servers": bootstrap,
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": 200,
                **settings,
            },
            group_id=group,
            topics=topics,
            pattern=None if pattern is None else re.compile(pattern),
            assignor=assignor,
            client_id=name,
            clock=SystemClock(),
        )
        self.events: list[MemberEvent] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self.making_progress = True
        self.on_revoked: Callable[[Revoked], Any] = self.commit_revoked
        self.on_lost: Callable[[Lost], Any] = lambda event: True
        self.trouble: list[BaseException] = []
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"loop-{name}", daemon=True)

    def start(self) -> Loop:
        self.member.start()
        self._thread.start()
        return self

    def commit_revoked(self, event: Revoked) -> None:
        self.member.commit(
            {tp: CommitOffset(100 + tp.partition, f"from {tp}") for tp in event.partitions}, 5_000
        )

    def _run(self) -> None:
        while not self._ended:
            if self.making_progress:
                self.member.progress()
            event = self.member.next_event(20)
            if event is None:
                continue
            try:
                self._handle(event)
            except BaseException as error:
                self.trouble.append(error)
                self.member.acknowledge(event)
            if isinstance(event, Failed):
                return

    def _handle(self, event: MemberEvent) -> None:
        self.events.append(event)
        match event:
            case Revoked(partitions=partitions):
                if self.on_revoked(event) is not False:
                    self.owned -= partitions
                    self.member.acknowledge(event)
            case Lost(partitions=partitions):
                if self.on_lost(event) is not False:
                    self.owned -= partitions
                    self.member.acknowledge(event)
            case Assigned(partitions=partitions):
                self.owned = partitions

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in list(self.events) if isinstance(event, kind)]

    @property
    def generations(self) -> list[int]:
        return [event.generation for event in self.of(Assigned)]

    def await_owned(self, count: int, seconds: float = 20) -> frozenset[TopicPartition]:
        wait_for(
            lambda: self.of(Assigned) and len(self.owned) == count,
            seconds,
            lambda: f"owns {set(self.owned)} instead of {count} partitions; events: {self.events}",
        )
        return self.owned

    def await_event(self, kind: type[E], seconds: float = 20) -> E:
        return wait_for(lambda: self.of(kind), seconds, f"a {kind.__name__} event")[-1]

    def stays_quiet(self, seconds: float) -> bool:
        """Whether no event is reported for this time."""
        before = len(self.events)
        return stays(lambda: len(self.events) == before, seconds)

    def close(self, *, leave_group: bool = True, timeout_ms: int = 10_000) -> None:
        self._ended = True
        if self._thread.ident is not None:
            self._thread.join(10)
        self.member.close(leave_group=leave_group, timeout_ms=timeout_ms)
        assert not self.trouble, self.trouble


#: Starts a member in a loop, given a group, topics, an assignor and settings.
Start = Callable[..., Loop]
