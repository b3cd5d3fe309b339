"""Validation of combinations of settings, and parsing of `topology.optimization`."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from millstream.async_checks import deferred_advice, is_deferred, name_of
from millstream.config.client_settings import (
    CLIENT_SETTINGS,
    DICTIONARIES_OF,
    Role,
    SettingScope,
    check_client_settings,
)
from millstream.config.fields import Setting, did_you_mean
from millstream.durations import iso_duration
from millstream.errors import ConfigError

_log = logging.getLogger(__name__)

_APPLICATION_ID: Final = re.compile(r"[a-zA-Z0-9._-]+")
#: The schemes that Kafka's clients accept in a broker's address.
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HOST_AND_PORT: Final = re.compile(r"\S+:\d{1,5}")
#: Kafka's maximum for topic names is 249, and internal topics append the name of a store.
_APPLICATION_ID_LENGTH_MAX: Final = 200
_RACK_TAGS_MAX: Final = 5
_OFFSET_RESETS: Final = ("earliest", "latest", "none")
_BY_DURATION: Final = "by_duration:"
_IN_FLIGHT_MAX: Final = 5
_TRANSACTION_TIMEOUT_MS: Final = 10_000

#: A table read from a topic has no changelog: the topic itself restores the table.
REUSE_KTABLE_SOURCE_TOPICS: Final = "reuse.ktable.source.topics"
#: Operations that would repartition the same records share one repartition topic.
MERGE_REPARTITION_TOPICS: Final = "merge.repartition.topics"
#: A self-join keeps the stream in one store instead of two.
SINGLE_STORE_SELF_JOIN: Final = "single.store.self.join"

ALL_OPTIMIZATIONS: Final = frozenset(
    (REUSE_KTABLE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN)
)

_NAMES = ("none", "all", *sorted(ALL_OPTIMIZATIONS))


def optimizations(choice: bool | str | Iterable[str]) -> frozenset[str]:
    """Return the optimizations that a setting selects.

    The choice is True or `"all"`, False or `"none"`, or names, separated by commas or as a list.
    Raises ConfigError if a name is unknown, or `all` or `none` is combined with other names.
    """
    if isinstance(choice, bool):
        return ALL_OPTIMIZATIONS if choice else frozenset()
    names = choice.split(",") if isinstance(choice, str) else list(choice)
    chosen = [name.strip() if isinstance(name, str) else name for name in names]
    for name in chosen:
        if name not in _NAMES:
            raise ConfigError(
                f"There is no topology optimization {name!r}. Choose none, all, or a list of "
                f"{', '.join(_NAMES[2:])}.{did_you_mean(str(name), _NAMES)}"
            )
    if len(chosen) > 1 and not ALL_OPTIMIZATIONS.issuperset(chosen):
        raise ConfigError(
            f"The optimizations {', '.join(chosen)!r} contradict each other: none and all cannot "
            "be combined with other names. Choose one of the two, or a list of names."
        )
    return ALL_OPTIMIZATIONS if chosen == ["all"] else frozenset(chosen) - {"none"}


class ApplicationSettings(Protocol):
    """The part of `StreamsConfig` that is validated.

    Handlers and the other dictionaries are looked up by name.
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
    def settings(self) -> Iterable[Setting]: ...
    def client_settings(self, role: Role) -> Mapping[str, Any]: ...


def check_together(config: ApplicationSettings) -> None:
    """Check names, the clients' dictionaries, and the requirements of exactly-once.

    Raises ConfigError with the names of invalid settings.
    """
    _check_names(config)
    _check_handlers(config)
    _check_https(config)
    # Check the dictionaries in the order of the arguments.
    for dictionary in dict.fromkeys(name for names in DICTIONARIES_OF.values() for name in names):
        given = getattr(config, dictionary)
        roles = tuple(role for role, names in DICTIONARIES_OF.items() if dictionary in names)
        check_client_settings(dictionary, given, roles)
        if dictionary not in ("producer", "admin"):
            _offset_reset(dictionary, given)
    _check_network(config)
    if config.exactly_once:
        _check_exactly_once(config)


def transaction_timeout_ms(config: ApplicationSettings) -> int:
    """Return the transaction timeout: 10 s unless set, as in Kafka Streams."""
    given = config.client_settings("producer").get(
        "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS
    )
    return int(given)


def default_offset_reset(config: ApplicationSettings) -> str | timedelta:
    """Return the default reset policy for partitions without a committed offset.

    `earliest` unless set, as in Kafka Streams; a timedelta for `by_duration` (KIP-1106).
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


_HANDLER: Final = (
    "a function (context, record, error) that returns a HandlerResponse, or one of millstream's "
    "built-in handlers"
)
#: The required type of each callable setting.
_FUNCTIONS: Final = {
    "deserialization_exception_handler": _HANDLER,
    "processing_exception_handler": _HANDLER,
    "production_exception_handler": _HANDLER,
    "default_timestamp_extractor": (
        "a function (record, partition_time) that returns milliseconds since the epoch, or one of "
        "millstream's built-in extractors"
    ),
}


def _check_handlers(config: ApplicationSettings) -> None:
    for name, must_be in _FUNCTIONS.items():
        value = getattr(config, name)
        if value is not None and not callable(value):
            raise ConfigError(f"{name} is {value!r}, but must be {must_be}.")
        if is_deferred(value):
            raise ConfigError(f"{name}: " + deferred_advice(name_of(value), value))


def _check_names(config: ApplicationSettings) -> None:
    application_id = config.application_id
    if not _APPLICATION_ID.fullmatch(application_id) or application_id in (".", ".."):
        raise ConfigError(
            f"application_id is {application_id!r}, but may only contain letters, digits, '.', '_' "
            "and '-', because it is part of topic and directory names."
        )
    if len(application_id) > _APPLICATION_ID_LENGTH_MAX:
        raise ConfigError(
            f"application_id has {len(application_id)} characters, but must have at most "
            f"{_APPLICATION_ID_LENGTH_MAX}, because the names of internal topics begin with it."
        )
    if not config.bootstrap_servers.strip(", "):
        raise ConfigError("bootstrap_servers is empty. Set at least one broker as 'host:port'.")
    for server in config.bootstrap_servers.split(","):
        scheme, found, rest = server.strip().partition("://")
        if found and scheme.upper() not in _PROTOCOLS:
            raise ConfigError(
                f"bootstrap_servers has {server.strip()!r}, but a broker is 'host:port' without "
                f"'{scheme}://': write {rest.rstrip('/')!r}. TLS and logins are configured with "
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
    """Reject TLS settings without a certificate.

    Without a certificate, the server would not use HTTPS.
    """
    name = "server_tls_certificate"
    given = [one.name for one in config.settings() if one.name.startswith("server_tls_")]
    alone = [one for one in given if one != name and getattr(config, one) is not None]
    if alone and getattr(config, name) is None:
        raise ConfigError(
            f"{name} is required with {' and '.join(alone)}: otherwise, the server would use plain "
            f"HTTP and request no client certificates. Set {name}, or remove the others."
        )


def _check_network(config: ApplicationSettings) -> None:
    """Check the application's connection settings in the same way as client settings."""
    for field in config.settings():
        row = CLIENT_SETTINGS.get(field.dotted)
        if field.name in config.given and row is not None and row.scope is SettingScope.NETWORK:
            value = getattr(config, field.name)
            check_client_settings("clients", {field.dotted: value}, ("member", "producer"))


def _check_exactly_once(config: ApplicationSettings) -> None:
    consumer = config.client_settings("main_consumer")
    producer = config.client_settings("producer")
    if consumer.get("isolation.level", "read_committed") != "read_committed":
        _log.warning(
            "isolation.level is read_committed under exactly_once_v2; the configured value is "
            "ignored."
        )
    if producer.get("enable.idempotence", True) is not True:
        raise ConfigError(
            "enable.idempotence=False contradicts processing_guarantee='exactly_once_v2'. "
            "Remove one of the two."
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
            "committed. Raise the former in producer={...}, or lower the latter."
        )
