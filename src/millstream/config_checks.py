"""What the settings of an application must be together: checks that one setting alone cannot
make."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from millstream.config_clients import (
    CLIENT_SETTINGS,
    DICTIONARIES_OF,
    Role,
    Scope,
    check_client_settings,
)
from millstream.config_fields import Setting, did_you_mean
from millstream.config_optimization import optimizations
from millstream.durations import iso_duration
from millstream.errors import ConfigError
from millstream.unawaited import deferred_advice, is_deferred, name_of

_log = logging.getLogger(__name__)

_APPLICATION_ID: Final = re.compile(r"[a-zA-Z0-9._-]+")
#: What Kafka's clients take before a broker's address.
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HOST_AND_PORT: Final = re.compile(r"\S+:\d{1,5}")
#: Kafka's longest topic name is 249; an internal topic still has to append a store's name.
_APPLICATION_ID_LENGTH_MAX: Final = 200
_RACK_TAGS_MAX: Final = 5
_OFFSET_RESETS: Final = ("earliest", "latest", "none")
_BY_DURATION: Final = "by_duration:"
_IN_FLIGHT_MAX: Final = 5
_TRANSACTION_TIMEOUT_MS: Final = 10_000


class ApplicationSettings(Protocol):
    """What is looked at of an application's settings; `StreamsConfig` has it.

    Handlers and the other dictionaries are looked up by their names.
    """

    @property
    def application_id(self) -> str: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def application_server(self) -> str: ...
    @property
    def topology_optimization(self) -> str: ...
    @property
    def rack_aware_assignment_tags(self) -> Sequence[str]: ...
    @property
    def exactly_once(self) -> bool: ...
    @property
    def commit_interval_ms(self) -> int: ...
    @property
    def given(self) -> Collection[str]: ...
    @property
    def producer(self) -> Mapping[str, Any]: ...
    @property
    def admin(self) -> Mapping[str, Any]: ...
    def settings(self) -> Iterable[Setting]: ...
    def client_settings(self, role: Role) -> Mapping[str, Any]: ...


def check_together(config: ApplicationSettings) -> None:
    """Check names, the clients' dictionaries, and what exactly-once asks for.

    Raises:
        ConfigError: something does not fit; the message names the settings.
    """
    _check_names(config)
    _check_handlers(config)
    _check_https(config)
    for dictionary in (
        "clients",
        "consumer",
        "main_consumer",
        "restore_consumer",
        "global_consumer",
    ):
        given = getattr(config, dictionary)
        check_client_settings(dictionary, given, _roles_of(dictionary))
        _offset_reset(dictionary, given)
    check_client_settings("producer", config.producer, ("producer",))
    check_client_settings("admin", config.admin, ("admin",))
    _check_network(config)
    if config.exactly_once:
        _check_exactly_once(config)


def transaction_timeout_ms(config: ApplicationSettings) -> int:
    """How long the broker waits for a transaction: 10 s unless set, follows Kafka Streams."""
    given = config.client_settings("producer").get(
        "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS
    )
    return int(given)


def default_offset_reset(config: ApplicationSettings) -> str | timedelta:
    """Where sources without a policy of their own begin when nothing is committed.

    `earliest` unless set, follows Kafka Streams; a timedelta for `by_duration` (KIP-1106).
    """
    return _offset_reset("main_consumer", config.client_settings("main_consumer"))


def _offset_reset(where: str, values: Mapping[str, Any]) -> str | timedelta:
    given = values.get("auto.offset.reset", "earliest")
    if isinstance(given, timedelta) and given >= timedelta(0):
        return given
    name = str(given).strip().lower()
    if name in _OFFSET_RESETS:
        return name
    duration = iso_duration(name.removeprefix(_BY_DURATION)) if _BY_DURATION in name else None
    if duration is not None:
        return duration
    raise ConfigError(
        f"{where}['auto.offset.reset'] is {given!r}, but must be 'earliest', 'latest', 'none', "
        "'by_duration:' with an ISO 8601 duration as in 'by_duration:PT12H', or a timedelta."
        + did_you_mean(name, _OFFSET_RESETS)
    )


def _roles_of(dictionary: str) -> tuple[Role, ...]:
    return tuple(role for role, names in DICTIONARIES_OF.items() if dictionary in names)


_HANDLER: Final = (
    "a function (context, record, error) that gives a HandlerResponse, or one of millstream's "
    "ready-made handlers"
)
#: What each setting must be that is called.
_FUNCTIONS: Final = {
    "deserialization_exception_handler": _HANDLER,
    "processing_exception_handler": _HANDLER,
    "production_exception_handler": _HANDLER,
    "default_timestamp_extractor": (
        "a function (record, partition_time) that gives milliseconds since the epoch, or one of "
        "millstream's ready-made extractors"
    ),
}


def _check_handlers(config: ApplicationSettings) -> None:
    for name, must_be in _FUNCTIONS.items():
        _check_callable(name, getattr(config, name), must_be)


def _check_callable(name: str, value: Any, must_be: str) -> None:
    if value is None:
        return
    if not callable(value):
        raise ConfigError(f"{name} is {value!r}, but must be {must_be}.")
    if is_deferred(value):
        raise ConfigError(f"{name}: " + deferred_advice(name_of(value), value))


def _check_names(config: ApplicationSettings) -> None:
    application_id = config.application_id
    if not _APPLICATION_ID.fullmatch(application_id) or application_id in (".", ".."):
        raise ConfigError(
            f"application_id is {application_id!r}, but may only hold letters, digits, '.', '_' "
            "and '-': it becomes part of topic and directory names."
        )
    if len(application_id) > _APPLICATION_ID_LENGTH_MAX:
        raise ConfigError(
            f"application_id has {len(application_id)} characters; at most "
            f"{_APPLICATION_ID_LENGTH_MAX} leave room for the names of internal topics."
        )
    if not config.bootstrap_servers.strip(", "):
        raise ConfigError("bootstrap_servers is empty. Give at least one broker as 'host:port'.")
    for server in config.bootstrap_servers.split(","):
        scheme, found, rest = server.strip().partition("://")
        if found and scheme.upper() not in _PROTOCOLS:
            raise ConfigError(
                f"bootstrap_servers has {server.strip()!r}, but a broker is 'host:port' without "
                f"'{scheme}://': write {rest.rstrip('/')!r}. TLS and logins are chosen with "
                "security_protocol=."
            )
    if config.application_server and not _HOST_AND_PORT.fullmatch(config.application_server):
        raise ConfigError(
            f"application_server is {config.application_server!r}, but must be 'host:port'."
        )
    try:
        optimizations(config.topology_optimization)
    except ConfigError as error:
        raise ConfigError(f"topology_optimization: {error.message}") from None
    if len(config.rack_aware_assignment_tags) > _RACK_TAGS_MAX:
        raise ConfigError(f"rack_aware_assignment_tags may name at most {_RACK_TAGS_MAX} tags.")


def _check_https(config: ApplicationSettings) -> None:
    """Whoever gives some of it believes that the server speaks HTTPS, or asks for certificates."""
    name = "server_tls_certificate"
    given = [one.name for one in config.settings() if one.name.startswith("server_tls_")]
    alone = [one for one in given if one != name and getattr(config, one) is not None]
    if alone and getattr(config, name) is None:
        raise ConfigError(
            f"{' and '.join(alone)} is given without {name}: the server would speak plain HTTP and "
            f"ask nobody for a certificate. Give {name}, or none of them."
        )


def _check_network(config: ApplicationSettings) -> None:
    """Settings of the application that reach every client are held to the same rules as theirs."""
    for field in config.settings():
        row = CLIENT_SETTINGS.get(field.dotted)
        if field.name in config.given and row is not None and row.scope is Scope.NETWORK:
            value = getattr(config, field.name)
            check_client_settings("clients", {field.dotted: value}, ("member", "producer"))


def _check_exactly_once(config: ApplicationSettings) -> None:
    consumer = config.client_settings("main_consumer")
    producer = config.client_settings("producer")
    if consumer.get("isolation.level", "read_committed") != "read_committed":
        _log.warning(
            "isolation.level is read_committed under exactly_once_v2; the given value is ignored."
        )
    if producer.get("enable.idempotence", True) is not True:
        raise ConfigError(
            "enable.idempotence=False contradicts processing_guarantee='exactly_once_v2'."
        )
    in_flight = producer.get("max.in.flight.requests.per.connection", _IN_FLIGHT_MAX)
    if in_flight > _IN_FLIGHT_MAX:
        raise ConfigError(
            f"max.in.flight.requests.per.connection is {in_flight}, but exactly_once_v2 allows at "
            f"most {_IN_FLIGHT_MAX}."
        )
    timeout_ms = transaction_timeout_ms(config)
    if timeout_ms < config.commit_interval_ms:
        raise ConfigError(
            f"transaction.timeout.ms ({timeout_ms}) is shorter than commit_interval_ms "
            f"({config.commit_interval_ms}): the broker would abort transactions before they are "
            "committed. Raise the one in producer={...} or lower the other."
        )
