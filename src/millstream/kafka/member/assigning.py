"""The member's questions to its assignor: asked on another thread, with heartbeats meanwhile, and
asked again where the cluster gave no answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kafka import errors as client_errors

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError, StreamsError, TaskAssignmentError
from millstream.kafka.cluster.log_interval import LogInterval
from millstream.kafka.kafka_python import ClientFuture
from millstream.kafka.member.coordinator import MemberCoordinator
from millstream.kafka.member.link import MemberLink
from millstream.kafka.member.member_assignor import (
    MemberAssignment,
    MemberAssignor,
    MemberSubscription,
)

log = logging.getLogger("millstream.kafka.member.group_member")

T = TypeVar("T")

#: Between two rebalances of which the first could not decide anything.
_PUT_OFF_MS: Final = 1_000
_STEP_S: Final = 0.1


class AssignmentPutOffError(client_errors.RetriableError):  # type: ignore[misc]  # no types there
    """No assignment could be made: the member joins again, and with it the group."""


class AssignorCalls:
    """Asks the assignor, on behalf of the coroutine that is the member's life.

    Args:
        link: the connections.
        assignor: who is asked.
        coordinator: for the heartbeats.
        on_member_thread: runs a call on the member's own thread and answers through a future.
        interrupted: whether the member has something else to do than to wait.
        clock: where the time is read.
    """

    def __init__(
        self,
        link: MemberLink,
        assignor: MemberAssignor,
        coordinator: MemberCoordinator,
        on_member_thread: Callable[[Callable[[], Any]], ClientFuture],
        interrupted: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._link = link
        self._assignor = assignor
        self._coordinator = coordinator
        self._on_member_thread = on_member_thread
        self._interrupted = interrupted
        self._clock = clock
        self._patience_ms: int = link.config["bootstrap_timeout_ms"]
        self._failing_since_ms: int | None = None
        self._warnings = LogInterval(clock, first_ms=0)

    async def user_data(self) -> bytes:
        """This member's part of its subscription.

        Raises:
            StreamsError: the assignor's own.
            TaskAssignmentError: it raised something else.
        """
        data: bytes = await self._ask(self._assignor.user_data, "user data", heartbeats=False)
        return data

    async def assign(
        self, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """As the leader: an assignment for each member.

        Raises:
            AssignmentPutOffError: the cluster did not answer the assignor, and has not done so for
                less than the member waits for brokers; after a pause.
            StreamsError: the assignor's own.
            TaskAssignmentError: it raised something else, or forgot somebody.
        """
        try:
            assignments: Mapping[str, MemberAssignment] = await self._ask(
                lambda: self._assignor.assign(members), "an assignment", heartbeats=True
            )
        except BrokerUnavailableError as error:
            await self._put_off(error)
            raise AssignmentPutOffError(str(error)) from error
        self._failing_since_ms = None
        if set(assignments) != set(members):
            raise TaskAssignmentError(
                f"The assignor of group {self._coordinator.group_id!r} answered for the members "
                f"{sorted(assignments)}, but the group has {sorted(members)}."
            )
        return assignments

    async def _put_off(self, error: BrokerUnavailableError) -> None:
        """Wait a little, or raise the error if the cluster has not answered for too long."""
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
            self._warnings = LogInterval(self._clock, first_ms=0)
        if now_ms - self._failing_since_ms >= self._patience_ms:
            raise error
        log.log(
            logging.WARNING if self._warnings.is_due else logging.DEBUG,
            "%s: could not make an assignment; the group joins again until it can be made: %s",
            self._link.config["client_id"],
            error,
        )
        self._coordinator.heartbeat_while_assigning()
        pause = Deadline(self._clock, _PUT_OFF_MS)
        while not pause.passed and not self._interrupted():
            await self._link.sleep(_STEP_S)

    async def _ask(self, call: Callable[[], T], what: str, *, heartbeats: bool) -> T:
        """Call the assignor on the member's thread, with heartbeats meanwhile or without."""
        answer = self._on_member_thread(call)
        heartbeat_ms = self._coordinator.config["heartbeat_interval_ms"]
        while not answer.is_done:
            try:
                await self._link.wait_for(answer, heartbeat_ms)
            except client_errors.KafkaTimeoutError:
                if heartbeats:
                    self._coordinator.heartbeat_while_assigning()
            except Exception:
                break
        error = answer.exception
        if error is None:
            result: T = answer.value
            return result
        if isinstance(error, StreamsError):
            raise error
        raise TaskAssignmentError(
            f"The assignor of group {self._coordinator.group_id!r} raised "
            f"{type(error).__name__} when asked for {what}: {error}"
        ) from error
