"""What takes the place of a group member where only global topics are read: nothing is shared
out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from millstream.errors import IllegalStateError
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.member.events import Assigned, CommitOffset, MemberEvent
from millstream.kafka.protocols import CommitAnswer
from millstream.record import TopicPartition
from millstream.waker import Waker

#: What a group would have said: there is nothing for this thread.
_NOTHING: Final = Assigned(frozenset(), b"", 0, "")


class NoGroup:
    """Stands for a group member in an application of global stores alone.

    Such an application reads every partition of its topics in each instance, commits nothing and
    has no tasks. Follows Kafka Streams, which starts no stream threads then, and so no consumer
    that joins a group. It reports one assignment, of nothing.

    Args:
        waker: ends waits for events, of which there are no more.
    """

    rebalancing = False

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._events: list[MemberEvent] = []
        #: How often `progress` was called, by which others see that the loop is alive.
        self.rounds = 0

    def start(self) -> None:
        """There is nobody to join."""
        self._events.append(_NOTHING)

    def next_event(self, timeout_ms: int = 0) -> MemberEvent | None:
        """The one event, or a wait for whatever else wakes the thread."""
        if self._events:
            return self._events.pop()
        self._waker.wait(timeout_ms)
        return None

    def acknowledge(self, event: MemberEvent) -> None:
        """Nobody waits for it."""

    def progress(self) -> None:
        """Count it: no group asks for it, but the driver does."""
        self.rounds += 1

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        """Never called: without tasks there is nothing to commit.

        Raises:
            IllegalStateError: it was called all the same.
        """
        raise IllegalStateError("Without a group there is nowhere to commit offsets.")

    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> CommitAnswer:
        """Never called, as `commit`."""
        raise IllegalStateError("Without a group there is nowhere to commit offsets.")

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, CommitOffset | None]:
        """Nothing ever is."""
        return dict.fromkeys(partitions)

    def request_rejoin(self, reason: str, *, generation: int | None = None) -> None:
        """There is nobody to ask; but the thread may have given its nothing up, and takes it up
        again."""
        self._events.append(_NOTHING)

    @contextmanager
    def without_rejoin(self) -> Iterator[GroupMetadata]:
        """Never called, as `commit`."""
        raise IllegalStateError("Without a group there is nowhere to commit offsets.")
        yield

    def close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """There is nobody to leave."""
