"""A real Apache Kafka broker for development and tests, started in about two seconds.

One KRaft node, controller and broker in one, in a Java process of its own; reachable from this
machine only, unless it is told otherwise, with an empty log directory that is removed at the end.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from millstream.clock import Deadline, SystemClock
from millstream.embedded.home import BrokerHome
from millstream.embedded.jars import KAFKA_VERSION, broker_jars
from millstream.embedded.java import find_java
from millstream.embedded.mended_broker import mended
from millstream.embedded.security import BrokerSecurity
from millstream.embedded.settings import LOOPBACK, Ports
from millstream.errors import EmbeddedKafkaError, IllegalStateError

_START_TIMEOUT_MS = 90_000
_STOP_TIMEOUT_S = 15
_TOPIC_TIMEOUT_MS = 30_000
_REQUEST_TIMEOUT_S = 2.0
_POLL_S = 0.02
# Between choosing a free port and the broker's binding it, another process may take it.
_START_ATTEMPTS = 3
# Below the range from which systems take the ports of outgoing connections: a client that tries to
# reach a killed broker there could otherwise connect to itself and so occupy the port.
_PORTS = range(20_000, 32_000)
_PORT_ATTEMPTS = 100

_LOG = logging.getLogger("millstream.embedded")


class EmbeddedKafka:
    """A single Apache Kafka broker for development and tests, on the loopback interface by default.

    A context manager. `kill()` followed by `start()` is a crash and a restart: same port, same
    data. `stop()` removes the data. The broker does not outlive this process, whatever ends it.

    Replication factors are 1, topics are not created automatically, records are kept whatever
    their timestamps, and groups form without the initial delay.

    Args:
        port: where clients connect; None chooses a free one at each start after a `stop()`.
        advertised_port: where clients are told to connect instead, by a proxy that passes them on
            to `port`, for example one that can cut their connections.
        properties: broker settings by Kafka's names, which win over the defaults chosen here.
        security_protocol: how clients have to speak to it: PLAINTEXT, SSL, SASL_PLAINTEXT or
            SASL_SSL. Where that needs a certificate, one is made; see `client_settings`.
        users: with SASL, who may log in: passwords by user name, for PLAIN and SCRAM.
        host: the address of this machine at which clients connect. With another one than the
            loopback interface's, other hosts reach the broker: without `security_protocol`,
            whoever can reach that address may read and write everything.

    Raises:
        ConfigError: an unknown protocol; users without SASL, or SASL without users.

    Example:
        >>> with EmbeddedKafka() as kafka:  # starts it, and stops it at the end
        ...     kafka.create_topic("clicks", partitions=4)
        ...     config = StreamsConfig(
        ...         application_id="shop", bootstrap_servers=kafka.bootstrap_servers
        ...     )
        ...     kafka.kill()  # a crash
        ...     _ = kafka.start()  # the topic is still there
        ...     kafka.is_running
        True
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        advertised_port: int | None = None,
        properties: Mapping[str, str | int | bool] | None = None,
        security_protocol: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        host: str = LOOPBACK,
    ) -> None:
        self._host = host
        self._wanted_port = port
        self._advertised_port = advertised_port
        self._properties = dict(properties or {})
        self._security = BrokerSecurity(security_protocol, dict(users or {}))
        self._home: BrokerHome | None = None
        self._broker: subprocess.Popen[bytes] | None = None
        self._owner_pid = 0
        self._lock = threading.RLock()

    @property
    def bootstrap_servers(self) -> str:
        """What clients put into `bootstrap.servers`.

        Raises:
            IllegalStateError: it is not started, so there is no address.
        """
        return f"{self._host}:{self._started_home.ports.told}"

    @property
    def unsecured_servers(self) -> str:
        """Where the broker can be reached without encryption and login, whatever its clients use.

        For tools that prepare a test or look at its results. Without `security_protocol` and
        `advertised_port` the same as `bootstrap_servers`.

        Raises:
            IllegalStateError: it is not started, so there is no address.
        """
        ports = self._started_home.ports
        return f"{ports.unsecured_host}:{ports.unsecured}"

    def client_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, Any]:
        """What clients have to be told of its security, for `StreamsConfig(clients=...)`.

        Args:
            user: who logs in; by default the first of `users`.
            mechanism: how: SCRAM-SHA-512 (the default), SCRAM-SHA-256, PLAIN, or OAUTHBEARER with
                tokens that are not signed.

        Raises:
            ConfigError: there is no such user.
            IllegalStateError: it is not started, so there is no certificate.

        Example:
            >>> with EmbeddedKafka(security_protocol="SASL_SSL", users={"ann": "pw"}) as kafka:
            ...     config = StreamsConfig(
            ...         application_id="shop",
            ...         bootstrap_servers=kafka.bootstrap_servers,
            ...         clients=kafka.client_settings("ann"),
            ...     )
            ...     sorted(kafka.client_settings("ann"))[:3]
            ['sasl.mechanism', 'sasl.password', 'sasl.username']
        """
        return self._security.client_settings(self._started_home.folder, user, mechanism)

    @property
    def is_running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._broker is not None and self._broker.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id of the broker; None while there is none."""
        broker = self._broker
        return broker.pid if broker is not None and broker.poll() is None else None

    def start(self) -> EmbeddedKafka:
        """Start the broker and wait until it answers; does nothing while it runs.

        The first start on a machine fetches the broker's jars (44 MB) into a cache.

        Raises:
            EmbeddedKafkaError: no suitable Java, the jars cannot be fetched, the port is taken, or
                the broker died or was not ready in time.
            ConfigError: `properties` contains what EmbeddedKafka sets itself.
        """
        with self._lock:
            if self.is_running:
                return self
            java = find_java()
            jars = mended(broker_jars(java))
            attempts = _START_ATTEMPTS if self._home is None and self._wanted_port is None else 1
            for attempt in range(1, attempts + 1):
                try:
                    self._start_once(java.path, jars)
                    break
                except _PortTakenError:
                    if attempt == attempts:
                        raise
            _LOG.info("Apache Kafka %s answers on %s", KAFKA_VERSION, self.bootstrap_servers)
            return self

    def stop(self) -> None:
        """End the broker in an orderly way and remove its data; does nothing when it is stopped."""
        with self._lock:
            broker = self._broker
            if broker is not None and broker.poll() is None:
                broker.send_signal(signal.SIGTERM)
                broker.send_signal(signal.SIGCONT)  # one that is suspended would never notice
                try:
                    broker.wait(_STOP_TIMEOUT_S)
                    self._started_home.ended_by_itself()
                except subprocess.TimeoutExpired:
                    _LOG.warning("The embedded broker did not end on SIGTERM and is killed")
            self._end_process()
            self._remove_home()

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL). Its data stay, and `start()` brings it back.

        Raises:
            IllegalStateError: it does not run.
        """
        with self._lock:
            if not self.is_running:
                raise IllegalStateError("EmbeddedKafka does not run, so it cannot be killed.")
            self._end_process()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Create a topic and wait until every partition has a leader.

        Args:
            name: the topic's name.
            partitions: how many partitions it has.
            config: topic settings by Kafka's names, for example `{"cleanup.policy": "compact"}`.

        Raises:
            EmbeddedKafkaError: the broker refused it, for example because it exists.
            IllegalStateError: the broker does not run.
        """
        if not self.is_running:
            raise IllegalStateError(f"EmbeddedKafka does not run: start it, then create {name!r}.")
        settings = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in (config or {}).items()
        }
        admin = _admin_client(self.unsecured_servers)
        topic = NewTopic(name, partitions, 1, config=settings)
        try:
            admin.create_topics([topic], request_timeout=_TOPIC_TIMEOUT_MS / 1000)[name].result()
        except KafkaException as error:
            raise EmbeddedKafkaError(
                f"The topic could not be created: {error.args[0].str()}", topic=name
            ) from error
        deadline = Deadline(SystemClock(), _TOPIC_TIMEOUT_MS)
        while not _has_leaders(admin, name, partitions):
            if deadline.passed or not self.is_running:
                raise EmbeddedKafkaError(
                    "The topic was created, but its partitions got no leaders in time.", topic=name
                )
            time.sleep(_POLL_S)

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._home else "no address"
        state = f"process {self.pid}" if self.is_running else "not running"
        return f"<EmbeddedKafka {where}, {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("EmbeddedKafka cannot be pickled: hand its bootstrap_servers on instead.")

    @property
    def _started_home(self) -> BrokerHome:
        if self._home is None:
            raise IllegalStateError("EmbeddedKafka has no address before start(): start it first.")
        return self._home

    def _start_once(self, java: Path, jars: Sequence[Path]) -> None:
        is_new = self._home is None
        home = self._home or self._new_home()
        try:
            for port in home.ports.all:
                _check_free(port, home.ports.host_of(port))
            if is_new and self._security.has_certificate:
                self._security.make_certificate(java, home.folder, self._host)
            self._broker = home.launch(java, jars)
            self._await_ready(home, self._broker)
            if is_new and self._security.has_users:
                admin = _admin_client(self.unsecured_servers)
                self._security.create_users(admin, _TOPIC_TIMEOUT_MS / 1000)
        except BaseException:
            # Also on Ctrl-C: a half-started broker is worth nothing.
            self._end_process()
            if is_new:
                self._remove_home()
            raise

    def _new_home(self) -> BrokerHome:
        port = _free_port(self._host) if self._wanted_port is None else self._wanted_port
        _check_free(port, self._host)
        controller_port = _free_port(but={port})
        is_own = self._security.is_secured or self._advertised_port is not None
        unsecured = _free_port(but={port, controller_port}) if is_own else port
        self._home = BrokerHome(
            ports=Ports(port, controller_port, unsecured, self._advertised_port, self._host),
            properties=self._properties,
            security=self._security,
        )
        self._owner_pid = os.getpid()
        atexit.register(self._stop_at_exit)
        return self._home

    def _await_ready(self, home: BrokerHome, broker: subprocess.Popen[bytes]) -> None:
        """Return once the broker describes its own cluster with itself in it."""
        deadline = Deadline(SystemClock(), _START_TIMEOUT_MS)
        while True:
            if broker.poll() is not None:
                raise _why_it_died(home, broker.returncode)
            if _is_listening(self._host, home.ports.clients) and _describes(
                self.unsecured_servers, home.cluster_id
            ):
                return
            if deadline.passed:
                raise EmbeddedKafkaError(
                    f"The broker was not ready after {_START_TIMEOUT_MS // 1000} s, perhaps for "
                    f"lack of CPU time. The end of its log:\n{home.last_words()}"
                )
            time.sleep(_POLL_S)

    def _end_process(self) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._broker.wait()
            self._broker = None

    def _remove_home(self) -> None:
        if self._home is not None:
            self._home.remove()
            self._home = None
            atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        # A forked child inherits the registration, but not the broker.
        if os.getpid() == self._owner_pid:
            self.stop()


class _PortTakenError(EmbeddedKafkaError):
    """Another process listens on a port that the broker was to have."""


def _why_it_died(home: BrokerHome, exit_code: int) -> EmbeddedKafkaError:
    words = home.last_words()
    if "Address already in use" in words:
        return _PortTakenError(
            f"One of the ports {', '.join(map(str, home.ports.all))} was taken by another process "
            "while the broker started: choose another port."
        )
    return EmbeddedKafkaError(
        f"The broker ended with exit code {exit_code} while it started; check `properties` against "
        f"the end of its log:\n{words}"
    )


def _free_port(host: str = LOOPBACK, but: Collection[int] = ()) -> int:
    for _ in range(_PORT_ATTEMPTS):
        port = random.choice(_PORTS)
        try:
            if port not in but:
                _check_free(port, host)
                return port
        except _PortTakenError:
            continue
    raise EmbeddedKafkaError(
        f"No free port was found between {_PORTS[0]} and {_PORTS[-1]}: hand one to EmbeddedKafka."
    )


def _check_free(port: int, host: str) -> None:
    with socket.socket() as probe:
        # As the broker does: connections of a former broker that linger are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if host != LOOPBACK and error.errno != errno.EADDRINUSE:
                raise EmbeddedKafkaError(
                    f"The broker cannot listen at {host} ({error.strerror}): `host` has to be an "
                    "address of this machine, or its name."
                ) from error
            raise _PortTakenError(
                f"Port {port} cannot be used ({error.strerror}): end the process that listens "
                "there, or choose another port."
            ) from error


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _describes(bootstrap_servers: str, cluster_id: str) -> bool:
    try:
        metadata = _admin_client(bootstrap_servers).list_topics(timeout=_REQUEST_TIMEOUT_S)
    except KafkaException:
        return False
    # A stranger that took the port in the last moment would answer, too.
    return metadata.cluster_id == cluster_id and bool(metadata.brokers)


def _has_leaders(admin: Any, topic: str, partitions: int) -> bool:
    try:
        known = admin.list_topics(topic, timeout=_REQUEST_TIMEOUT_S).topics[topic].partitions
    except KafkaException:
        return False
    return len(known) == partitions and all(
        partition.leader >= 0 and partition.error is None for partition in known.values()
    )


def _admin_client(bootstrap_servers: str) -> Any:
    # Silent, because refused connections are expected while a broker comes and goes.
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
