"""A group member on the simulated cluster: the production class, with its threads replaced.

All decisions are made by `GroupMember`, `Membership` and their parts. This class only replaces
their execution: coroutines run as calls of the scheduler, the assignor runs as a separate actor,
and waits use simulated time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.future import Future

from millstream.clock import Clock, Waker
from millstream.errors import BrokerUnavailableError
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.membership.group_member import GroupMember
from millstream.kafka.membership.group_offsets import GroupOffsets
from millstream.kafka.membership.member_events import Failed, MemberEvent, MemberEventQueue
from millstream.kafka.membership.membership import Membership
from millstream.kafka.membership.pending_response import PendingResponse
from simulation.broker.cluster import Cluster
from simulation.clients.event_loop import SimulatedConnections
from simulation.clients.requests import WaitPoint
from simulation.scheduler import Process, SimulatedClock

_CONNECT_RETRY_US: Final = 200_000
_DELAY_STEPS: Final = 75
_STEP_US: Final = 20_000


class _Mailbox(MemberEventQueue):
    """Calls a function for each event."""

    def __init__(
        self, on_acknowledge: Callable[[], None], waker: Waker, on_put: Callable[[], None]
    ) -> None:
        super().__init__(on_acknowledge, waker)
        self._on_put = on_put

    def put(self, event: MemberEvent) -> None:
        super().put(event)
        self._on_put()


class SimulatedMember(GroupMember):
    """A member of the simulated cluster's group.

    Args:
        cluster: the cluster.
        process: the member's process.
        wait_point: the wait point of its thread.
        settings: kafka-python's settings, like the other arguments of `GroupMember`.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: Process,
        wait_point: WaitPoint,
        settings: Mapping[str, Any],
        **arguments: Any,
    ) -> None:
        arguments["clock"] = clock = SimulatedClock(cluster.scheduler)
        super().__init__(settings, **arguments)
        self._cluster = cluster
        self._process = process
        self._scheduler = cluster.scheduler
        self._plain_clock: Clock = clock
        self._wait_point = wait_point
        self._events = _Mailbox(self._wake, arguments["waker"], wait_point.end)
        self._closing = cluster.scheduler.director
        self._ended: Future | None = None

    def start(self) -> None:
        timeout_ms = self._settings.get("bootstrap_timeout_ms", 60_000)
        self._connect(self._scheduler.now_us + timeout_ms * 1000)

    def _connect(self, until_us: int) -> None:
        if self._closed:
            return
        if self._cluster.any_reached(self._process):
            self._begin()
        elif self._scheduler.now_us >= until_us:
            self._events.put(Failed(BrokerUnavailableError("No Kafka broker answered.")))
        else:
            self._scheduler.call_after(
                _CONNECT_RETRY_US, lambda: self._connect(until_us), self._process
            )

    def _begin(self) -> None:
        config = {
            **KafkaConsumer.DEFAULT_CONFIG,
            **self._settings,
            "group_id": self._group_id,
            "client_id": self._client_id,
            "api_version": (4, 0),
            "metrics": None,
        }
        config.setdefault("bootstrap_timeout_ms", 60_000)
        connections = SimulatedConnections(self._cluster, self._process, config)
        membership = Membership(
            connections,
            self._events,
            self._assignor,
            self._on_this_thread,
            topics=self._topics,
            pattern=self._pattern,
            clock=self._plain_clock,
            announces_joins=self._announces_joins,
        )
        stable_only = config["isolation_level"] == "read_committed"
        self._offsets = GroupOffsets(
            membership.coordinator, stable_only=stable_only, clock=self._plain_clock
        )
        self._connections = connections
        self._membership = membership
        self._ended = connections.call_soon(membership.run)
        self._ended.add_both(lambda _: self._closing.wake(self))

    def _on_this_thread(self, call: Callable[[], Any]) -> Future:
        answer = Future()

        def job() -> None:
            try:
                value = call()
            except Exception as error:
                answer.failure(error)
            else:
                answer.success(value)

        self._scheduler.start(self._process, f"{self._client_id}-assignor", job)
        return answer

    # Waiting on simulated time.

    def next_event(self, timeout_ms: int = 0) -> MemberEvent | None:
        scheduler = self._scheduler
        if scheduler.current.dead:
            return None
        event = self._events.take(0)
        if event is not None or timeout_ms <= 0:
            return event
        self._wait_point.wait(timeout_ms * 1000)
        return self._events.take(0)

    def commit(self, offsets: Any, timeout_ms: int) -> None:
        super().commit(offsets, timeout_ms)
        # The answer has arrived, but its callbacks have not run yet.
        self._scheduler.step(10)

    def begin_commit(self, offsets: Any, timeout_ms: int) -> PendingResponse:
        self._freeze()
        self._scheduler.step(10)
        begun = super().begin_commit(offsets, timeout_ms)
        self._scheduler.step(10)
        return begun

    def committed(self, partitions: Any, timeout_ms: int) -> Any:
        self._scheduler.step(10)
        return super().committed(partitions, timeout_ms)

    def _freeze(self) -> bool:
        """Pause the process if a fault requests it for the next commit."""
        frozen_us, self._cluster.freeze_next_commit_us = self._cluster.freeze_next_commit_us, 0
        if frozen_us:
            self._process.frozen_until_us = self._scheduler.now_us + frozen_us
            self._scheduler.log(f"{self._process.name} is paused in a commit")
        return bool(frozen_us)

    def _group_metadata(self, membership: Membership) -> GroupMetadata:
        # The member thread may lose the membership between the hold and this call, especially while
        # the process is paused: then that thread continues first.
        if self._freeze():
            for _ in range(_DELAY_STEPS):
                self._scheduler.step(_STEP_US)
        return super()._group_metadata(membership)

    def acknowledge(self, event: MemberEvent) -> None:
        if not self._scheduler.current.dead:
            super().acknowledge(event)

    def close(self, *, leave_group: bool, timeout_ms: int) -> None:
        if self._scheduler.current.dead:
            return
        scheduler = self._scheduler
        self._closing = scheduler.current
        super().close(leave_group=leave_group, timeout_ms=timeout_ms)
        until_us = scheduler.now_us + timeout_ms * 1000
        while self._ended is not None and not self._ended.is_done:
            if scheduler.now_us >= until_us:
                break
            scheduler.sleep(until_us - scheduler.now_us, self)
        if self._connections is not None:
            self._connections.close(0)

    @property
    def id_and_generation(self) -> tuple[str, int]:
        """The broker's member id and generation."""
        return self.member_id, self.generation
