"""Retries of offset commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors as client_errors

from millstream.clock import ManualClock
from millstream.kafka.membership.group_offsets import GroupOffsets
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TopicPartition


class _Connections:
    """Fails the first requests; time passes between attempts.

    Args:
        errors: for the first requests.
        meanwhile: called after each failed attempt.
    """

    def __init__(self, errors: list[Exception], meanwhile: Callable[[], None]) -> None:
        self._errors = errors
        self._meanwhile = meanwhile
        #: The generation of each commit request.
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
    """The coordinator of a member."""

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
    offsets = GroupOffsets(coordinator, stable_only=False, clock=ManualClock(0))
    committed = {TopicPartition("in", 0): CommitOffset(100, "", None)}
    asyncio.run(offsets.commit(committed, 1_000))


def test_commits_without_a_response_are_retried() -> None:
    coordinator = _Coordinator([client_errors.RequestTimedOutError()], rejoins=False)
    commit(coordinator)
    assert coordinator.connections.sent == [1, 1]


def test_commits_are_not_retried_in_another_generation() -> None:
    """Otherwise an offset of a partition that has moved could set back its new owner."""
    coordinator = _Coordinator([client_errors.RequestTimedOutError()], rejoins=True)
    with pytest.raises(client_errors.RebalanceInProgressError):
        commit(coordinator)
    assert coordinator.connections.sent == [1]
