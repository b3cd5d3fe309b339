"""The settings of every program that speaks to Kafka: where the brokers are, and its clients'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.config_clients import Role, merged_client_settings
from millstream.config_fields import Settings, setting


class ConnectionSettings(Settings):
    """What Kafka's clients are told. Part of `StreamsConfig`.

    Of the settings of all clients only those reach a client that were given; otherwise each client
    keeps its own default, which follows Kafka Streams. The dictionaries take Kafka's own dotted
    names.
    """

    # The connections of all clients. Without a value each client keeps its own default.
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        default=540_000,
        least=-1,
        doc="Idle connections are closed after this.",
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push", default=True, doc="Whether clients push metrics to the brokers."
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", default=300_000, least=0, doc="How often metadata are refreshed."
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        default="rebootstrap",
        choices=("rebootstrap", "none"),
        doc="What clients do when no known broker answers.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        default=300_000,
        least=0,
        doc="When they begin again from bootstrap_servers.",
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes",
        default=32_768,
        least=-1,
        doc="Socket buffer for reading; by default the system's.",
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes",
        default=131_072,
        least=-1,
        doc="Socket buffer for writing; by default the system's.",
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms", default=50, least=0, doc="First wait before reconnecting."
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms", default=1_000, least=0, doc="Longest such wait."
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", default=40_000, least=1, doc="How long a request may take."
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", default=100, least=0, doc="Wait before a request is repeated."
    )
    security_protocol: str = setting(
        "security.protocol",
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="How brokers are spoken to.",
    )
    speedups: bool | None = setting(
        "speedups",
        default=None,
        doc="Whether clients and record caches use the C extension `millstream-speedups`: None for "
        "where it can be used, True to insist on it, False for Python alone.",
        kind="bool",
    )

    # Settings of the Kafka clients and of internal topics, under Kafka's dotted names.
    clients: Mapping[str, Any] = setting(
        "", default={}, doc="For every client that knows the name, such as SSL and SASL."
    )
    consumer: Mapping[str, Any] = setting(
        "consumer.", default={}, doc="For all consumers and the group's member."
    )
    main_consumer: Mapping[str, Any] = setting(
        "main.consumer.", default={}, doc="For the main consumer and the group's member."
    )
    restore_consumer: Mapping[str, Any] = setting(
        "restore.consumer.", default={}, doc="For the consumer that restores stores."
    )
    global_consumer: Mapping[str, Any] = setting(
        "global.consumer.", default={}, doc="For the consumer of global tables."
    )
    producer: Mapping[str, Any] = setting("producer.", default={}, doc="For the producer.")
    admin: Mapping[str, Any] = setting("admin.", default={}, doc="For the admin client.")
    topic: Mapping[str, Any] = setting(
        "topic.", default={}, doc="For internal topics that the topology does not set itself."
    )
    extra: Mapping[str, Any] = setting(
        "", default={}, doc="Settings unknown to Millstream, kept for processors to read."
    )

    def client_settings(self, role: Role) -> dict[str, Any]:
        """What was given for one Kafka client, under Kafka's names; the most specific wins.

        Example:
            >>> config = StreamsConfig(
            ...     application_id="shop",
            ...     bootstrap_servers="localhost:9092",
            ...     consumer={"max.poll.records": 500},
            ... )
            >>> config.client_settings("main_consumer")["max.poll.records"]
            500
        """
        return merged_client_settings(self, role)
