"""What the settings of an application must be together: checks that one setting alone cannot
make."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from millstream.config_clients import (
    CLIENT_SETTINGS,
    DICTIONARIES_OF,
    Role,
    Scope,
    check_client_settings,
)
from millstream.config_optimization import optimizations
from millstream.errors import ConfigError

if TYPE_CHECKING:
    from millstream.config import StreamsConfig

_log = logging.getLogger(__name__)

_APPLICATION_ID: Final = re.compile(r"[a-zA-Z0-9._-]+")
_HOST_AND_PORT: Final = re.compile(r"\S+:\d{1,5}")
#: Kafka's longest topic name is 249; an internal topic still has to append a store's name.
_APPLICATION_ID_LENGTH_MAX: Final = 200
_RACK_TAGS_MAX: Final = 5
_IN_FLIGHT_MAX: Final = 5
_TRANSACTION_TIMEOUT_MS: Final = 10_000


def check_together(config: StreamsConfig) -> None:
    """Check names, the clients' dictionaries, and what exactly-once asks for.

    Raises:
        ConfigError: something does not fit; the message names the settings.
    """
    _check_names(config)
    for dictionary in (
        "clients",
        "consumer",
        "main_consumer",
        "restore_consumer",
        "global_consumer",
    ):
        check_client_settings(dictionary, getattr(config, dictionary), _roles_of(dictionary))
    check_client_settings("producer", config.producer, ("producer",))
    check_client_settings("admin", config.admin, ("admin",))
    _check_network(config)
    if config.exactly_once:
        _check_exactly_once(config)


def transaction_timeout_ms(config: StreamsConfig) -> int:
    """How long the broker waits for a transaction: 10 s unless set, follows Kafka Streams."""
    given = config.client_settings("producer").get(
        "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS
    )
    return int(given)


def _roles_of(dictionary: str) -> tuple[Role, ...]:
    return tuple(role for role, names in DICTIONARIES_OF.items() if dictionary in names)


def _check_names(config: StreamsConfig) -> None:
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


def _check_network(config: StreamsConfig) -> None:
    """Settings of the application that reach every client are held to the same rules as theirs."""
    for field in config.settings():
        row = CLIENT_SETTINGS.get(field.dotted)
        if field.name in config.given and row is not None and row.scope is Scope.NETWORK:
            value = getattr(config, field.name)
            check_client_settings("clients", {field.dotted: value}, ("member", "producer"))


def _check_exactly_once(config: StreamsConfig) -> None:
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
