"""One broker of an embedded cluster: its ports, its process and its readiness."""

from __future__ import annotations

import errno
import logging
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millstream.clock import Deadline, SystemClock
from millstream.embedded.broker_home import BrokerHome
from millstream.embedded.broker_settings import LOOPBACK
from millstream.errors import EmbeddedKafkaError, IllegalStateError

_START_TIMEOUT_MS = 90_000
_STOP_TIMEOUT_S = 15
#: Timeout of one request of `EmbeddedKafka` to its brokers.
REQUEST_TIMEOUT_S = 2.0
#: The interval of checks while `EmbeddedKafka` waits for its brokers.
POLL_S = 0.02
# The ports to choose from, below the range for outgoing connections. Otherwise, a client that tries
# to reach a killed broker could connect to itself and thereby occupy the port.
_PORTS = range(20_000, 32_000)
_PORT_ATTEMPTS = 100

_LOG = logging.getLogger("millstream.embedded")

#: Returns the `java` program and the class path of the broker.
Program = Callable[[], tuple[Path, Sequence[Path]]]


class EmbeddedBroker:
    """One broker of an `EmbeddedKafka`, for tests of failures.

    See `EmbeddedKafka.brokers`.
    """

    def __init__(
        self, node_id: int, home: BrokerHome, cluster_id: str, program: Program, lock: RLock
    ) -> None:
        self.node_id = node_id
        self._home = home
        self._cluster_id = cluster_id
        self._program = program
        #: The lock of the cluster, held while brokers start and end.
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The host and port for the clients."""
        return f"{self._home.ports.host}:{self._home.ports.effective_advertised}"

    @property
    def unsecured_address(self) -> str:
        """The host and port without encryption and login.

        See `EmbeddedKafka.unsecured_servers`.
        """
        return f"{self._home.ports.unsecured_host}:{self._home.ports.unsecured}"

    @property
    def folder(self) -> Path:
        """The folder of the settings, the log output and the data."""
        return self._home.folder

    @property
    def is_running(self) -> bool:
        """Whether the process of the broker is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id; None while the broker is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the broker with its data and wait for a response, unless it is running.

        Raises:
            EmbeddedKafkaError: a port is in use, or the broker ended or was not ready in time, for
                example because the majority of the controllers is down.
        """
        with self._lock:
            if not self.is_running:
                try:
                    self.launch()
                    self.await_ready()
                except BaseException:
                    self.end()
                    raise

    def stop(self) -> None:
        """Shut down the broker cleanly (SIGTERM), which moves its leaderships.

        Keeps its data.
        """
        with self._lock:
            process = self._process
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # a paused process does not handle signals
                try:
                    process.wait(_STOP_TIMEOUT_S)
                    self._home.keep_class_archive()
                except subprocess.TimeoutExpired:
                    _LOG.warning(
                        "broker %d did not end within %d s of SIGTERM and is killed",
                        self.node_id,
                        _STOP_TIMEOUT_S,
                    )
            self.end()

    def kill(self) -> None:
        """Kill the broker as in a crash (SIGKILL). Keeps its data.

        Raises:
            IllegalStateError: the broker is not running.
        """
        with self._lock:
            self._signal(signal.SIGKILL, "killed")
            self.end()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): its connections stay open without responses.

        Raises:
            IllegalStateError: the broker is not running.
        """
        self._signal(signal.SIGSTOP, "paused")

    def resume(self) -> None:
        """Continue the paused process.

        Raises:
            IllegalStateError: the broker is not running.
        """
        self._signal(signal.SIGCONT, "resumed")

    def __repr__(self) -> str:
        state = f"process {self.pid}" if self.is_running else "not running"
        return f"<EmbeddedBroker {self.node_id} {self.address}, {state}>"

    def launch(self) -> None:
        """Start the process, without waiting until it responds."""
        for port in self._home.ports.all:
            check_free(port, self._home.ports.host_of(port))
        self._process = self._home.launch(*self._program())

    def await_ready(self) -> None:
        """Wait until the broker's metadata of its cluster includes the broker itself."""
        deadline = Deadline(SystemClock(), _START_TIMEOUT_MS)
        ports = self._home.ports
        while True:
            assert self._process is not None
            if (exit_code := self._process.poll()) is not None:
                raise self._exit_error(exit_code)
            if _is_listening(ports.host, ports.clients) and self._describes_itself():
                return
            if deadline.passed:
                raise EmbeddedKafkaError(
                    f"Broker {self.node_id} was not ready after {_START_TIMEOUT_MS // 1000} s, "
                    "perhaps for lack of CPU time or because the majority of the brokers is "
                    f"down. The end of its log:\n{self._home.log_tail()}"
                )
            time.sleep(POLL_S)

    def end(self) -> None:
        """Kill the process, if any."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Delete the folder that contains the data."""
        self._home.remove()

    def _signal(self, number: signal.Signals, done: str) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            raise IllegalStateError(
                f"Broker {self.node_id} of EmbeddedKafka is not running, so it cannot be {done}."
            )
        process.send_signal(number)

    def _describes_itself(self) -> bool:
        try:
            metadata = admin_client(self.unsecured_address).list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException:
            return False
        # Another process that took the port meanwhile would describe another cluster.
        return metadata.cluster_id == self._cluster_id and self.node_id in metadata.brokers

    def _exit_error(self, exit_code: int) -> EmbeddedKafkaError:
        words = self._home.log_tail()
        if "Address already in use" in words:
            return PortTakenError(
                f"One of the ports {', '.join(map(str, self._home.ports.all))} was taken by "
                "another process while the broker started: choose another port."
            )
        return EmbeddedKafkaError(
            f"Broker {self.node_id} ended with exit code {exit_code} during its start. Check "
            f"`properties` against the end of its log:\n{words}"
        )


class PortTakenError(EmbeddedKafkaError):
    """Another process listens on a port of a broker."""


def free_port(host: str = LOOPBACK, exclude: Collection[int] = ()) -> int:
    """Return a port that is free at the address `host`, or raise EmbeddedKafkaError."""
    for _ in range(_PORT_ATTEMPTS):
        port = random.choice(_PORTS)
        try:
            if port not in exclude:
                check_free(port, host)
                return port
        except PortTakenError:
            continue
    raise EmbeddedKafkaError(
        f"No free port was found between {_PORTS[0]} and {_PORTS[-1]}: pass a port to "
        "EmbeddedKafka."
    )


def check_free(port: int, host: str) -> None:
    """Check that a broker can listen on a port.

    Raises:
        PortTakenError: another process listens there.
        EmbeddedKafkaError: the host is not an address of this machine.
    """
    with socket.socket() as probe:
        # Like the broker, ignore lingering connections of a previous broker.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if host != LOOPBACK and error.errno != errno.EADDRINUSE:
                raise EmbeddedKafkaError(
                    f"The broker cannot listen on {host} ({error.strerror}): `host` must be an "
                    "address or the name of this machine."
                ) from error
            raise PortTakenError(
                f"Port {port} cannot be used ({error.strerror}): end the process that listens "
                "there, or choose another port."
            ) from error


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def admin_client(bootstrap_servers: str) -> Any:
    """Create an admin client for the requests of `EmbeddedKafka`."""
    # Log nothing, because refused connections are expected while brokers start and stop.
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
