"""Where the cluster is that a command asks, and as whom: from the options, from a file in Kafka's
own format, and from what the program itself says, in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.config_connections import ConnectionSettings
from millstream.errors import ConfigError
from millstream.kafka.settings.clients import librdkafka_settings

F = TypeVar("F", bound=Callable[..., Any])


class Given(NamedTuple):
    """What the options say of the cluster and the application."""

    bootstrap_servers: str | None
    config_file: str | None
    application_id: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no cluster is named."""
        return self.bootstrap_servers is None and self.config_file is None


def cluster_options(function: F) -> F:
    """The options of a command that asks a cluster: its parameters are those of `Given`."""
    servers = click.option(
        "--bootstrap-servers",
        # As Kafka's own tools call it.
        "--bootstrap-server",
        "bootstrap_servers",
        metavar="HOST:PORT,…",
        help="Brokers to begin with; by default those of the program's settings.",
    )
    file = click.option(
        "--config-file",
        type=click.Path(exists=True, dir_okay=False),
        help="Settings as Kafka's own tools take them: a properties file, for the login and TLS.",
    )
    return servers(file(function))


application_id_option = click.option(
    "--application-id", metavar="ID", help="By default that of the program's settings."
)


def settings_from(
    given: Given, config: StreamsConfig | None, otherwise: str | None = None
) -> StreamsConfig:
    """The settings by which to reach an application's cluster.

    Args:
        given: by options.
        config: those of the program, if it says any.
        otherwise: the application id, where neither says one.

    Raises:
        ConfigError: the cluster or the application is not known, or a setting is wrong.
    """
    properties = {} if given.config_file is None else read_properties(Path(given.config_file))
    servers = given.bootstrap_servers or properties.get("bootstrap.servers")
    application_id = given.application_id or properties.get("application.id")
    if config is not None:
        servers = servers or config.bootstrap_servers
        application_id = application_id or config.application_id
    application_id = application_id or otherwise
    if not servers:
        raise ConfigError(
            "Which cluster? Give --bootstrap-servers, or --config-file with bootstrap.servers, or "
            "let the program have its StreamsConfig outside of its main part, called config."
        )
    if not application_id:
        raise ConfigError(
            "Which application? Give --application-id, or let the program have its StreamsConfig "
            "outside of its main part, called config."
        )
    if config is not None and not properties:
        return config.replace(bootstrap_servers=servers, application_id=application_id)
    named = {"bootstrap.servers": servers, "application.id": application_id}
    told = StreamsConfig.from_properties({**properties, **named})
    if config is None:
        return told
    # A login that is half the file's and half the program's would be none.
    kept = config.given - {each.name for each in ConnectionSettings.settings()}
    return StreamsConfig(
        **{name: getattr(config, name) for name in kept}
        | {name: getattr(told, name) for name in told.given}
    )


def read_properties(file: Path) -> dict[str, str]:
    """The settings of a file in Java's format: key=value lines, comments, `\\` before a line's end.

    Raises:
        ConfigError: the file cannot be read, or a line of it has no value.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        places = [place for place in (line.find("="), line.find(":")) if place > 0]
        if not places:
            raise ConfigError(
                f"{file}, line {number}: {line!r} is no setting. Write key=value, as in "
                "security.protocol=SSL."
            )
        key, value = line[: min(places)], line[min(places) + 1 :]
        properties[key.strip()] = value.strip()
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    began, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not whole:
            began = number
            if line.lstrip()[:1] in ("", "#", "!"):
                continue
        whole += line.lstrip() if whole else line.strip()
        if whole.endswith("\\") and not whole.endswith("\\\\"):
            whole = whole[:-1]
            continue
        yield began, whole.rstrip()
        whole = ""
    if whole:
        yield began, whole


def client_settings(config: StreamsConfig) -> Mapping[str, Any]:
    """What librdkafka's clients are told by a command, which tells of their troubles itself."""
    settings = librdkafka_settings(config, "admin", f"{config.application_id}-command-line")
    return {**settings, "log_level": 0}


A = TypeVar("A")


@contextmanager
def asking(kind: Callable[..., A], config: StreamsConfig) -> Iterator[A]:
    """A client of one of the kinds of admin, whose brokers have answered; closed at the end.

    Raises:
        BrokerUnavailableError: none did.
        AccessDeniedError: they refuse the login.
    """
    admin: Any = kind(client_settings(config), clock=SystemClock())
    try:
        admin.check_reachable()
        yield admin
    finally:
        admin.close()
