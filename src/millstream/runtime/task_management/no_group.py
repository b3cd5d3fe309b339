"""Replaces the group member of applications that only read global topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from millstream.clock import Waker
from millstream.errors import IllegalStateError
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.membership.member_events import Assigned, CommitOffset, MemberEvent
from millstream.kafka.protocols import CommitResponse
from millstream.record import TopicPartition

#: The assignment of a group without tasks.
_EMPTY_ASSIGNMENT: Final = Assigned(frozenset(), b"", 0, "")


class NoGroup:
    """Replaces the group member of an application with only global stores.

    Such an application reads every partition of its topics in each instance, commits nothing and
    has no tasks. In this case, Kafka Streams starts no stream threads and therefore joins no group.
    This class reports an empty assignment.
    """

    rebalancing = False

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._events: list[MemberEvent] = []
        #: The number of calls to `progress`, which shows that the loop is alive.
        self.rounds = 0

    def start(self) -> None:
        """Report the empty assignment; there is no group to join."""
        self._events.append(_EMPTY_ASSIGNMENT)

    def next_event(self, timeout_ms: int = 0) -> MemberEvent | None:
        """Return the assignment, or wait for the waker."""
        if self._events:
            return self._events.pop()
        self._waker.wait(timeout_ms)
        return None

    def acknowledge(self, event: MemberEvent) -> None:
        """Do nothing."""

    def progress(self) -> None:
        """Count the call. No group requires it, but the watchdog does."""
        self.rounds += 1

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        raise IllegalStateError("Offsets cannot be committed without a group.")

    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> CommitResponse:
        raise IllegalStateError("Offsets cannot be committed without a group.")

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, CommitOffset | None]:
        return dict.fromkeys(partitions)

    def request_rejoin(self, reason: str, *, generation: int | None = None) -> None:
        """Report the empty assignment again: the thread may have discarded the first one."""
        self._events.append(_EMPTY_ASSIGNMENT)

    @contextmanager
    def without_rejoin(self) -> Iterator[GroupMetadata]:
        raise IllegalStateError("Offsets cannot be committed without a group.")
        yield

    def close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """Do nothing."""
