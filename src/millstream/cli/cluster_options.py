"""The cluster that a command connects to, and the credentials.

They come from the options, a properties file in Kafka's format, or the program, in this order of
precedence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import click

from millstream.clock import SystemClock
from millstream.config.references import resolved_properties
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings


class ClusterOptions(NamedTuple):
    bootstrap_servers: str | None
    config_file: str | None
    application_id: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.bootstrap_servers is None and self.config_file is None


def cluster_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for an application and its cluster.

    They are passed as the parameter `cluster`.
    """

    @click.option(
        "--application-id",
        metavar="ID",
        help="The application id; by default the one in the program's settings.",
    )
    @click.option(
        "--bootstrap-servers",
        # The name in Kafka's own tools.
        "--bootstrap-server",
        "bootstrap_servers",
        metavar="HOST:PORT,…",
        help="The bootstrap servers; by default those in the program's settings.",
    )
    @click.option(
        "--config-file",
        type=click.Path(exists=True, dir_okay=False),
        help="A properties file with the login and TLS settings, as for Kafka's own tools.",
    )
    @functools.wraps(function)
    def command(
        bootstrap_servers: str | None,
        config_file: str | None,
        application_id: str | None,
        **others: Any,
    ) -> int:
        cluster = ClusterOptions(bootstrap_servers, config_file, application_id)
        return function(cluster=cluster, **others)

    return command


def settings_from(
    options: ClusterOptions, config: StreamsConfig | None, default_application_id: str | None = None
) -> StreamsConfig:
    """Return the settings for connecting to an application's cluster.

    Raises ConfigError if the cluster or the application is not specified, or a setting is invalid.
    """
    properties = {} if options.config_file is None else resolved_properties(options.config_file)
    servers = options.bootstrap_servers or properties.get("bootstrap.servers")
    application_id = options.application_id or properties.get("application.id")
    if config is not None:
        servers = servers or config.bootstrap_servers
        application_id = application_id or config.application_id
    application_id = application_id or default_application_id
    if not servers:
        raise ConfigError(
            "No cluster is given. Pass --bootstrap-servers, or --config-file with "
            "bootstrap.servers, or define a StreamsConfig called config in the program, at module "
            "level."
        )
    if not application_id:
        raise ConfigError(
            "No application is given. Pass --application-id, or define a StreamsConfig called "
            "config in the program, at module level."
        )
    if config is not None and not properties:
        return config.replace(bootstrap_servers=servers, application_id=application_id)
    named = {"bootstrap.servers": servers, "application.id": application_id}
    file_config = StreamsConfig.from_properties({**properties, **named})
    if config is None:
        return file_config
    # All connection settings come from the file, because mixing them with those of the program
    # fails.
    kept = config.given - {each.name for each in StreamsConfig.settings() if each.is_connection}
    return StreamsConfig(
        **{name: getattr(config, name) for name in kept}
        | {name: getattr(file_config, name) for name in file_config.given}
    )


A = TypeVar("A")


@contextmanager
def connected_admin(kind: Callable[..., A], config: StreamsConfig) -> Iterator[A]:
    """Yield an admin client that has reached a broker, and close it at the end.

    Raises BrokerUnavailableError if no broker responds; AccessDeniedError if the brokers reject the
    login.
    """
    settings = librdkafka_settings(config, "admin", f"{config.application_id}-command-line")
    # The command reports errors itself.
    admin: Any = kind({**settings, "log_level": 0}, clock=SystemClock())
    try:
        admin.check_reachable()
        yield admin
    finally:
        admin.close()
