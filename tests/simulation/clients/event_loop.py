"""kafka-python's event loop and connections on simulated time, so that the production code of a
group member runs unchanged: its membership, its coordinator, its commits, kafka-python's own
`BaseCoordinator`.

`SimulatedConnections` is a `MemberConnections` with simulated parts: it implements the parts of
kafka-python's `NetworkSelector`, `KafkaConnectionManager`, `KafkaNetClient` and `ClusterMetadata`
that a member uses.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from math import ceil
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from kafka import errors as client_errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager

from millstream.kafka.membership.connections import MemberConnections
from simulation.broker.cluster import Cluster
from simulation.clients.group_requests import answer
from simulation.scheduler import Actor, Process, Scheduler

_CONNECT_FAILS_US: Final = 20_000


class SimulatedTime(ModuleType):
    """Replaces the module `time` for kafka-python's timers."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__("time")
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.now_us / 1_000_000

    def time(self) -> float:
        return self.monotonic()


def use_simulated_time(scheduler: Scheduler) -> None:
    """Use simulated time in kafka-python and the modules that depend on it."""
    simulated = SimulatedTime(scheduler)
    for name, module in list(sys.modules.items()):
        if name.startswith(("kafka.", "millstream.kafka.")):
            known = getattr(module, "time", None)
            if known is time or isinstance(known, SimulatedTime):
                module.time = simulated  # type: ignore[attr-defined]


class Timer:
    """A scheduled call, which can be cancelled."""

    def __init__(self) -> None:
        self.cancelled = False


class SimulatedLoop:
    """Runs a member's coroutines as calls of the scheduler.

    Args:
        scheduler: the simulation's scheduler.
        process: ends the coroutines when it is killed.
    """

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process
        self._exception: BaseException | None = None
        self.closed = False

    def call_later(self, delay_s: float, call: Callable[[], Any]) -> Timer:
        timer = Timer()

        def due() -> None:
            if not timer.cancelled and not self.closed:
                self._begin(call)

        self._scheduler.call_after(max(0, ceil(delay_s * 1_000_000)), due, self._process)
        return timer

    def cancel(self, timer: Timer) -> None:
        timer.cancelled = True

    def call_soon(self, call: Callable[[], Any]) -> Timer:
        return self.call_later(0, call)

    call_soon_threadsafe = call_soon

    def sleep(self, delay_s: float) -> Future:
        future = Future()
        self.call_later(delay_s, lambda: future.success(None))
        return future

    def call_soon_with_future(self, call: Any, *args: Any) -> Future:
        future = Future()

        async def run() -> None:
            try:
                result = call(*args) if callable(call) else call
                while inspect.isawaitable(result):
                    result = await result
                future.success(result)
            except BaseException as error:
                if isinstance(error, GeneratorExit):
                    raise
                future.failure(error)

        self.call_soon(run)
        return future

    def _begin(self, call: Callable[[], Any]) -> None:
        started = call()
        if inspect.iscoroutine(started):
            self._advance(started)

    def _advance(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if self.closed:
            coroutine.close()
            return
        try:
            awaited = coroutine.send(None)
        except StopIteration:
            return
        assert isinstance(awaited, Future), f"a member awaits an unexpected object: {awaited!r}"

        def go_on(_: object) -> None:
            self._scheduler.call_after(0, lambda: self._advance(coroutine), self._process)

        awaited.add_both(go_on)


class _Connection:
    """A connection to one broker, which answers requests one after the other."""

    def __init__(self, manager: SimulatedManager, broker: int) -> None:
        self._manager = manager
        self._broker = broker
        self._last_arrival_us = 0
        self._last_answer_us = 0
        self._arrived: deque[tuple[Any, Future]] = deque()
        self._answering: Future | None = None
        self.in_flight: list[Future] = []

    def send(self, request: Any, future: Future, timeout_ms: int) -> None:
        manager = self._manager
        scheduler, cluster, process = manager.scheduler, manager.cluster_of_brokers, manager.process
        self.in_flight.append(future)
        if not process.cut_off and not cluster.up[self._broker]:
            scheduler.call_after(_CONNECT_FAILS_US, self.broken, process)
            return
        scheduler.call_after(timeout_ms * 1000, lambda: self._timed_out(future), process)
        if process.cut_off:
            return
        arrival = max(self._last_arrival_us, scheduler.now_us + cluster.latency_us())
        self._last_arrival_us = arrival
        if cluster.drops_message():
            scheduler.call_after(arrival - scheduler.now_us, self.broken, process)
            return
        # A request in flight arrives even if its sender has been killed by then.
        scheduler.call_after(arrival - scheduler.now_us, lambda: self._arrive(request, future))

    def _arrive(self, request: Any, future: Future) -> None:
        if not self._manager.cluster_of_brokers.up[self._broker]:
            return
        self._arrived.append((request, future))
        self._serve()

    def _serve(self) -> None:
        if self._answering is not None or not self._arrived:
            return
        manager = self._manager
        cluster = manager.cluster_of_brokers
        silent_us = cluster.coordinators_silent_us
        if silent_us and self._broker == cluster.coordinator:
            manager.scheduler.call_after(silent_us, self._serve)
            return
        request, future = self._arrived.popleft()
        self._answering = future

        def reply(response: Any) -> None:
            if self._answering is not future:
                return
            self._answering = None
            scheduler = manager.scheduler
            at_us = max(self._last_answer_us, scheduler.now_us + cluster.latency_us())
            self._last_answer_us = at_us
            lost = cluster.drops_message()
            deliver = self.broken if lost else lambda: self._answered(future, response)
            if not manager.process.cut_off:
                scheduler.call_after(at_us - scheduler.now_us, deliver, manager.process)
            scheduler.call_after(0, self._serve)

        answer(cluster, self._broker, request, reply)

    def _answered(self, future: Future, response: Any) -> None:
        if future in self.in_flight:
            self.in_flight.remove(future)
            future.success(response)

    def _timed_out(self, future: Future) -> None:
        if future in self.in_flight:
            self.broken(client_errors.RequestTimedOutError("Request timed out"))

    def broken(self, error: Exception | None = None) -> None:
        """Lose the connection and all requests in flight."""
        self._arrived.clear()
        self._answering = None
        self._manager.remove(self)
        failed, self.in_flight = self.in_flight, []
        for future in failed:
            future.failure(error or client_errors.KafkaConnectionError("connection lost"))


class SimulatedManager:
    """A member's connections.

    Args:
        cluster: the cluster.
        process: the member's process.
        loop: the event loop that receives the answers.
        request_timeout_ms: the default timeout of requests.
    """

    wait_for = KafkaConnectionManager.wait_for
    broker_version = (4, 0)

    def __init__(
        self, cluster: Cluster, process: Process, loop: SimulatedLoop, request_timeout_ms: int
    ) -> None:
        self.cluster_of_brokers = cluster
        self.scheduler = cluster.scheduler
        self.process = process
        self.cluster = SimulatedMetadata(cluster)
        self._net = loop
        self._timeout_ms = request_timeout_ms
        self._connections: dict[object, _Connection] = {}
        self._on_stop: Callable[[int], None] = self._broker_stopped
        cluster.on_stop.append(self._on_stop)

    def send(
        self, request: Any, node_id: Any = None, request_timeout_ms: int | None = None
    ) -> Future:
        future = Future()
        if node_id is None:
            node_id = self.least_loaded()
            if node_id is None:
                return future.failure(client_errors.NodeNotReadyError("no broker is available"))
        connection = self._connections.get(node_id)
        if connection is None:
            connection = _Connection(self, broker_of(node_id))
            self._connections[node_id] = connection
        connection.send(request, future, request_timeout_ms or self._timeout_ms)
        return future

    def call_soon(self, call: Any, *args: Any) -> Future:
        return self._net.call_soon_with_future(call, *args)

    def remove(self, connection: _Connection) -> None:
        """Remove a lost connection; the next request creates another."""
        for node, known in list(self._connections.items()):
            if known is connection:
                del self._connections[node]

    def close(self) -> None:
        """Close the event loop and all connections."""
        self._net.closed = True
        if self._on_stop in self.cluster_of_brokers.on_stop:
            self.cluster_of_brokers.on_stop.remove(self._on_stop)

    def is_connected(self, node_id: Any) -> bool:
        """Whether requests can reach a node."""
        return self.cluster_of_brokers.reaches(self.process, broker_of(node_id))

    def least_loaded(self) -> int | None:
        """A random broker that is up; None if all are down."""
        up = [broker for broker, is_up in self.cluster_of_brokers.up.items() if is_up]
        return self.scheduler.random.choice(up) if up else None

    def _broker_stopped(self, broker: int) -> None:
        for node, connection in list(self._connections.items()):
            if broker_of(node) == broker:
                if self.process.alive:
                    self.scheduler.call_after(1_000, connection.broken, self.process)
                del self._connections[node]


def broker_of(node_id: Any) -> int:
    """The broker of a node id. The coordinator has a second node id, for a second connection."""
    return int(str(node_id).rsplit("-", 1)[-1])


class SimulatedMetadata:
    """A member's metadata of the brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def brokers(self) -> Collection[Any]:
        return [self.broker_metadata(broker) for broker in self._cluster.up]

    def broker_metadata(self, node_id: Any) -> Any:
        if node_id is None:
            return None
        return SimpleNamespace(node_id=node_id, host="sim", port=9092 + broker_of(node_id))

    def add_coordinator(self, response: Any, kind: Any, group: str) -> str:
        return f"coordinator-{response.node_id}"

    def request_update(self) -> Future:
        return Future().success(None)


class SimulatedNetClient:
    """The part of kafka-python's client that a coordinator uses."""

    def __init__(self, manager: SimulatedManager) -> None:
        self._manager = manager

    def connected(self, node_id: Any) -> bool:
        return node_id is not None and self._manager.is_connected(node_id)

    def is_disconnected(self, node_id: Any) -> bool:
        return not self._manager.is_connected(node_id)

    def connection_delay(self, node_id: Any) -> int:
        return 0 if self._manager.is_connected(node_id) else 50

    def least_loaded_node(self) -> int | None:
        return self._manager.least_loaded()

    def maybe_connect(self, node_id: Any) -> None:
        return None


class SimulatedConnections(MemberConnections):
    """A member's connections to the simulated cluster.

    Args:
        cluster: the cluster.
        process: the member's process.
        config: kafka-python's settings, including defaults.
    """

    def __init__(self, cluster: Cluster, process: Process, config: Mapping[str, Any]) -> None:
        # Not the base class's constructor, which connects to a real cluster.
        self.config = dict(config)
        self._scheduler = cluster.scheduler
        self._net = SimulatedLoop(cluster.scheduler, process)
        timeout_ms = config["request_timeout_ms"]
        self._manager = SimulatedManager(cluster, process, self._net, timeout_ms)
        self.client = SimulatedNetClient(self._manager)
        self._cluster = self._manager.cluster

    @property
    def alive(self) -> bool:
        return not self._net.closed

    def value_of(self, future: Any, timeout_ms: int) -> Any:
        """Wait for a future, in the running actor."""
        waiting: Actor = self._scheduler.current
        future.add_both(lambda _: waiting.wake(future))
        until_us = self._scheduler.now_us + timeout_ms * 1000
        while not future.is_done:
            left_us = until_us - self._scheduler.now_us
            if left_us <= 0:
                raise client_errors.KafkaTimeoutError(f"No answer within {timeout_ms} ms")
            self._scheduler.sleep(left_us, future)
        if future.exception is not None:
            raise future.exception
        return future.value

    def close(self, timeout_ms: int) -> None:
        self._manager.close()
