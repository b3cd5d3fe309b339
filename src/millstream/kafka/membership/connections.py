"""The member's connections to the brokers, with timeouts for opening and closing.

kafka-python's consumer is not used: a member fetches no records, but a consumer would fetch
committed offsets and list offsets for each assigned partition.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import KafkaConsumer
from kafka import errors as client_errors

from millstream.clock import Clock, Deadline, SystemClock
from millstream.config.fields import did_you_mean
from millstream.errors import BrokerUnavailableError, ConfigError
from millstream.kafka.cluster.listener_probe import ProtocolProbe, protocol_hint
from millstream.kafka.cluster.retries import LogInterval
from millstream.kafka.kafka_python import ClientConnections, ClientFuture
from millstream.kafka.membership.member_errors import is_login_error, membership_error
from millstream.kafka.settings.tokens import KafkaPythonTokens
from millstream.kafka.user_permissions import user_of

log = logging.getLogger("millstream.kafka.membership.group_member")

#: The default timeout of the first connection to a broker. Later outages have no timeout.
BOOTSTRAP_TIMEOUT_MS: Final = 15_000
#: The time without a broker before the first warning.
_FIRST_WARNING_MS: Final = 1_000
_POLL_S: Final = 0.2
_SLICE_MS: Final = 1_000
#: The interval of checks for a mismatch of the security protocol.
_PROBE_INTERVAL_MS: Final = 5_000

_DEFAULTS: Final[Mapping[str, Any]] = {
    "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
    # kafka-python's default of 30 s may be longer than the session timeout: a member would not
    # reconnect in time after an outage. Java's default is 1 s.
    "reconnect_backoff_max_ms": 1_000,
}


class MemberConnections(ClientConnections):
    def value_of(self, future: ClientFuture, timeout_ms: int) -> Any:
        """Wait for a call on the event loop, and return its result.

        A KafkaTimeoutError does not cancel the call.
        """
        done = threading.Event()
        future.add_both(lambda _: done.set())
        deadline = Deadline(SystemClock(), timeout_ms)
        # Wait in slices, because an event loop that has crashed resolves no futures.
        while not done.wait(deadline.remaining_ms(_SLICE_MS) / 1000):
            if deadline.passed or not self.alive:
                raise client_errors.KafkaTimeoutError(f"No response within {timeout_ms} ms")
        if future.exception is not None:
            raise future.exception
        return future.value


def open_connections(
    settings: Mapping[str, Any],
    *,
    group_id: str,
    client_id: str,
    stopped: Callable[[], bool],
    clock: Clock | None = None,
) -> MemberConnections:
    """Connect to the cluster.

    Waits for unavailable brokers up to `bootstrap_timeout_ms`, with warnings after 1, 2, 4, …
    seconds. Permanent errors are raised within a few seconds. `stopped` is polled periodically
    and aborts the attempt by returning True.

    Raises:
        BrokerUnavailableError: no bootstrap server responded in time, or the servers use another
            security protocol.
        AccessDeniedError: the login failed, no token is available, or the certificate is not
            trusted.
        ConfigError: a setting is unknown or invalid, or the installed kafka-python is not
            supported.
    """
    config = _complete(settings, group_id, client_id)
    _quiet_client_loggers()
    tokens = config["sasl_oauth_token_provider"]
    if isinstance(tokens, KafkaPythonTokens):
        # kafka-python would retry forever and report the reason only in its log.
        tokens.supply.token()
    try:
        connections = MemberConnections(config)
    except (client_errors.KafkaError, ValueError, TypeError) as error:
        raise membership_error(
            error, group_id=group_id, instance_id=config["group_instance_id"], user=user_of(config)
        ) from error
    connections.start()
    try:
        _Bootstrap(connections, stopped, clock or SystemClock()).run()
    except BaseException:
        connections.close(1_000)
        raise
    connections.config["api_version"] = connections.broker_version
    return connections


class _Bootstrap:
    """The first connection to a broker, retried until success or a permanent error."""

    def __init__(
        self, connections: MemberConnections, stopped: Callable[[], bool], clock: Clock
    ) -> None:
        self._connections = connections
        self._stopped = stopped
        self._clock = clock
        self._timeout_ms: int = connections.config["bootstrap_timeout_ms"]
        servers = connections.config["bootstrap_servers"]
        self._servers = servers.split(",") if isinstance(servers, str) else list(servers)
        #: The error of the latest attempt, which kafka-python only logs.
        self._last_error: BaseException | None = None
        #: An error for which retries do not help.
        self._permanent_error: BaseException | None = None
        self._end_reports = connections.on_connection_error(self._note)
        self._began_ms = clock.monotonic_ms()
        self._warnings = LogInterval(clock, first_ms=_FIRST_WARNING_MS)
        self._probe = ProtocolProbe(
            self._servers,
            connections.config["security_protocol"],
            stopped,
            clock,
            _PROBE_INTERVAL_MS,
        )

    def run(self) -> None:
        done = threading.Event()
        future = self._connections.bootstrap()
        future.add_both(lambda _: done.set())
        deadline = Deadline(self._clock, self._timeout_ms)
        while not done.wait(_POLL_S):
            if (
                deadline.passed
                or self._permanent_error
                or self._stopped()
                or not self._connections.alive
                # A broker that has sent metadata uses this protocol, even if it is not ready.
                or self._probe.is_mismatch_confirmed(lambda: self._connections.has_metadata)
            ):
                break
            self._log_wait()
        self._end_reports()
        if future.is_done and future.exception is None:
            return
        error = self._permanent_error or future.exception
        if error is None:
            raise self._unreachable()
        config = self._connections.config
        raise membership_error(
            error,
            group_id=config["group_id"],
            instance_id=config["group_instance_id"],
            user=user_of(config),
        ) from error

    def _log_wait(self) -> None:
        if self._warnings.is_due:
            log.warning(
                "%s: waiting for a broker at %s (%d s of at most %d s)%s",
                self._connections.config["client_id"],
                ", ".join(self._servers),
                (self._clock.monotonic_ms() - self._began_ms) // 1000,
                self._timeout_ms // 1000,
                f": {self._last_error}" if self._last_error else "",
            )

    def _note(self, error: BaseException) -> None:
        self._last_error = error
        if is_login_error(error):
            self._permanent_error = error

    def _unreachable(self) -> BrokerUnavailableError:
        last = self._last_error
        waited_ms = self._clock.monotonic_ms() - self._began_ms
        hint = ""
        if not self._stopped():
            hint = protocol_hint(self._servers, self._connections.config["security_protocol"])
        return BrokerUnavailableError(
            f"No Kafka broker responded at {', '.join(self._servers)} within "
            f"{waited_ms / 1000:.1f} s."
            + (f" The latest error was: {last}." if last else "")
            + " Check bootstrap.servers, that the brokers are running and reachable from this "
            "host, and that security.protocol matches theirs." + hint
        )


def _complete(settings: Mapping[str, Any], group_id: str, client_id: str) -> dict[str, Any]:
    defaults = KafkaConsumer.DEFAULT_CONFIG
    for name in settings:
        if name not in defaults:
            hint = did_you_mean(name, defaults)
            raise ConfigError(f"kafka-python has no consumer setting {name!r}.{hint}")
    return {
        **defaults,
        **_DEFAULTS,
        **settings,
        "group_id": group_id,
        "client_id": client_id,
        "enable_auto_commit": False,
        "metrics": None,
        # Disabled: the warning is for code that blocks the event loop. Here the loop is also late
        # whenever the processing thread holds the interpreter lock.
        "slow_task_threshold_secs": 0,
    }


def _quiet_client_loggers() -> None:
    """Silence kafka-python's log, unless the user configured its level.

    kafka-python logs each request at INFO, and each failed connection attempt several times at
    ERROR, which floods the log in an outage. The member itself reports outages, at intervals.
    """
    if logging.getLogger("kafka").level != logging.NOTSET:
        return
    logging.getLogger("kafka").setLevel(logging.WARNING)
    for name in ("kafka.net.connection", "kafka.net.manager", "kafka.net.transport"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
