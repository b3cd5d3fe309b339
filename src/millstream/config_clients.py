"""Every setting of Kafka's clients: what it is called, who honours it, and what it is called there.

A stream thread talks to Kafka through two libraries. librdkafka moves the data (main, restore and
global consumer, producer, admin client); kafka-python is the member of the consumer group. Users
write the names of the Java clients; `CLIENT_SETTINGS` is the one table which says what becomes of
each. `kafka/client_settings.py` applies it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from millstream.config_fields import did_you_mean, parse
from millstream.errors import ConfigError

_log = logging.getLogger(__name__)

#: The clients that settings are worked out for.
Role = Literal[
    "main_consumer", "restore_consumer", "global_consumer", "producer", "admin", "member"
]


class Scope(Enum):
    """Who a client setting concerns."""

    #: The connections of every client: librdkafka and kafka-python both have to honour it.
    NETWORK = "network"
    #: Reading records: librdkafka's consumers.
    FETCH = "fetch"
    #: Writing records: librdkafka's producer.
    PRODUCE = "produce"
    #: Membership of the consumer group: kafka-python's member.
    GROUP = "group"
    #: Honoured by Millstream itself, through `client_setting`.
    ENGINE = "engine"
    #: Fixed by Kafka Streams: the user's value is ignored with a warning, as there.
    IMPOSED = "imposed"
    #: Cannot be honoured here at all: refused unless it has its default.
    REFUSED = "refused"


class ClientSetting(NamedTuple):
    """One row of the table.

    Args:
        name: the name in the Java clients.
        clients: which of them know it: "c" consumer, "p" producer, "a" admin.
        scope: who it concerns here.
        kind: "int", "float", "bool", "str", "list" or "object".
        default: Java's default (Kafka Streams' where that differs), which is never refused.
        librdkafka: its name there; "" when there is nothing to do; None when librdkafka cannot
            honour it.
        kafka_python: the same for kafka-python.
        why: why it is refused, or how it is honoured.
    """

    name: str
    clients: str
    scope: Scope
    kind: str
    default: Any
    librdkafka: str | None = None
    kafka_python: str | None = None
    why: str = ""


#: Handled together in `kafka/client_security.py`, since one setting decides how another is read.
SECURITY: Final = "(security)"

_JVM: Final = "It names a class or provider of the Java virtual machine."
_SHARE: Final = "Kafka Streams reads through a consumer group, not a share group."


def _network(name: str, kind: str, default: Any, rd: str | None, py: str | None) -> ClientSetting:
    return ClientSetting(name, "cpa", Scope.NETWORK, kind, default, rd, py)


def _fetch(name: str, kind: str, default: Any, rd: str) -> ClientSetting:
    return ClientSetting(name, "c", Scope.FETCH, kind, default, rd, "")


def _produce(name: str, kind: str, default: Any, rd: str | None) -> ClientSetting:
    return ClientSetting(name, "p", Scope.PRODUCE, kind, default, rd, "")


def _group(name: str, kind: str, default: Any, py: str) -> ClientSetting:
    return ClientSetting(name, "c", Scope.GROUP, kind, default, "", py)


def _engine(name: str, clients: str, kind: str, default: Any, why: str) -> ClientSetting:
    return ClientSetting(name, clients, Scope.ENGINE, kind, default, "", "", why)


def _imposed(name: str, clients: str, default: Any = None) -> ClientSetting:
    kind = _KINDS.get(type(default), "object")
    return ClientSetting(name, clients, Scope.IMPOSED, kind, default, "", "")


_KINDS: Final = {bool: "bool", int: "int", str: "str"}


def _refused(name: str, clients: str, kind: str, default: Any, why: str) -> ClientSetting:
    return ClientSetting(name, clients, Scope.REFUSED, kind, default, None, None, why)


def _security(name: str, kind: str = "str", default: Any = None) -> ClientSetting:
    return ClientSetting(name, "cpa", Scope.NETWORK, kind, default, SECURITY, SECURITY)


def _jvm(name: str, kind: str = "str", default: Any = None, clients: str = "cpa") -> ClientSetting:
    return _refused(name, clients, kind, default, _JVM)


_CONNECTIONS: Final = (
    _network("bootstrap.servers", "str", None, "bootstrap.servers", "bootstrap_servers"),
    _network(
        "client.dns.lookup", "str", "use_all_dns_ips", "client.dns.lookup", "client_dns_lookup"
    ),
    _network(
        "connections.max.idle.ms",
        "int",
        540_000,
        "connections.max.idle.ms",
        "connections_max_idle_ms",
    ),
    _network(
        "metadata.max.age.ms",
        "int",
        300_000,
        "topic.metadata.refresh.interval.ms",
        "metadata_max_age_ms",
    ),
    _network(
        "metadata.recovery.strategy", "str", "rebootstrap", "metadata.recovery.strategy", None
    ),
    _network(
        "metadata.recovery.rebootstrap.trigger.ms",
        "int",
        300_000,
        "metadata.recovery.rebootstrap.trigger.ms",
        None,
    ),
    _network(
        "receive.buffer.bytes", "int", None, "socket.receive.buffer.bytes", "receive_buffer_bytes"
    ),
    _network("send.buffer.bytes", "int", None, "socket.send.buffer.bytes", "send_buffer_bytes"),
    _network("reconnect.backoff.ms", "int", 50, "reconnect.backoff.ms", "reconnect_backoff_ms"),
    _network(
        "reconnect.backoff.max.ms",
        "int",
        1_000,
        "reconnect.backoff.max.ms",
        "reconnect_backoff_max_ms",
    ),
    _network("request.timeout.ms", "int", 30_000, "socket.timeout.ms", "request_timeout_ms"),
    _network("retry.backoff.ms", "int", 100, "retry.backoff.ms", "retry_backoff_ms"),
    _network("retry.backoff.max.ms", "int", 1_000, "retry.backoff.max.ms", None),
    _network(
        "socket.connection.setup.timeout.ms",
        "int",
        10_000,
        "socket.connection.setup.timeout.ms",
        None,
    ),
    _network("socket.connection.setup.timeout.max.ms", "int", 30_000, None, None),
    _network("enable.metrics.push", "bool", True, "enable.metrics.push", ""),
    ClientSetting("client.rack", "c", Scope.NETWORK, "str", "", "client.rack", "client_rack"),
    # librdkafka's own, for its connections only.
    _network("broker.address.family", "str", "any", "broker.address.family", ""),
    _network("broker.address.ttl", "int", 1_000, "broker.address.ttl", ""),
    _network("socket.keepalive.enable", "bool", False, "socket.keepalive.enable", ""),
    _network("socket.nagle.disable", "bool", True, "socket.nagle.disable", ""),
    _network("debug", "str", None, "debug", ""),
    _network("log_level", "int", 6, "log_level", ""),
)

_SECURITY_SETTINGS: Final = (
    _security("security.protocol", default="PLAINTEXT"),
    _security("ssl.truststore.location"),
    _security("ssl.truststore.type"),
    _security("ssl.truststore.certificates"),
    _security("ssl.truststore.password"),
    _security("ssl.keystore.location"),
    _security("ssl.keystore.type"),
    _security("ssl.keystore.password"),
    _security("ssl.keystore.key"),
    _security("ssl.keystore.certificate.chain"),
    _security("ssl.key.password"),
    _security("ssl.endpoint.identification.algorithm", default="https"),
    _security("ssl.cipher.suites", "list", ()),
    _security("ssl.enabled.protocols", "list", ("TLSv1.2", "TLSv1.3")),
    _security("sasl.mechanism", default="GSSAPI"),
    _security("sasl.jaas.config"),
    _security("sasl.login.callback.handler.class", "object"),
    _security("sasl.oauthbearer.token.endpoint.url"),
    _security("sasl.oauthbearer.client.id"),
    _security("sasl.oauthbearer.client.secret"),
    _security("sasl.oauthbearer.scope"),
    _security("sasl.oauthbearer.extensions"),
    _security("sasl.oauthbearer.method"),
    _security("https.ca.location"),
    _security("sasl.kerberos.service.name"),
    _security("sasl.kerberos.min.time.before.relogin", "int", 60_000),
    # librdkafka's names for the same things, which need neither a Java key store nor a JAAS line.
    _security("ssl.ca.location"),
    _security("ssl.certificate.location"),
    _security("ssl.key.location"),
    _security("sasl.username"),
    _security("sasl.password"),
    _security("sasl.kerberos.principal"),
    _security("sasl.kerberos.keytab"),
    _jvm("security.providers"),
    _jvm("ssl.engine.factory.class"),
    _jvm("ssl.keymanager.algorithm", default="SunX509"),
    _jvm("ssl.trustmanager.algorithm", default="PKIX"),
    _jvm("ssl.protocol", default="TLSv1.3"),
    _jvm("ssl.provider"),
    _jvm("ssl.secure.random.implementation"),
    _jvm("sasl.client.callback.handler.class"),
    _jvm("sasl.login.class"),
    _jvm("sasl.kerberos.kinit.cmd", default="/usr/bin/kinit"),
    _jvm("sasl.kerberos.ticket.renew.jitter", "float", 0.05),
    _jvm("sasl.kerberos.ticket.renew.window.factor", "float", 0.8),
    _jvm("sasl.login.connect.timeout.ms", "int"),
    _jvm("sasl.login.read.timeout.ms", "int"),
    _jvm("sasl.login.refresh.buffer.seconds", "int", 300),
    _jvm("sasl.login.refresh.min.period.seconds", "int", 60),
    _jvm("sasl.login.refresh.window.factor", "float", 0.8),
    _jvm("sasl.login.refresh.window.jitter", "float", 0.05),
    _jvm("sasl.login.retry.backoff.ms", "int", 100),
    _jvm("sasl.login.retry.backoff.max.ms", "int", 10_000),
)

_CONSUMER: Final = (
    _fetch("check.crcs", "bool", True, "check.crcs"),
    _fetch("fetch.max.bytes", "int", 52_428_800, "fetch.max.bytes"),
    _fetch("fetch.max.wait.ms", "int", 500, "fetch.wait.max.ms"),
    _fetch("fetch.min.bytes", "int", 1, "fetch.min.bytes"),
    _fetch("max.partition.fetch.bytes", "int", 1_048_576, "max.partition.fetch.bytes"),
    _fetch("isolation.level", "str", "read_uncommitted", "isolation.level"),
    # librdkafka's own, for tuning.
    _fetch("queued.min.messages", "int", None, "queued.min.messages"),
    _fetch("queued.max.messages.kbytes", "int", None, "queued.max.messages.kbytes"),
    _fetch("fetch.queue.backoff.ms", "int", None, "fetch.queue.backoff.ms"),
    _fetch("fetch.error.backoff.ms", "int", None, "fetch.error.backoff.ms"),
    _group("session.timeout.ms", "int", 45_000, "session_timeout_ms"),
    _group("heartbeat.interval.ms", "int", 3_000, "heartbeat_interval_ms"),
    _group("max.poll.interval.ms", "int", 300_000, "max_poll_interval_ms"),
    _group("exclude.internal.topics", "bool", True, "exclude_internal_topics"),
    _engine("max.poll.records", "c", "int", 5_000, "The most records taken in one poll."),
    _engine(
        "auto.offset.reset",
        "c",
        "object",
        "earliest",
        "Where to begin without a committed offset: `earliest`, `latest`, `none`, or "
        "`by_duration:PT12H` or a timedelta before now.",
    ),
    _engine("group.instance.id", "c", "str", None, "Each thread appends its index."),
    _engine(
        "default.api.timeout.ms", "ca", "int", 60_000, "The deadline of requests about the cluster."
    ),
    _imposed("allow.auto.create.topics", "c", False),
    _imposed("enable.auto.commit", "c", False),
    _imposed("auto.commit.interval.ms", "c", 5_000),
    _imposed("client.id", "cpa", ""),
    _imposed("group.id", "c"),
    _imposed("group.protocol", "c", "classic"),
    _imposed("group.remote.assignor", "c"),
    _imposed("partition.assignment.strategy", "c"),
    _imposed("key.deserializer", "c"),
    _imposed("value.deserializer", "c"),
    _refused("interceptor.classes", "cp", "list", (), _JVM),
    _refused("share.acknowledgement.mode", "c", "str", "implicit", _SHARE),
    _refused("share.acquire.mode", "c", "str", "BATCH_OPTIMIZED", _SHARE),
)

_PRODUCER: Final = (
    _produce("acks", "str", "all", "acks"),
    _produce("batch.size", "int", 16_384, "batch.size"),
    _produce("buffer.memory", "int", 33_554_432, "queue.buffering.max.kbytes"),
    _produce("compression.type", "str", "none", "compression.type"),
    _produce("compression.gzip.level", "int", -1, "compression.level"),
    _produce("compression.lz4.level", "int", 9, "compression.level"),
    _produce("compression.zstd.level", "int", 3, "compression.level"),
    _produce("delivery.timeout.ms", "int", 120_000, "delivery.timeout.ms"),
    _produce("enable.idempotence", "bool", True, "enable.idempotence"),
    _produce("linger.ms", "float", 5, "linger.ms"),
    _produce(
        "max.in.flight.requests.per.connection", "int", 5, "max.in.flight.requests.per.connection"
    ),
    _produce("max.request.size", "int", 1_048_576, "message.max.bytes"),
    ClientSetting("retries", "pa", Scope.PRODUCE, "int", 2_147_483_647, "retries", ""),
    _produce("transaction.timeout.ms", "int", 60_000, "transaction.timeout.ms"),
    # librdkafka's own, for tuning.
    _produce("queue.buffering.max.messages", "int", None, "queue.buffering.max.messages"),
    _produce("batch.num.messages", "int", None, "batch.num.messages"),
    _produce("sticky.partitioning.linger.ms", "int", None, "sticky.partitioning.linger.ms"),
    _engine(
        "max.block.ms",
        "p",
        "int",
        60_000,
        "How long a send waits while the producer's queue is full, before it warns and waits "
        "again; after `task_timeout_ms` in all the thread ends.",
    ),
    _imposed("transactional.id", "p"),
    _imposed("key.serializer", "p"),
    _imposed("value.serializer", "p"),
    _refused("metadata.max.idle.ms", "p", "int", 300_000, "librdkafka has no such limit."),
    _refused(
        "partitioner.class",
        "p",
        "str",
        None,
        "Give a partitioner to the sink: stream.to(..., partitioner=f).",
    ),
    _refused(
        "partitioner.ignore.keys", "p", "bool", False, "Records must go where their key hashes to."
    ),
    _refused(
        "partitioner.adaptive.partitioning.enable",
        "p",
        "bool",
        True,
        "librdkafka spreads records without key evenly.",
    ),
    _refused("partitioner.availability.timeout.ms", "p", "int", 0, "librdkafka has no such limit."),
    _refused(
        "transaction.two.phase.commit.enable",
        "p",
        "bool",
        False,
        "Each thread commits its own transaction.",
    ),
    _refused("bootstrap.controllers", "a", "list", (), "The clients talk to brokers."),
)

_METRICS: Final = (
    _engine("metrics.num.samples", "cpa", "int", 2, "Millstream measures its clients itself."),
    _engine(
        "metrics.sample.window.ms", "cpa", "int", 30_000, "Millstream measures its clients itself."
    ),
    _engine(
        "metrics.recording.level", "cpa", "str", "INFO", "Millstream measures its clients itself."
    ),
    _jvm("metric.reporters", "list", ("org.apache.kafka.common.metrics.JmxReporter",)),
    _jvm("config.providers", "list", ()),
)

#: Java's further settings for tokens are about signing and checking them in the client.
_OAUTH_PREFIX: Final = "sasl.oauthbearer."
_OAUTH_WHY: Final = (
    "Give a function without arguments that returns (token, lifetime in seconds) as "
    "'sasl.login.callback.handler.class'; both clients then use it."
)

#: The one table, by Kafka's name.
CLIENT_SETTINGS: Final[Mapping[str, ClientSetting]] = {
    row.name: row for row in (*_CONNECTIONS, *_SECURITY_SETTINGS, *_CONSUMER, *_PRODUCER, *_METRICS)
}

#: The lowest value with which a client can work. Mostly those of the Java clients; higher where
#: librdkafka gives 0 another meaning, or cannot work with it.
_LEAST: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        (
            "connections.max.idle.ms",
            "receive.buffer.bytes",
            "send.buffer.bytes",
            "compression.gzip.level",
        ),
        -1,
    ),
    **dict.fromkeys(
        (
            "metadata.max.age.ms",
            "metadata.recovery.rebootstrap.trigger.ms",
            "reconnect.backoff.ms",
            "reconnect.backoff.max.ms",
            "retry.backoff.ms",
            "retry.backoff.max.ms",
            "fetch.max.bytes",
            "fetch.max.wait.ms",
            "fetch.min.bytes",
            "max.partition.fetch.bytes",
            "batch.size",
            "buffer.memory",
            "fetch.queue.backoff.ms",
            "fetch.error.backoff.ms",
            "linger.ms",
            "retries",
            "max.block.ms",
            "queue.buffering.max.messages",
            "sticky.partitioning.linger.ms",
            "broker.address.ttl",
            "log_level",
            "sasl.kerberos.min.time.before.relogin",
        ),
        0,
    ),
    **dict.fromkeys(
        (
            "request.timeout.ms",
            "socket.connection.setup.timeout.ms",
            "queued.min.messages",
            "queued.max.messages.kbytes",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "max.poll.records",
            "default.api.timeout.ms",
            "batch.num.messages",
            # 0 is no limit in librdkafka, and no time at all in Java.
            "delivery.timeout.ms",
            "max.in.flight.requests.per.connection",
            "transaction.timeout.ms",
            "metrics.num.samples",
            "metrics.sample.window.ms",
        ),
        1,
    ),
    # The smallest request of librdkafka.
    "max.request.size": 1_000,
}

#: Which Java client a role stands for.
_CLIENT_OF: Final[Mapping[Role, str]] = {
    "main_consumer": "c",
    "restore_consumer": "c",
    "global_consumer": "c",
    "member": "c",
    "producer": "p",
    "admin": "a",
}


def is_client_setting(name: str) -> bool:
    """Whether any of Kafka's clients knows a setting of this name."""
    return name in CLIENT_SETTINGS or name.startswith(_OAUTH_PREFIX)


def concerns(row: ClientSetting, role: Role) -> bool:
    """Whether the Java client that `role` stands for knows the setting."""
    return _CLIENT_OF[role] in row.clients


def parsed_client_value(row: ClientSetting, value: Any) -> Any:
    """`value` in the type of the setting; strings are read as in a properties file.

    Raises:
        ConfigError: it cannot be read as that type, or is below the lowest value that works.
    """
    parsed = _of_kind(row, value)
    least = _LEAST.get(row.name)
    # A NaN is below nothing, and above nothing either.
    if least is not None and parsed is not None and not parsed >= least:
        raise ConfigError(f"{row.name} is {value!r}, but must be at least {least}.")
    return parsed


def _of_kind(row: ClientSetting, value: Any) -> Any:
    if isinstance(value, str) and row.kind != "object":
        return parse(row.name, row.kind, value)
    if value is None or row.kind == "object":
        return value
    if row.kind == "str":
        return str(value)
    if row.kind == "list" and isinstance(value, Iterable):
        return tuple(str(item) for item in value)
    # bool is an int in Python, but not in a setting.
    kinds: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
    if type(value) in kinds.get(row.kind, ()):
        return value
    raise ConfigError(f"{row.name} is {value!r}, but must be of type {row.kind}.")


def check_client_settings(where: str, values: Mapping[str, Any], roles: tuple[Role, ...]) -> None:
    """Refuse what cannot be honoured and warn of what is ignored, as early as the configuration is
    made.

    Args:
        where: the argument that holds them, for the message.
        values: settings under Kafka's names.
        roles: the clients they are for.

    Raises:
        ConfigError: a setting is unknown to these clients, or one of the libraries cannot honour
            it.
    """
    for name, value in values.items():
        row = CLIENT_SETTINGS.get(name)
        if row is None:
            raise _unknown_client_setting(where, name)
        if not any(concerns(row, role) for role in roles):
            raise ConfigError(f"{where}[{name!r}]: no client of this kind has such a setting.")
        value = parsed_client_value(row, value)
        if value == row.default:
            continue
        if row.scope is Scope.IMPOSED:
            _log.warning(
                "%s[%r] is ignored: Millstream sets it, as Kafka Streams does.", where, name
            )
            continue
        if row.scope is Scope.REFUSED:
            raise ConfigError(f"{where}[{name!r}] cannot be honoured by librdkafka. {row.why}")
        if row.librdkafka is None:
            raise ConfigError(
                f"{where}[{name!r}] cannot be honoured by librdkafka. Leave it at {row.default!r}."
            )
        if row.kafka_python is None and "member" in roles:
            raise ConfigError(
                f"{where}[{name!r}] cannot be honoured by kafka-python, which is the member of "
                f"the consumer group. Leave it at {row.default!r}, or give it to the producer, "
                "admin or restore_consumer alone."
            )


#: Where a client setting is given that is written as an argument, by the Java clients that have it.
_GIVEN_IN: Final = {"c": "consumer", "p": "producer", "a": "admin"}


def client_setting_advice(name: str) -> str:
    """Where a name is to be given that is none of the application's settings, but of its clients.

    Args:
        name: with dots or underscores, for example `auto_offset_reset`.

    Returns:
        A sentence; empty if no client has such a setting.
    """
    row = CLIENT_SETTINGS.get(name.replace("_", "."))
    if row is None:
        return ""
    if row.name == "group.id":
        return "The consumer group is named by application_id=."
    if row.scope is Scope.IMPOSED:
        return f"{row.name} is set by Millstream, as by Kafka Streams: leave it out."
    where = _GIVEN_IN.get(row.clients, "clients")
    return f"It is a setting of Kafka's clients: give {where}={{{row.name!r}: ...}}."


def _unknown_client_setting(where: str, name: str) -> ConfigError:
    if name.startswith(_OAUTH_PREFIX):
        return ConfigError(f"{where}[{name!r}] cannot be honoured by kafka-python. {_OAUTH_WHY}")
    hint = did_you_mean(name, CLIENT_SETTINGS)
    return ConfigError(f"{where}[{name!r}] is not a setting of Kafka's clients.{hint}")


#: The dictionaries that a role's settings come from, the most specific last.
DICTIONARIES_OF: Final[Mapping[Role, tuple[str, ...]]] = {
    "main_consumer": ("clients", "consumer", "main_consumer"),
    "member": ("clients", "consumer", "main_consumer"),
    "restore_consumer": ("clients", "consumer", "restore_consumer"),
    "global_consumer": ("clients", "consumer", "global_consumer"),
    "producer": ("clients", "producer"),
    "admin": ("clients", "admin"),
}


def merged_client_settings(config: Any, role: Role) -> dict[str, Any]:
    """What was given for one client, by Kafka's name, in its final type.

    Follows Kafka Streams: a setting of the application that clients know too (`request.timeout.ms`)
    reaches them only when it was given, and anything more specific wins.

    Args:
        config: the `StreamsConfig`.
        role: the client.

    Raises:
        ConfigError: a value has the wrong type.
    """
    merged: dict[str, Any] = {}
    for field in config.settings():
        row = CLIENT_SETTINGS.get(field.dotted)
        if row is not None and field.name in config.given and row.scope is Scope.NETWORK:
            merged[row.name] = getattr(config, field.name)
    for dictionary in DICTIONARIES_OF[role]:
        for name, value in getattr(config, dictionary).items():
            row = CLIENT_SETTINGS[name]
            if concerns(row, role) and row.scope is not Scope.IMPOSED:
                merged[name] = parsed_client_value(row, value)
    return merged
