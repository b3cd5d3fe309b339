"""The member's connections to the brokers: opened with a bound, closed with a bound.

kafka-python's consumer is left out: a member fetches no records, and a consumer would fetch
committed offsets and list offsets for each partition it is given.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka import KafkaConsumer
from kafka import errors as client_errors

from millstream.clock import Clock, Deadline, SystemClock
from millstream.config_fields import did_you_mean
from millstream.errors import BrokerUnavailableError, ConfigError
from millstream.kafka.cluster.listener_probe import ProtocolProbe, protocol_hint
from millstream.kafka.cluster.log_interval import LogInterval
from millstream.kafka.kafka_python import ClientConnections, ClientFuture
from millstream.kafka.member.errors import is_login_error, membership_error
from millstream.kafka.rights import user_of
from millstream.kafka.settings.tokens import KafkaPythonTokens

log = logging.getLogger("millstream.kafka.member.group_member")

#: How long the first contact with a broker may take where nothing else is said. Later outages are
#: waited out.
BOOTSTRAP_TIMEOUT_MS: Final = 15_000
#: After how long without a broker the first warning comes.
_FIRST_WARNING_MS: Final = 1_000
_LOOK_S: Final = 0.2
_SLICE_MS: Final = 1_000
#: How often to look whether brokers are there that this client cannot speak to.
_PROBE_INTERVAL_MS: Final = 5_000

_DEFAULTS: Final[Mapping[str, Any]] = {
    "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
    # kafka-python's default of 30 s outlasts a session timeout: a member would not be back in time
    # after an outage. Java's default is 1 s.
    "reconnect_backoff_max_ms": 1_000,
}


class MemberLink(ClientConnections):
    """The connections of one group member to its cluster."""

    def value_of(self, future: ClientFuture, timeout_ms: int) -> Any:
        """Wait for what a call on the event loop comes to.

        Raises:
            KafkaTimeoutError: it took longer than `timeout_ms`; it is not stopped by that.
            KafkaError: what it raised.
        """
        done = threading.Event()
        future.add_both(lambda _: done.set())
        deadline = Deadline(SystemClock(), timeout_ms)
        # In slices: an event loop that died resolves nothing any more.
        while not done.wait(deadline.remaining_ms(_SLICE_MS) / 1000):
            if deadline.passed or not self.alive:
                raise client_errors.KafkaTimeoutError(f"No answer within {timeout_ms} ms")
        if future.exception is not None:
            raise future.exception
        return future.value


def open_link(
    settings: Mapping[str, Any],
    *,
    group_id: str,
    client_id: str,
    stopped: Callable[[], bool],
    clock: Clock | None = None,
) -> MemberLink:
    """Connect to the cluster.

    Brokers that are away are waited for, `bootstrap_timeout_ms` at most, with warnings after 1, 2,
    4, … seconds. What no waiting helps against is told within a few seconds.

    Args:
        settings: kafka-python's consumer settings.
        group_id: the group that is going to be joined.
        client_id: how the client is called in broker logs and in thread names.
        stopped: asked now and then; true ends the attempt.
        clock: where the time is read.

    Raises:
        BrokerUnavailableError: no bootstrap server answered in time, or those that are there want
            another security protocol.
        AccessDeniedError: the login failed, there is no token for it, or the certificate is not
            trusted.
        ConfigError: a setting is unknown or refused, or the installed kafka-python cannot be used.
    """
    config = _complete(settings, group_id, client_id)
    _quiet_client_loggers()
    tokens = config["sasl_oauth_token_provider"]
    if isinstance(tokens, KafkaPythonTokens):
        # kafka-python would try again and again, and only its log would say why.
        tokens.supply.token()
    try:
        link = MemberLink(config)
    except (client_errors.KafkaError, ValueError, TypeError) as error:
        raise membership_error(
            error, group_id=group_id, instance_id=config["group_instance_id"], user=user_of(config)
        ) from error
    link.start()
    try:
        _Bootstrap(link, stopped, clock or SystemClock()).run()
    except BaseException:
        link.close(1_000)
        raise
    link.config["api_version"] = link.broker_version
    return link


class _Bootstrap:
    """The first contact with a broker: attempts until one succeeds, or none will."""

    def __init__(self, link: MemberLink, stopped: Callable[[], bool], clock: Clock) -> None:
        self._link = link
        self._stopped = stopped
        self._clock = clock
        self._timeout_ms: int = link.config["bootstrap_timeout_ms"]
        servers = link.config["bootstrap_servers"]
        self._servers = servers.split(",") if isinstance(servers, str) else list(servers)
        self._attempts = _Attempts(link)
        self._began_ms = clock.monotonic_ms()
        self._warnings = LogInterval(clock, first_ms=_FIRST_WARNING_MS)
        self._probe = ProtocolProbe(
            self._servers, link.config["security_protocol"], stopped, clock, _PROBE_INTERVAL_MS
        )

    def run(self) -> None:
        """Wait for a broker. Raises as `open_link`."""
        done = threading.Event()
        future = self._link.bootstrap()
        future.add_both(lambda _: done.set())
        deadline = Deadline(self._clock, self._timeout_ms)
        while not done.wait(_LOOK_S):
            if (
                deadline.passed
                or self._attempts.refused
                or self._stopped()
                or not self._link.alive
                or self._is_in_vain()
            ):
                break
            self._say_what_is_waited_for()
        self._attempts.end()
        if future.is_done and future.exception is None:
            return
        error = self._attempts.refused or future.exception
        if error is None:
            raise self._unreachable()
        config = self._link.config
        raise membership_error(
            error,
            group_id=config["group_id"],
            instance_id=config["group_instance_id"],
            user=user_of(config),
        ) from error

    def _say_what_is_waited_for(self) -> None:
        if self._warnings.is_due:
            log.warning(
                "%s: waits for a broker at %s, for %d s already, %d s at most%s",
                self._link.config["client_id"],
                ", ".join(self._servers),
                (self._clock.monotonic_ms() - self._began_ms) // 1000,
                self._timeout_ms // 1000,
                f": {self._attempts.last}" if self._attempts.last else "",
            )

    def _is_in_vain(self) -> bool:
        """Whether brokers are there that want another security protocol."""
        # A broker that has told of itself is spoken to in the right way, if it is not ready yet.
        return self._probe.is_certain(lambda: self._link.has_met_brokers)

    def _unreachable(self) -> BrokerUnavailableError:
        last = self._attempts.last
        waited_ms = self._clock.monotonic_ms() - self._began_ms
        hint = ""
        if not self._stopped():
            hint = protocol_hint(self._servers, self._link.config["security_protocol"])
        return BrokerUnavailableError(
            f"No Kafka broker answered at {', '.join(self._servers)} within "
            f"{waited_ms / 1000:.1f} s."
            + (f" The last attempt ended with: {last}." if last else "")
            + " Check bootstrap.servers, that the brokers run and can be reached from this host, "
            "and that security.protocol is theirs." + hint
        )


class _Attempts:
    """How the attempts to connect end, which kafka-python tells its log only, and tries again."""

    def __init__(self, link: MemberLink) -> None:
        #: The last failure.
        self.last: BaseException | None = None
        #: One that trying again will not help.
        self.refused: BaseException | None = None
        #: Leaves the connections that follow alone.
        self.end = link.note_failures(self._note)

    def _note(self, error: BaseException) -> None:
        self.last = error
        if is_login_error(error):
            self.refused = error


def _complete(settings: Mapping[str, Any], group_id: str, client_id: str) -> dict[str, Any]:
    known = KafkaConsumer.DEFAULT_CONFIG
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(f"kafka-python knows no consumer setting {name!r}.{hint}")
    return {
        **known,
        **_DEFAULTS,
        **settings,
        "group_id": group_id,
        "client_id": client_id,
        "enable_auto_commit": False,
        "metrics": None,
        # Its warning is meant for code that blocks the event loop. Here the loop is late whenever
        # the processing thread holds the interpreter lock, which is no fault of anybody's.
        "slow_task_threshold_secs": 0,
    }


def _quiet_client_loggers() -> None:
    """Keep kafka-python's view of each request out of the log, unless somebody asked for it.

    It tells each request's fate at INFO, and each failed attempt to connect several times at ERROR,
    which fills pages in an outage. Of outages the member tells itself, now and then.
    """
    if logging.getLogger("kafka").level != logging.NOTSET:
        return
    logging.getLogger("kafka").setLevel(logging.WARNING)
    for name in ("kafka.net.connection", "kafka.net.manager", "kafka.net.transport"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
