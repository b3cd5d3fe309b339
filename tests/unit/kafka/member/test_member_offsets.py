"""Commits of offsets that have to be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors as client_errors

from millstream.clock import ManualClock
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.member.offsets import MemberOffsets
from millstream.record import TopicPartition


class _Connections:
    """Answers requests with errors, while there are some; and lets time pass between tries.

    Args:
        errors: for the first requests.
        meanwhile: called whenever a try has failed.
    """

    def __init__(self, errors: list[Exception], meanwhile: Callable[[], None]) -> None:
        self._errors = errors
        self._meanwhile = meanwhile
        #: The generations under which offsets came.
        self.sent: list[int] = []

    def call_soon(self, attempt: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        return attempt()

    async def wait_for(self, waiting: Awaitable[Any], timeout_ms: int) -> Any:
        return await waiting

    async def sleep(self, seconds: float) -> None:
        self._meanwhile()

    async def send(self, request: Any, node_id: object) -> Any:
        self.sent.append(request.generation_id_or_member_epoch)
        if self._errors:
            raise self._errors.pop()
        return SimpleNamespace(topics=[])


class _Coordinator:
    """A member's place in its group."""

    def __init__(self, errors: list[Exception], *, rejoins: bool) -> None:
        self._rejoins = rejoins
        self._generation = 1
        self.connections = _Connections(errors, self._time_passes)
        self.config = {"retry_backoff_ms": 100}
        self.coordinator_id = self.group_instance_id = None
        self.group_id = "group"
        self.joining = False

    def _time_passes(self) -> None:
        self._generation += self._rejoins

    async def ensure_coordinator_ready_async(self, timeout_ms: int) -> bool:
        return True

    def generation_if_stable(self) -> Any:
        return SimpleNamespace(generation_id=self._generation, member_id="member")


def commit(coordinator: Any) -> None:
    """Commit an offset within a second."""
    offsets = MemberOffsets(coordinator, stable_only=False, clock=ManualClock(0))
    told = {TopicPartition("in", 0): CommitOffset(100, "", None)}
    asyncio.run(offsets.commit(told, 1_000))


def test_offsets_that_were_not_answered_are_sent_again() -> None:
    coordinator = _Coordinator([client_errors.RequestTimedOutError()], rejoins=False)
    commit(coordinator)
    assert coordinator.connections.sent == [1, 1]


def test_offsets_are_not_sent_again_in_another_generation() -> None:
    """Hunts for offsets of a partition that was given away meanwhile: they would set back the one
    who has it now."""
    coordinator = _Coordinator([client_errors.RequestTimedOutError()], rejoins=True)
    with pytest.raises(client_errors.RebalanceInProgressError):
        commit(coordinator)
    assert coordinator.connections.sent == [1]
