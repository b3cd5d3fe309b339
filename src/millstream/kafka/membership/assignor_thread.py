"""Calls of the assignor on the member's thread.

While the assignor of the leader runs, the leader sends heartbeats. If the cluster does not respond
to the assignor, the group rebalances again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kafka import errors as client_errors

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError, StreamsError, TaskAssignmentError
from millstream.kafka.cluster.retries import LogInterval
from millstream.kafka.kafka_python import ClientFuture
from millstream.kafka.membership.connections import MemberConnections
from millstream.kafka.membership.coordinator import MemberCoordinator
from millstream.kafka.membership.member_assignor import (
    MemberAssignment,
    MemberAssignor,
    MemberSubscription,
)

log = logging.getLogger("millstream.kafka.membership.group_member")

T = TypeVar("T")

#: The pause after a rebalance without an assignment.
_PAUSE_MS: Final = 1_000
_STEP_S: Final = 0.1


class AssignmentDelayedError(client_errors.RetriableError):  # type: ignore[misc]  # untyped
    """No assignment could be computed; the group rebalances again."""


class AssignorRunner:
    """Calls the assignor on the member's thread, for the membership coroutine.

    An exception that is not a StreamsError becomes a TaskAssignmentError.
    """

    def __init__(
        self,
        connections: MemberConnections,
        assignor: MemberAssignor,
        coordinator: MemberCoordinator,
        on_member_thread: Callable[[Callable[[], Any]], ClientFuture],
        interrupted: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._connections = connections
        self._assignor = assignor
        self._coordinator = coordinator
        self._on_member_thread = on_member_thread
        self._interrupted = interrupted
        self._clock = clock
        self._timeout_ms: int = connections.config["bootstrap_timeout_ms"]
        self._failing_since_ms: int | None = None
        self._warnings = LogInterval(clock, first_ms=0)

    async def user_data(self) -> bytes:
        """Return the user data for this member's subscription."""
        data: bytes = await self._call(self._assignor.user_data, "user data", heartbeats=False)
        return data

    async def assign(
        self, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """Compute an assignment for each member, on the leader.

        If the cluster does not respond to the assignor, raises AssignmentDelayedError after a
        pause, and BrokerUnavailableError once the bootstrap timeout has passed.
        """
        try:
            assignments: Mapping[str, MemberAssignment] = await self._call(
                lambda: self._assignor.assign(members), "an assignment", heartbeats=True
            )
        except BrokerUnavailableError as error:
            await self._pause_or_raise(error)
            raise AssignmentDelayedError(str(error)) from error
        self._failing_since_ms = None
        if set(assignments) != set(members):
            raise TaskAssignmentError(
                f"The assignor of group {self._coordinator.group_id!r} returned assignments for "
                f"{sorted(assignments)}, but the members of the group are {sorted(members)}."
            )
        return assignments

    async def _pause_or_raise(self, error: BrokerUnavailableError) -> None:
        """Pause, or raise `error` if the cluster has not responded for too long."""
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
            self._warnings = LogInterval(self._clock, first_ms=0)
        if now_ms - self._failing_since_ms >= self._timeout_ms:
            raise error
        log.log(
            logging.WARNING if self._warnings.is_due else logging.DEBUG,
            "%s: no assignment could be computed, rebalancing again: %s",
            self._connections.config["client_id"],
            error,
        )
        self._coordinator.heartbeat_while_assigning()
        pause = Deadline(self._clock, _PAUSE_MS)
        while not pause.passed and not self._interrupted():
            await self._connections.sleep(_STEP_S)

    async def _call(self, call: Callable[[], T], what: str, *, heartbeats: bool) -> T:
        """Call the assignor on the member's thread, with or without heartbeats meanwhile."""
        future = self._on_member_thread(call)
        heartbeat_ms = self._coordinator.config["heartbeat_interval_ms"]
        while not future.is_done:
            try:
                await self._connections.wait_for(future, heartbeat_ms)
            except client_errors.KafkaTimeoutError:
                if heartbeats:
                    self._coordinator.heartbeat_while_assigning()
            except Exception:
                break
        error = future.exception
        if error is None:
            result: T = future.value
            return result
        if isinstance(error, StreamsError):
            raise error
        raise TaskAssignmentError(
            f"The assignor of group {self._coordinator.group_id!r} raised "
            f"{type(error).__name__} when computing {what}: {error}"
        ) from error
