"""A group member on the simulated cluster: the production class, with its threads replaced.

Everything that decides something is `GroupMember`, `Membership` and below. Here is only where they
run: the coroutine as calls of the scheduler, the assignor as an actor of its own, and waiting on
simulated time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.future import Future

from millstream.clock import Clock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.member.answer import Answer
from millstream.kafka.member.events import Failed, MemberEvent
from millstream.kafka.member.group_member import GroupMember
from millstream.kafka.member.life import Membership
from millstream.kafka.member.mailbox import Mailbox
from millstream.kafka.member.offsets import MemberOffsets
from millstream.waker import Waker
from simulation.broker.cluster import Cluster
from simulation.clients.event_loop import SimulatedLink
from simulation.clients.requests import Waits
from simulation.scheduler import Process, SimulatedClock

_TRY_TO_CONNECT_US: Final = 200_000
_STEPS_BEHIND: Final = 75
_STEP_US: Final = 20_000


class _Mailbox(Mailbox):
    """Tells when something was put into it."""

    def __init__(
        self, on_receipt: Callable[[], None], waker: Waker, on_put: Callable[[], None]
    ) -> None:
        super().__init__(on_receipt, waker)
        self._on_put = on_put

    def put(self, event: MemberEvent) -> None:
        super().put(event)
        self._on_put()


class SimulatedMember(GroupMember):
    """A member of the simulated cluster's group.

    Args:
        cluster: the cluster.
        process: what it lives in.
        waits: where its thread waits.
        settings: kafka-python's, as for `GroupMember`; so are the other arguments.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: Process,
        waits: Waits,
        settings: Mapping[str, Any],
        **arguments: Any,
    ) -> None:
        arguments["clock"] = clock = SimulatedClock(cluster.scheduler)
        super().__init__(settings, **arguments)
        self._cluster = cluster
        self._process = process
        self._scheduler = cluster.scheduler
        self._plain_clock: Clock = clock
        self._waits = waits
        self._events = _Mailbox(self._wake, arguments["waker"], waits.end)
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
                _TRY_TO_CONNECT_US, lambda: self._connect(until_us), self._process
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
        link = SimulatedLink(self._cluster, self._process, config)
        life = Membership(
            link,
            self._events,
            self._assignor,
            self._on_this_thread,
            topics=self._topics,
            pattern=self._pattern,
            clock=self._plain_clock,
            announces_joins=self._announces_joins,
        )
        stable_only = config["isolation_level"] == "read_committed"
        self._offsets = MemberOffsets(
            life.coordinator, stable_only=stable_only, clock=self._plain_clock
        )
        self._link = link
        self._life = life
        self._ended = link.call_soon(life.run)
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
        self._waits.wait(timeout_ms * 1000)
        return self._events.take(0)

    def commit(self, offsets: Any, timeout_ms: int) -> None:
        super().commit(offsets, timeout_ms)
        # The answer is here, and what it is followed by is not done yet.
        self._scheduler.step(10)

    def begin_commit(self, offsets: Any, timeout_ms: int) -> Answer:
        self._freeze()
        self._scheduler.step(10)
        begun = super().begin_commit(offsets, timeout_ms)
        self._scheduler.step(10)
        return begun

    def committed(self, partitions: Any, timeout_ms: int) -> Any:
        self._scheduler.step(10)
        return super().committed(partitions, timeout_ms)

    def _freeze(self) -> bool:
        """Stand still, if whoever commits next is to."""
        frozen_us, self._cluster.freeze_next_commit_us = self._cluster.freeze_next_commit_us, 0
        if frozen_us:
            self._process.frozen_until_us = self._scheduler.now_us + frozen_us
            self._scheduler.tell(f"{self._process.name} stands still in a commit")
        return bool(frozen_us)

    def _place(self, life: Membership) -> GroupMetadata:
        # On another thread the place may be lost between the hold and this, more so when the
        # process stands still there: then that thread goes on first.
        if self._freeze():
            for _ in range(_STEPS_BEHIND):
                self._scheduler.step(_STEP_US)
        return super()._place(life)

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
        if self._link is not None:
            self._link.close(0)

    @property
    def id_and_generation(self) -> tuple[str, int]:
        """As the broker knows it."""
        return self.member_id, self.generation
