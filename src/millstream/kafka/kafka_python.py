"""The only place that knows kafka-python from within: what is not public there, under our names.

Its consumer hides the group protocol; a member of our own is built on the parts below the consumer.
`ClientConnections` is its connection manager with its event loop, `ClientCoordinator` its side of
the group protocol with hooks to fill in. Nobody else reaches for a name with an underscore, or
imports more of kafka-python than its public classes and `errors`. `kafka_python_parts` lists what
is used here, and checks that the installed release has it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafka import errors as client_errors

from millstream.kafka.kafka_python_parts import check_kafka_python, part

log = logging.getLogger("millstream.kafka.member.group_member")

_MemberState = part("MemberState")
_KafkaNetClient = part("KafkaNetClient")
_WakeupNotifier = part("WakeupNotifier")
_Future = part("Future")

#: What a login with tokens must be derived from.
AbstractTokenProvider = part("AbstractTokenProvider")

JoinGroupRequest = part("JoinGroupRequest")
SyncGroupRequest = part("SyncGroupRequest")
HeartbeatRequest = part("HeartbeatRequest")
LeaveGroupRequest = part("LeaveGroupRequest")
OffsetCommitRequest = part("OffsetCommitRequest")
OffsetFetchRequest = part("OffsetFetchRequest")
MetadataRequest = part("MetadataRequest")


class ClientFuture(Protocol):
    """An answer that is to come, on the event loop. It can be awaited there."""

    is_done: bool
    exception: BaseException | None
    value: Any

    def success(self, value: Any) -> Any: ...
    def failure(self, error: BaseException) -> Any: ...
    def add_both(self, callback: Callable[[Any], Any]) -> Any: ...


def new_future() -> ClientFuture:
    """A future that nobody has resolved."""
    future: ClientFuture = _Future()
    return future


class Wakeup:
    """Lets a coroutine sleep until somebody calls for it.

    Args:
        notifier: kafka-python's.
    """

    def __init__(self, notifier: Any) -> None:
        self._notifier = notifier

    def notify(self) -> None:
        """Wake the coroutine, now or when it next wants to sleep. From any thread.

        Raises:
            Exception: the event loop has ended.
        """
        self._notifier.notify()

    async def sleep(self, most_s: float) -> None:
        """Sleep until `notify` is called, but no longer than `most_s`."""
        await self._notifier(most_s)


class ClientConnections:
    """Connections to the brokers of a cluster, and the event loop that serves them on its thread.

    Args:
        config: kafka-python's settings, defaults included.

    Raises:
        ConfigError: the installed kafka-python cannot be used.
        KafkaError: of the client, as ValueError and TypeError: it refuses a setting.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        check_kafka_python()
        self.config = dict(config)
        self.client = _KafkaNetClient(**config)
        self._manager = self.client._manager
        self._cluster = self._manager.cluster
        self._net = self._manager._net
        _keep_last_answers(self._manager)

    def start(self) -> None:
        """Start the event loop's thread."""
        self._net.start()

    def bootstrap(self) -> ClientFuture:
        """Look for a broker until one answers."""
        # Without the client's own bound: it would also be that of each attempt to connect, so that
        # one server that is silent took all the time.
        future: ClientFuture = self._manager.bootstrap_async(None, False)
        return future

    def close(self, timeout_ms: int) -> None:
        """Close all connections and end the event loop, waiting for it up to `timeout_ms`."""
        thread = self._net._io_thread
        try:
            self._manager.call_soon(self._manager.close)
            # First with a bound: the client's own close waits for its thread without one.
            self._net.stop(timeout_ms)
            if thread is not None and thread.is_alive():
                log.warning("%s: left a stuck event loop behind", self.config["client_id"])
                return
            self.client.close()
        except Exception:
            # An event loop that crashed refuses further work; there is nothing left to close then.
            log.debug("The member's event loop had ended before it was closed", exc_info=True)

    # How it stands.

    @property
    def alive(self) -> bool:
        """Whether the event loop still runs."""
        thread = self._net._io_thread
        return thread is not None and thread.is_alive()

    @property
    def crash(self) -> BaseException | None:
        """What the event loop ended with, if it crashed."""
        error: BaseException | None = self._net._exception
        return error

    @property
    def broker_version(self) -> tuple[int, ...] | None:
        """What the broker that answered first can do; None before."""
        version: tuple[int, ...] | None = self._manager.broker_version
        return version

    @property
    def has_met_brokers(self) -> bool:
        """Whether a broker has told of the cluster."""
        return bool(self._cluster._last_successful_refresh_ms)

    @property
    def advertised(self) -> list[str]:
        """`host:port` of each broker, sorted, as the brokers tell it."""
        return sorted(f"{each.host}:{each.port}" for each in self._cluster.brokers())

    def connected(self, node_id: Any) -> bool:
        """Whether there is a connection to that broker."""
        return bool(self.client.connected(node_id))

    def same_broker(self, node_id: Any) -> Any:
        """The id under which another connection goes to the same broker; `node_id` if none does."""
        wanted = self._cluster.broker_metadata(node_id)
        if wanted is not None:
            for broker in self._cluster.brokers():
                if (broker.host, broker.port) == (wanted.host, wanted.port):
                    return broker.node_id
        return node_id

    # Work on the event loop.

    def call_soon(self, call: Callable[..., Any], *args: Any) -> ClientFuture:
        """Call a function or a coroutine function on the event loop. From any thread."""
        future: ClientFuture = self._manager.call_soon(call, *args)
        return future

    def run_soon(self, call: Callable[[], Any]) -> None:
        """The same, where nobody wants to know how it ended.

        Raises:
            Exception: the event loop has ended.
        """
        self._net.call_soon_threadsafe(call)

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: int | None = None) -> Any:
        """Send a request to a broker, by default to the least busy; its response is awaited."""
        return self._manager.send(request, node_id=node_id, request_timeout_ms=request_timeout_ms)

    async def wait_for(self, future: Any, timeout_ms: float) -> Any:
        """What a future comes to, which goes on if that takes longer.

        Raises:
            KafkaTimeoutError: of the client; it takes longer.
        """
        return await self._manager.wait_for(future, timeout_ms)

    async def sleep(self, seconds: float) -> None:
        """Let others work on the event loop."""
        await self._net.sleep(seconds)

    def wakeup(self) -> Wakeup:
        """A place for a coroutine to sleep at."""
        return Wakeup(_WakeupNotifier(self._net))

    def note_failures(self, note: Callable[[BaseException], None]) -> Callable[[], None]:
        """Tell how each attempt to connect fails, which the client tells its log only.

        Returns:
            Ends it, for connections that are made from then on.
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


def _keep_last_answers(manager: Any) -> None:
    """Let connections hear what a broker says right before it hangs up.

    kafka-python throws away what it reads together with the end of a connection. The answer that a
    login is refused comes like that whenever the event loop is a tenth of a second late, so a wrong
    password would look like a broker that is away.
    """
    build = manager._build_transport

    async def build_transport(*args: Any, **options: Any) -> Any:
        transport = await build(*args, **options)
        transport._sock_recv = _data_before_end(transport._sock_recv)
        return transport

    manager._build_transport = build_transport


def _data_before_end(
    receive: Callable[[], tuple[bytes, Any]],
) -> Callable[[], tuple[bytes, Any]]:
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


class ClientCoordinator(part("BaseCoordinator")):  # type: ignore[misc]  # it has no types
    """kafka-python's side of the group protocol, with hooks to fill in.

    It finds the coordinator, retries, heartbeats and keeps the generation. Everything here runs on
    the event loop.

    Args:
        connections: to the brokers.
    """

    def __init__(self, connections: ClientConnections) -> None:
        super().__init__(connections.client, **connections.config)
        self.connections = connections

    # The hooks.

    @abstractmethod
    async def prepare_join(self) -> None:
        """Before the first attempt of a rebalance, while heartbeats go on."""

    @abstractmethod
    async def join_and_sync(self) -> bytes:
        """One attempt to join; what it comes to is this member's assignment."""

    @abstractmethod
    async def join_completed(self, assignment: bytes) -> None:
        """The rebalance is complete."""

    @abstractmethod
    def heartbeat_refused(self, error: Exception) -> None:
        """A heartbeat was answered with an error that does not pass."""

    # What kafka-python calls instead.

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
            self.heartbeat_refused(error)
            raise

    def group_protocols(self) -> list[tuple[str, bytes]]:
        raise NotImplementedError("A member's subscription is built where it joins.")

    def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Any:
        raise NotImplementedError("A member assigns where it joins, on another thread.")

    # Membership.

    @property
    def member_id(self) -> str:
        """The id that the broker gave; empty without one."""
        return str(self._generation.member_id)

    @property
    def generation_id(self) -> int:
        """The rebalance that the member took part in last; -1 if it is in none."""
        return int(self._generation.generation_id)

    @property
    def generation_protocol(self) -> str | None:
        """The protocol that the group agreed on in that rebalance."""
        protocol: str | None = self._generation.protocol
        return protocol

    @property
    def fallen_out(self) -> bool:
        """Whether the broker no longer counts this member in: what it owned may be another's."""
        return bool(self._generation.is_lost())

    @property
    def joining(self) -> bool:
        """Whether a join is on its way."""
        return self.state is _MemberState.REBALANCING

    def prepare_again(self) -> None:
        """Have the next attempt to join begin with its preparation, even within a rebalance."""
        self.rejoining = False

    def begin_to_join(self) -> None:
        """From now on a join is on its way."""
        with self._lock:
            self.state = _MemberState.REBALANCING

    def take_join_response(self, response: Any, asked_at_s: float) -> None:
        """Note the generation of a join, or raise the error that it was answered with."""
        self._process_join_group_response(response, asked_at_s)

    def take_sync_response(self, response: Any, asked_at_s: float) -> bytes:
        """The assignment, or raise the error that the sync was answered with."""
        return bytes(self._process_sync_group_response(response, asked_at_s))

    # Heartbeats.

    def keep_heartbeating(self) -> None:
        """Say that this member is alive, and start the heartbeats anew should they have ended."""
        try:
            self.poll_heartbeat()
        finally:
            self._maybe_start_heartbeat_loop()

    def stop_heartbeating(self) -> None:
        """For good."""
        self._close_heartbeat()
