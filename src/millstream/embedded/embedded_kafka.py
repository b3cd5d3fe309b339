"""Clusters of real Apache Kafka brokers for development and tests."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from millstream.clock import Deadline, SystemClock
from millstream.durations import milliseconds
from millstream.embedded.broker_home import BrokerHome
from millstream.embedded.broker_patches import patched_jars
from millstream.embedded.broker_security import CERTIFICATE_FILES, BrokerSecurity
from millstream.embedded.broker_settings import FIRST_NODE_ID, LOOPBACK, Ports, kafka_uuid
from millstream.embedded.jars import KAFKA_VERSION, broker_jars
from millstream.embedded.java import find_java
from millstream.embedded.node import (
    POLL_S,
    REQUEST_TIMEOUT_S,
    EmbeddedBroker,
    PortTakenError,
    admin_client,
    check_free,
    free_port,
)
from millstream.errors import ConfigError, EmbeddedKafkaError, IllegalStateError

_TOPIC_TIMEOUT_MS = 30_000
#: After a long pause of a broker, its replicas are in sync again within a few seconds.
_IN_SYNC_TIMEOUT = timedelta(seconds=60)
# Another process may take a port between its selection and the broker's start.
_START_ATTEMPTS = 3
#: More brokers need more memory than development machines have.
_MAX_BROKERS = 9

_LOG = logging.getLogger("millstream.embedded")


class EmbeddedKafka:
    """Apache Kafka for development and tests: one or more brokers on this machine.

    A context manager. `kill()` followed by `start()` simulates a crash and a restart, with the same
    ports and data. `stop()` removes the data. The brokers never outlive this process.

    Topics are not created automatically, records are kept regardless of their timestamps, and
    groups form without the initial delay. With one broker, replication factors are 1; with three or
    more brokers, they are 3 and `min.insync.replicas` is 2, so one broker may fail.

    Args:
        port: the port for clients. None selects a free port at the first start and after each
            `stop()`. With several brokers, a sequence with one port for each.
        advertised_port: the port that is advertised to clients instead, for a proxy in front of
            `port`, for example a proxy that can cut connections. With several brokers, a sequence.
        properties: broker settings by Kafka's names, which override the defaults.
        security_protocol: the protocol of the clients' listener: PLAINTEXT, SSL, SASL_PLAINTEXT or
            SASL_SSL. A certificate is generated if needed; see `client_settings`.
        users: passwords by user name, for SASL.
        host: the address of this machine for clients. If it is not a loopback address, other hosts
            can reach the brokers. Without `security_protocol`, anyone who can reach that address
            can read and write everything.
        brokers: the number of brokers, 1 to 9.

    Raises:
        ConfigError: the protocol is unknown; `users` are passed without SASL, or missing with SASL;
            the number of brokers is out of range or differs from the number of ports.

    Example:
        >>> with EmbeddedKafka() as kafka:  # starts the broker, and stops it at the end
        ...     kafka.create_topic("clicks", partitions=4)
        ...     config = StreamsConfig(
        ...         application_id="shop", bootstrap_servers=kafka.bootstrap_servers
        ...     )
        ...     kafka.kill()  # a crash
        ...     _ = kafka.start()  # the topic still exists
        ...     kafka.is_running
        True
    """

    def __init__(
        self,
        *,
        port: int | Sequence[int] | None = None,
        advertised_port: int | Sequence[int] | None = None,
        properties: Mapping[str, str | int | bool] | None = None,
        security_protocol: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        host: str = LOOPBACK,
        brokers: int = 1,
    ) -> None:
        if not 1 <= brokers <= _MAX_BROKERS:
            raise ConfigError(f"brokers is {brokers}, but must be from 1 to {_MAX_BROKERS}.")
        self._host = host
        self._count = brokers
        self._wanted_ports = _ports_per_broker("port", port, brokers)
        self._advertised_ports = _ports_per_broker("advertised_port", advertised_port, brokers)
        self._properties = dict(properties or {})
        self._security = BrokerSecurity(security_protocol, dict(users or {}))
        self._brokers: tuple[EmbeddedBroker, ...] = ()
        self._owner_pid = 0
        self._lock = threading.RLock()

    @property
    def brokers(self) -> tuple[EmbeddedBroker, ...]:
        """The brokers, to kill, pause, stop and start individually.

        Empty before `start()`.

        Example:
            >>> with EmbeddedKafka(brokers=3) as kafka:
            ...     kafka.create_topic("clicks")
            ...     kafka.brokers[0].kill()  # the other two serve its partitions
            ...     kafka.brokers[0].start()
            ...     kafka.wait_in_sync()
            ...     [broker.node_id for broker in kafka.brokers if broker.is_running]
            [1, 2, 3]
        """
        return self._brokers

    @property
    def bootstrap_servers(self) -> str:
        """The value for `bootstrap.servers` of clients.

        Raises:
            IllegalStateError: the cluster is not started, so there is no address.
        """
        return ",".join(broker.address for broker in self._started_brokers)

    @property
    def unsecured_servers(self) -> str:
        """Addresses without encryption and login, independent of the clients' listener.

        For tools that prepare a test or inspect its results. Without `security_protocol` and
        `advertised_port`, these are the `bootstrap_servers`.

        Raises:
            IllegalStateError: the cluster is not started, so there is no address.
        """
        return ",".join(broker.unsecured_address for broker in self._started_brokers)

    def client_settings(
        self, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, Any]:
        """Return the security settings of clients, for `StreamsConfig(clients=...)`.

        Args:
            user: the user of the login; by default the first of `users`.
            mechanism: SCRAM-SHA-512 (the default), SCRAM-SHA-256, PLAIN, or OAUTHBEARER with
                unsigned tokens.

        Raises:
            ConfigError: there is no such user.
            IllegalStateError: the cluster is not started, so there is no certificate.

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
        return self._security.client_settings(self._started_brokers[0].folder, user, mechanism)

    @property
    def is_running(self) -> bool:
        """Whether the processes of all brokers are alive."""
        return bool(self._brokers) and all(broker.is_running for broker in self._brokers)

    @property
    def pid(self) -> int | None:
        """The process id of the first broker; None while it is not running."""
        return self._brokers[0].pid if self._brokers else None

    def start(self) -> EmbeddedKafka:
        """Start all stopped brokers and wait until they respond.

        The first start on a machine downloads the broker's jars (44 MB) to a cache.

        Raises:
            EmbeddedKafkaError: there is no suitable Java, the jars cannot be downloaded, a port is
                in use, or a broker ended or was not ready in time.
            ConfigError: `properties` contains settings that EmbeddedKafka sets itself.
        """
        with self._lock:
            if self.is_running:
                return self
            auto_ports = not self._brokers and self._wanted_ports is None
            attempts = _START_ATTEMPTS if auto_ports else 1
            for attempt in range(1, attempts + 1):
                try:
                    self._start_once()
                    break
                except PortTakenError:
                    if attempt == attempts:
                        raise
            _LOG.info("Apache Kafka %s is ready on %s", KAFKA_VERSION, self.bootstrap_servers)
            return self

    def stop(self) -> None:
        """Shut down all brokers and remove their data. Can be called several times."""
        with self._lock:
            # Only a single broker is shut down cleanly: the last of several brokers would wait for
            # a majority.
            if self._count == 1:
                for broker in self._brokers:
                    broker.stop()
            self._remove()

    def kill(self) -> None:
        """Kill all brokers as in a crash (SIGKILL). Keeps the data for `start()`.

        Raises:
            IllegalStateError: no broker is running.
        """
        with self._lock:
            if not any(broker.is_running for broker in self._brokers):
                raise IllegalStateError("EmbeddedKafka is not running, so it cannot be killed.")
            for broker in self._brokers:
                broker.end()

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str | int | bool] | None = None
    ) -> None:
        """Create a topic and wait until every partition has a leader.

        Args:
            config: topic settings by Kafka's names, for example `{"cleanup.policy": "compact"}`.

        Raises:
            EmbeddedKafkaError: the broker rejected the topic, for example because it already
                exists.
            IllegalStateError: no broker is running.
        """
        if not self._is_any_running:
            raise IllegalStateError(
                f"EmbeddedKafka is not running: start it before creating {name!r}."
            )
        settings = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in (config or {}).items()
        }
        admin = admin_client(self.unsecured_servers)
        topic = NewTopic(name, partitions, config=settings)
        try:
            admin.create_topics([topic], request_timeout=_TOPIC_TIMEOUT_MS / 1000)[name].result()
        except KafkaException as error:
            raise EmbeddedKafkaError(
                f"The topic could not be created: {error.args[0].str()}", topic=name
            ) from error
        deadline = Deadline(SystemClock(), _TOPIC_TIMEOUT_MS)
        while not _has_leaders(admin, name, partitions):
            if deadline.passed or not self._is_any_running:
                raise EmbeddedKafkaError(
                    "The topic was created, but its partitions had no leaders in time.", topic=name
                )
            time.sleep(POLL_S)

    def wait_in_sync(self, timeout: timedelta = _IN_SYNC_TIMEOUT) -> None:
        """Wait until all replicas are in sync, for example in a rolling restart.

        Raises:
            EmbeddedKafkaError: not all replicas were in sync in time.
            IllegalStateError: the cluster is not started.
        """
        admin = admin_client(self.unsecured_servers)
        deadline = Deadline(SystemClock(), milliseconds("wait_in_sync", "timeout", timeout))
        while (lagging := _out_of_sync(admin)) is None or lagging:
            if deadline.passed:
                raise EmbeddedKafkaError(
                    f"Not all replicas were in sync after {timeout.total_seconds():.0f} s: "
                    f"{'no broker responded' if lagging is None else ', '.join(lagging[:10])}."
                )
            time.sleep(POLL_S)

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
        where = self.bootstrap_servers if self._brokers else "no address"
        pids = ", ".join(str(broker.pid) for broker in self._brokers if broker.is_running)
        state = f"process {pids}" if pids else "not running"
        return f"<EmbeddedKafka {where}, {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("EmbeddedKafka cannot be pickled: pass its bootstrap_servers instead.")

    @property
    def _is_any_running(self) -> bool:
        return any(broker.is_running for broker in self._brokers)

    @property
    def _started_brokers(self) -> tuple[EmbeddedBroker, ...]:
        if not self._brokers:
            raise IllegalStateError("EmbeddedKafka has no address before start(). Start it first.")
        return self._brokers

    def _program(self) -> tuple[Path, Sequence[Path]]:
        java = find_java()
        return java.path, patched_jars(broker_jars(java))

    def _start_once(self) -> None:
        java, _ = self._program()
        is_new = not self._brokers
        if is_new:
            self._make_brokers()
        starting = [broker for broker in self._brokers if not broker.is_running]
        try:
            if is_new and self._security.has_certificate:
                self._share_certificate(java)
            for broker in starting:
                broker.launch()
            for broker in starting:
                broker.await_ready()
            if is_new and self._security.has_users:
                admin = admin_client(self.unsecured_servers)
                self._security.create_users(admin, _TOPIC_TIMEOUT_MS / 1000)
        except BaseException:
            # Also on Ctrl-C, because a partially started cluster is useless.
            for broker in starting:
                broker.end()
            if is_new:
                self._remove()
            raise

    def _make_brokers(self) -> None:
        ports = self._choose_ports()
        controllers = {node: each.controller for node, each in enumerate(ports, FIRST_NODE_ID)}
        cluster_id = kafka_uuid()
        made: list[EmbeddedBroker] = []
        try:
            for node_id, each in enumerate(ports, FIRST_NODE_ID):
                home = BrokerHome(
                    ports=each,
                    properties=self._properties,
                    security=self._security,
                    cluster_id=cluster_id,
                    node_id=node_id,
                    controllers=controllers,
                )
                made.append(EmbeddedBroker(node_id, home, cluster_id, self._program, self._lock))
        except BaseException:
            for broker in made:
                broker.remove()
            raise
        self._brokers = tuple(made)
        self._owner_pid = os.getpid()
        atexit.register(self._stop_at_exit)

    def _choose_ports(self) -> list[Ports]:
        used_ports: set[int] = set(self._wanted_ports or ())
        chosen: list[Ports] = []

        def free(host: str = LOOPBACK) -> int:
            port = free_port(host, used_ports)
            used_ports.add(port)
            return port

        for index in range(self._count):
            if self._wanted_ports is None:
                port = free(self._host)
            else:
                port = self._wanted_ports[index]
                check_free(port, self._host)
            advertised = None if self._advertised_ports is None else self._advertised_ports[index]
            controller = free()
            is_own = self._security.is_secured or advertised is not None
            unsecured = free() if is_own else port
            chosen.append(Ports(port, controller, unsecured, advertised, self._host))
        return chosen

    def _share_certificate(self, java: Path) -> None:
        """Create one certificate for all brokers, because they have the same host name."""
        first, *others = (broker.folder for broker in self._brokers)
        self._security.make_certificate(java, first, self._host)
        for folder in others:
            for name in CERTIFICATE_FILES:
                shutil.copy(first / name, folder)

    def _remove(self) -> None:
        for broker in self._brokers:
            broker.end()
            broker.remove()
        if self._brokers:
            self._brokers = ()
            atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        # A forked child inherits the registration, but does not own the brokers.
        if os.getpid() == self._owner_pid:
            self.stop()


def _ports_per_broker(
    name: str, given: int | Sequence[int] | None, brokers: int
) -> list[int] | None:
    if given is None:
        return None
    ports = [given] if isinstance(given, int) else list(given)
    if len(ports) != brokers:
        raise ConfigError(
            f"{name} has {len(ports)} ports, but there are {brokers} brokers: pass one port for "
            "each broker."
        )
    return ports


def _has_leaders(admin: Any, topic: str, partitions: int) -> bool:
    try:
        known = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].partitions
    except KafkaException:
        return False
    return len(known) == partitions and all(
        partition.leader >= 0 and partition.error is None for partition in known.values()
    )


def _out_of_sync(admin: Any) -> list[str] | None:
    """Return the partitions with replicas out of sync; None if no broker responds."""
    try:
        topics = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    except KafkaException:
        return None
    return [
        f"{topic}-{number}"
        for topic, metadata in topics.items()
        for number, partition in metadata.partitions.items()
        if partition.leader < 0 or len(partition.isrs) < len(partition.replicas)
    ]
