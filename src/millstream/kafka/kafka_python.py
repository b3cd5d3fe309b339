"""Adapter for kafka-python: its private classes under our own names.

kafka-python's consumer hides the group protocol, so the group member is built on the layers below
the consumer. No other module uses private names of kafka-python, or imports anything from it except
public classes and `errors`. `kafka_python_compat` lists the names in use.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafka import errors as client_errors

from millstream.kafka.kafka_python_compat import check_kafka_python, private_class

log = logging.getLogger("millstream.kafka.membership.group_member")

_MemberState = private_class("MemberState")
_KafkaNetClient = private_class("KafkaNetClient")
_WakeupNotifier = private_class("WakeupNotifier")
_Future = private_class("Future")

#: Base class of token providers.
AbstractTokenProvider = private_class("AbstractTokenProvider")

JoinGroupRequest = private_class("JoinGroupRequest")
SyncGroupRequest = private_class("SyncGroupRequest")
HeartbeatRequest = private_class("HeartbeatRequest")
LeaveGroupRequest = private_class("LeaveGroupRequest")
OffsetCommitRequest = private_class("OffsetCommitRequest")
OffsetFetchRequest = private_class("OffsetFetchRequest")
MetadataRequest = private_class("MetadataRequest")


class ClientFuture(Protocol):
    """The pending result of a call on the event loop. Awaitable there."""

    is_done: bool
    exception: BaseException | None
    value: Any

    def success(self, value: Any) -> Any: ...
    def failure(self, error: BaseException) -> Any: ...
    def add_both(self, callback: Callable[[Any], Any]) -> Any: ...


def new_future() -> ClientFuture:
    future: ClientFuture = _Future()
    return future


class Wakeup:
    """An interruptible sleep of a coroutine."""

    def __init__(self, notifier: Any) -> None:
        self._notifier = notifier

    def notify(self) -> None:
        """Wake the coroutine, or end its next sleep. Callable from any thread.

        Raises an exception if the event loop has ended.
        """
        self._notifier.notify()

    async def sleep(self, max_s: float) -> None:
        """Sleep until `notify` is called, at most `max_s` seconds."""
        await self._notifier(max_s)


class ClientConnections:
    """Connections to the brokers of a cluster, and the thread of their event loop.

    The constructor raises ConfigError if the installed kafka-python is not supported, and
    KafkaError, ValueError or TypeError if kafka-python rejects a setting.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        check_kafka_python()
        self.config = dict(config)
        self.client = _KafkaNetClient(**config)
        self._manager = self.client._manager
        self._cluster = self._manager.cluster
        self._net = self._manager._net
        _deliver_last_data(self._manager)

    def start(self) -> None:
        self._net.start()

    def bootstrap(self) -> ClientFuture:
        """Connect to bootstrap servers until one responds."""
        # No client timeout: it would also apply to each connection attempt, so one unresponsive
        # server could use up all of the time.
        future: ClientFuture = self._manager.bootstrap_async(None, False)
        return future

    def close(self, timeout_ms: int) -> None:
        """Close all connections and stop the event loop, within `timeout_ms`."""
        thread = self._net._io_thread
        try:
            self._manager.call_soon(self._manager.close)
            # Stop the event loop first, with a timeout: the client's `close` waits for the thread
            # without a timeout.
            self._net.stop(timeout_ms)
            if thread is not None and thread.is_alive():
                log.warning(
                    "%s: the event loop is stuck and was abandoned", self.config["client_id"]
                )
                return
            self.client.close()
        except Exception:
            # A crashed event loop rejects calls, but then nothing is left to close.
            log.debug("The member's event loop had already ended", exc_info=True)

    # State.

    @property
    def alive(self) -> bool:
        thread = self._net._io_thread
        return thread is not None and thread.is_alive()

    @property
    def crash(self) -> BaseException | None:
        error: BaseException | None = self._net._exception
        return error

    @property
    def broker_version(self) -> tuple[int, ...] | None:
        """The API version of the first broker that responded; None before its response."""
        version: tuple[int, ...] | None = self._manager.broker_version
        return version

    @property
    def has_metadata(self) -> bool:
        return bool(self._cluster._last_successful_refresh_ms)

    @property
    def advertised_brokers(self) -> list[str]:
        """The advertised `host:port` of each broker, sorted."""
        return sorted(f"{each.host}:{each.port}" for each in self._cluster.brokers())

    def connected(self, node_id: Any) -> bool:
        return bool(self.client.connected(node_id))

    def alternate_node_id(self, node_id: Any) -> Any:
        """Return another node id of the broker, for a second connection.

        Returns `node_id` if there is no other id.
        """
        metadata = self._cluster.broker_metadata(node_id)
        if metadata is not None:
            for broker in self._cluster.brokers():
                if (broker.host, broker.port) == (metadata.host, metadata.port):
                    return broker.node_id
        return node_id

    # Calls on the event loop.

    def call_soon(self, call: Callable[..., Any], *args: Any) -> ClientFuture:
        """Call a function or a coroutine function on the event loop.

        Callable from any thread.
        """
        future: ClientFuture = self._manager.call_soon(call, *args)
        return future

    def run_soon(self, call: Callable[[], Any]) -> None:
        """Call a function on the event loop and ignore its outcome.

        Raises the same error as `Wakeup.notify`.
        """
        self._net.call_soon_threadsafe(call)

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: int | None = None) -> Any:
        """Send a request to a broker, by default the least busy one; return an awaitable."""
        return self._manager.send(request, node_id=node_id, request_timeout_ms=request_timeout_ms)

    async def wait_for(self, future: Any, timeout_ms: float) -> Any:
        """Return the result of a future. A KafkaTimeoutError does not cancel the future."""
        return await self._manager.wait_for(future, timeout_ms)

    async def sleep(self, seconds: float) -> None:
        await self._net.sleep(seconds)

    def wakeup(self) -> Wakeup:
        return Wakeup(_WakeupNotifier(self._net))

    def on_connection_error(self, note: Callable[[BaseException], None]) -> Callable[[], None]:
        """Pass the error of each failed connection attempt to `note`.

        The client only logs these errors. Returns a function that stops this for later connections.
        """
        connect = self._manager.get_connection

        def get_connection(*args: Any, **options: Any) -> Any:
            connection = connect(*args, **options)
            connection.init_future.add_errback(note)
            return connection

        self._manager.get_connection = get_connection

        def end() -> None:
            del self._manager.get_connection

        return end


def _deliver_last_data(manager: Any) -> None:
    """Deliver the last data that a broker sends before it closes a connection.

    kafka-python discards data that it reads together with the end of a connection. The response to
    a rejected login arrives that way whenever the event loop is a tenth of a second late, so a
    wrong password would look like an unavailable broker.
    """
    build = manager._build_transport

    async def build_transport(*args: Any, **options: Any) -> Any:
        transport = await build(*args, **options)
        transport._sock_recv = _data_before_end(transport._sock_recv)
        return transport

    manager._build_transport = build_transport


def _data_before_end(receive: Callable[[], tuple[bytes, Any]]) -> Callable[[], tuple[bytes, Any]]:
    end: list[Any] = []

    def receive_in_turn() -> tuple[bytes, Any]:
        if end:
            return b"", end[0]
        data, error = receive()
        if data and error:
            end.append(error)
            return data, None
        return data, error

    return receive_in_turn


class ClientCoordinator(private_class("BaseCoordinator")):  # type: ignore[misc]  # untyped
    """kafka-python's group coordinator client, with hooks to implement.

    Finds the coordinator, retries requests, sends heartbeats and tracks the generation. Runs on the
    event loop.
    """

    def __init__(self, connections: ClientConnections) -> None:
        super().__init__(connections.client, **connections.config)
        self.connections = connections

    # Hooks.

    @abstractmethod
    async def prepare_join(self) -> None:
        """Called before the first join attempt of a rebalance, while heartbeats continue."""

    @abstractmethod
    async def join_and_sync(self) -> bytes:
        """Make one attempt to join and return this member's assignment."""

    @abstractmethod
    async def join_completed(self, assignment: bytes) -> None:
        """Called when the rebalance is complete."""

    @abstractmethod
    def rejected_permanently(self, error: Exception) -> None:
        """Called when a heartbeat response is a permanent error."""

    # Overrides of kafka-python's methods.

    async def _on_join_prepare_async(
        self, generation: int, member_id: str, timeout_ms: float | None = None
    ) -> None:
        await self.prepare_join()

    async def _do_join_and_sync_async(self) -> bytes:
        return await self.join_and_sync()

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        await self.join_completed(member_assignment_bytes)

    def _handle_heartbeat_response(self, response: Any, send_time: float) -> Any:
        try:
            return super()._handle_heartbeat_response(response, send_time)
        except (
            client_errors.FencedInstanceIdError,
            client_errors.GroupAuthorizationFailedError,
        ) as error:
            self.rejected_permanently(error)
            raise

    def group_protocols(self) -> list[tuple[str, bytes]]:
        raise NotImplementedError("join_and_sync() builds the subscription.")

    def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Any:
        raise NotImplementedError("join_and_sync() computes the assignment on another thread.")

    # Membership.

    @property
    def member_id(self) -> str:
        """The member id that the broker assigned; empty if there is none."""
        return str(self._generation.member_id)

    @property
    def generation_id(self) -> int:
        """The current generation; -1 without one."""
        return int(self._generation.generation_id)

    @property
    def generation_protocol(self) -> str | None:
        """The protocol that the group selected in the current generation."""
        protocol: str | None = self._generation.protocol
        return protocol

    @property
    def membership_lost(self) -> bool:
        """Whether other members may own this member's partitions now."""
        return bool(self._generation.is_lost())

    @property
    def joining(self) -> bool:
        return self.state is _MemberState.REBALANCING

    def reset_join_preparation(self) -> None:
        """Make the next join attempt call `prepare_join` again, even within a rebalance."""
        self.rejoining = False

    def start_join(self) -> None:
        with self._lock:
            self.state = _MemberState.REBALANCING

    def process_join_response(self, response: Any, sent_at_s: float) -> None:
        """Apply the generation of a join response, or raise its error."""
        self._process_join_group_response(response, sent_at_s)

    def process_sync_response(self, response: Any, sent_at_s: float) -> bytes:
        """Return the assignment of a sync response, or raise its error."""
        return bytes(self._process_sync_group_response(response, sent_at_s))

    # Heartbeats.

    def ensure_heartbeats(self) -> None:
        """Record that this member is alive; restart the heartbeats if they have ended."""
        try:
            self.poll_heartbeat()
        finally:
            self._maybe_start_heartbeat_loop()

    def stop_heartbeats(self) -> None:
        self._close_heartbeat()
