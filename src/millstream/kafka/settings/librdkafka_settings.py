"""Builds the settings of the two Kafka client libraries.

They combine the user's settings with those of Millstream. `librdkafka_settings` is for consumers,
producers and the admin client; `kafka_python_settings` is for the member of the consumer group.
Both apply the table in `config/client_settings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from millstream.config.client_settings import CLIENT_SETTINGS, SECURITY, Role, SettingScope
from millstream.config.streams_config import StreamsConfig
from millstream.config.validation import transaction_timeout_ms
from millstream.errors import ConfigError
from millstream.kafka.librdkafka_log import LIBRDKAFKA_LOGGER
from millstream.kafka.settings.client_security import (
    security_for_kafka_python,
    security_for_librdkafka,
    unreadable_file,
)
from millstream.kafka.settings.tokens import LibrdkafkaTokens

_Client = TypeVar("_Client")

_CONSUMERS: Final = ("main_consumer", "restore_consumer", "global_consumer")

#: The limit on fetched but unread records of all consumers of one kind, divided among the threads.
#: Small records use about six times their size in memory (a 75-byte record about 450 bytes).
_PREFETCH_KBYTES: Final = 32 * 1024
_PREFETCH_KBYTES_MIN: Final = 4 * 1024

#: The limit on unsent records of all producers, divided among the threads.
_UNSENT_KBYTES: Final = 64 * 1024
_UNSENT_KBYTES_MIN: Final = 16 * 1024

_ANY_CLIENT: Final[Mapping[str, Any]] = {
    # Java's defaults.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "socket.connection.setup.timeout.ms": 10_000,
    "socket.timeout.ms": 30_000,
}

_CONSUMER: Final[Mapping[str, Any]] = {
    # Imposed: the member handles the group and its offsets, the start offset is always explicit,
    # and an offset that no longer exists must be an error instead of a silent reset.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # Java's default. Its cost was not measurable (2 M records of 75 bytes, lz4).
    "check.crcs": True,
    # Fetch again soon after the local queue was full. With librdkafka's default of 1,000 ms, the
    # queue runs empty meanwhile: with 100,000 queued records, 163k records/s instead of 1.2 M/s.
    # Otherwise, that throughput needs 1,000,000 queued records (430 MB of memory instead of 92 MB).
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 100_000,
    # One fetch per broker is in flight at a time, and waits this long if there are no new records.
    # Added partitions and reports of partition ends wait for that fetch: 0.8-1.0 s with the default
    # of 500 ms.
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 100,
}

_PRODUCER: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    # Short enough for a pipeline of several topics, but long enough to fill batches under load.
    "linger.ms": 5,
    "delivery.timeout.ms": 120_000,
    "message.max.bytes": 1_048_576,
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 300_000,
    # How long to wait for a missing topic, in case it was just created, before an error is
    # reported. The default is 30 s.
    "topic.metadata.propagation.max.ms": 10_000,
}

#: Conversions of values that librdkafka represents differently.
_CONVERTED: Final[Mapping[str, Callable[[Any], Any]]] = {
    # Java: -1 means never, or the system's default; librdkafka: 0.
    "connections.max.idle.ms": lambda value: max(0, value),
    "receive.buffer.bytes": lambda value: max(0, value),
    "send.buffer.bytes": lambda value: max(0, value),
    # Java: 0 means "as soon as possible" or "no batches"; librdkafka: 1.
    "fetch.min.bytes": lambda value: max(1, value),
    "max.partition.fetch.bytes": lambda value: max(1, value),
    "batch.size": lambda value: max(1, value),
    "retry.backoff.ms": lambda value: max(1, value),
    "retry.backoff.max.ms": lambda value: max(1, value),
    "buffer.memory": lambda value: max(1, value // 1024),
    "acks": lambda value: "all" if str(value) in ("all", "-1") else str(value),
}

_NEVER_IDLE_MS: Final = 2**31 - 1
_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"

#: The minimum timeout of the member's first connection; a longer `task.timeout.ms` replaces it.
_FIRST_CONTACT_MS: Final = 15_000


def librdkafka_settings(config: StreamsConfig, role: Role, client_id: str) -> dict[str, Any]:
    """Return the settings of a confluent-kafka client, or raise ConfigError.

    The role must not be "member".
    """
    values = config.client_settings(role)
    settings: dict[str, Any] = {
        "bootstrap.servers": config.bootstrap_servers,
        "client.id": client_id,
        **_ANY_CLIENT,
    }
    if role in _CONSUMERS:
        settings.update(_CONSUMER)
        # librdkafka requires a group, although partitions are assigned manually and the member
        # commits the offsets.
        settings["group.id"] = config.application_id
        settings["queued.max.messages.kbytes"] = max(
            _PREFETCH_KBYTES_MIN, _PREFETCH_KBYTES // config.most_stream_threads
        )
    elif role == "producer":
        settings.update(_PRODUCER)
        settings["queue.buffering.max.kbytes"] = max(
            _UNSENT_KBYTES_MIN, _UNSENT_KBYTES // config.most_stream_threads
        )
    settings.update(_translated(values))
    if role in _CONSUMERS:
        settings["isolation.level"] = isolation_level(config, role)
    elif role == "producer":
        _complete_producer(config, values, settings)
    return settings


def kafka_python_settings(
    config: StreamsConfig, role: Role = "member", *, client_id: str, thread_index: int | None = None
) -> dict[str, Any]:
    """Return kafka-python's settings for a member of the application's group.

    They include group, network and security settings and the isolation level, but no settings for
    fetching, because the member never fetches records. Reads certificate files, so it must be
    called where the member runs. `thread_index` is appended to `group.instance.id`, so each thread
    is a separate static member. Raises ConfigError for unsupported settings.
    """
    values = config.client_settings(role)
    servers = str(values.pop("bootstrap.servers", config.bootstrap_servers))
    settings: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in servers.split(",") if server.strip()],
        "client_id": client_id,
        "group_id": config.application_id,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 1_000,
        "bootstrap_timeout_ms": max(_FIRST_CONTACT_MS, config.task_timeout_ms),
        **security_for_kafka_python(values),
    }
    for name, value in values.items():
        row = CLIENT_SETTINGS[name]
        if row.kafka_python and row.kafka_python != SECURITY:
            settings[row.kafka_python] = value
    for name in ("receive_buffer_bytes", "send_buffer_bytes"):
        if settings.get(name) == -1:
            settings[name] = None
    if settings.get("connections_max_idle_ms", 0) < 0:
        settings["connections_max_idle_ms"] = _NEVER_IDLE_MS
    instance_id = values.get("group.instance.id")
    if instance_id:
        settings["group_instance_id"] = (
            instance_id if thread_index is None else f"{instance_id}-{thread_index}"
        )
    settings["isolation_level"] = isolation_level(config, "main_consumer")
    settings["enable_auto_commit"] = False
    settings["allow_auto_create_topics"] = False
    return settings


def client_setting(config: StreamsConfig, role: Role, name: str) -> Any:
    """Return a client setting that Millstream applies itself.

    An example is `max.poll.records`.
    """
    return config.client_settings(role).get(name, CLIENT_SETTINGS[name].default)


def isolation_level(config: StreamsConfig, role: Role) -> str:
    """Return the isolation level: imposed under exactly-once, otherwise configurable."""
    if config.exactly_once:
        return "read_committed"
    return str(client_setting(config, role, "isolation.level"))


def create_client(kind: Callable[..., _Client], settings: Mapping[str, Any]) -> _Client:
    """Create a confluent-kafka client that logs through `logging`.

    Raises ConfigError if librdkafka rejects a setting, and AccessDeniedError if no token is
    available for the login.
    """
    tokens = settings.get("oauth_cb")
    if isinstance(tokens, LibrdkafkaTokens):
        # Fail early: without a token, librdkafka would wait for 10 s and not report the reason.
        tokens.supply.token()
    try:
        return kind(dict(settings), logger=LIBRDKAFKA_LOGGER)
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigError(
            f"librdkafka rejects its settings: {_reason(error)}. {_remedy(error, settings)}"
        ) from error


def _reason(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return str(first.str() if hasattr(first, "str") else first).rstrip(".")


def _remedy(error: BaseException, settings: Mapping[str, Any]) -> str:
    if "No provider for SASL mechanism" in _reason(error):
        return (
            f"sasl.mechanism is {settings['sasl.mechanism']} (the default is GSSAPI, which is "
            "Kerberos). This mechanism needs a librdkafka with Cyrus SASL: build confluent-kafka "
            "with such a librdkafka, or set another mechanism."
        )
    unreadable = unreadable_file(settings)
    if unreadable:
        return f"A file cannot be read on this machine: {unreadable}."
    if "ssl.key.location failed" in _reason(error):
        return "The file contains no PEM key, or ssl.key.password does not decrypt it."
    return "Correct this client setting; its limits may be narrower than those of the Java clients."


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in values.items():
        row = CLIENT_SETTINGS[name]
        if (
            row.scope is SettingScope.UNSUPPORTED
            or not row.librdkafka
            or row.librdkafka == SECURITY
        ):
            # Unsupported settings only get here with their default values.
            continue
        if row.librdkafka == "compression.level" and not _is_level_of(values, name):
            continue
        convert = _CONVERTED.get(name)
        settings[row.librdkafka] = value if convert is None else convert(value)
    settings.update(security_for_librdkafka(values))
    return settings


def _is_level_of(values: Mapping[str, Any], name: str) -> bool:
    """Whether a compression level is for the codec in use.

    As in Java, other levels are ignored.
    """
    codec = str(values.get("compression.type", _PRODUCER["compression.type"]))
    return name == f"compression.{codec}.level"


def _complete_producer(
    config: StreamsConfig, values: Mapping[str, Any], settings: dict[str, Any]
) -> None:
    if "delivery.timeout.ms" not in values:
        # An outage that tasks tolerate must not end the thread because a record times out.
        settings["delivery.timeout.ms"] = max(
            settings["delivery.timeout.ms"], config.task_timeout_ms
        )
    if "request.timeout.ms" in values:
        # This is librdkafka's acknowledgment timeout, which is separate from its request timeout.
        settings["request.timeout.ms"] = values["request.timeout.ms"]
    if config.exactly_once:
        settings["transaction.timeout.ms"] = transaction_timeout_ms(config)
        # librdkafka does not allow requests to outlast their transaction.
        settings["socket.timeout.ms"] = min(
            settings["socket.timeout.ms"], settings["transaction.timeout.ms"]
        )
        if "delivery.timeout.ms" not in values:
            # librdkafka then uses the transaction timeout. Kafka Streams sets no delivery timeout
            # here, with the same effect, because delivery ends with the transaction.
            del settings["delivery.timeout.ms"]
    weaker = [
        f"{name}={values[name]}"
        for name, contradicts in (
            ("acks", settings["acks"] != "all"),
            (_IN_FLIGHT, int(values.get(_IN_FLIGHT, 5)) > 5),
            ("retries", values.get("retries") == 0),
        )
        if contradicts
    ]
    if weaker and values.get("enable.idempotence"):
        raise ConfigError(
            f"enable.idempotence=True contradicts {', '.join(weaker)}. Remove one of them."
        )
    if weaker and config.exactly_once:
        raise ConfigError(
            f"exactly_once_v2 needs an idempotent producer, which {', '.join(weaker)} prevents."
        )
    if weaker:
        # As in Kafka's producer, these settings disable idempotence unless it was set explicitly.
        settings["enable.idempotence"] = False
