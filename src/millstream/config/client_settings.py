"""Every setting of Kafka's clients: its names, and the library that supports it.

A stream thread uses two Kafka libraries. librdkafka is used for the main, restore and global
consumers, the producer and the admin client; kafka-python is the member of the consumer group.
Users write the names of the Java clients, and the table `CLIENT_SETTINGS` defines how each setting
is applied. `kafka/settings/librdkafka_settings.py` applies the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from millstream.config.fields import did_you_mean, parse
from millstream.errors import ConfigError

_log = logging.getLogger(__name__)

#: The clients that are configured separately.
Role = Literal[
    "main_consumer", "restore_consumer", "global_consumer", "producer", "admin", "member"
]


class SettingScope(Enum):
    """The component that a client setting applies to."""

    #: The connections of every client: both librdkafka and kafka-python must support it.
    NETWORK = "network"
    #: Reading records: librdkafka's consumers.
    FETCH = "fetch"
    #: Writing records: librdkafka's producer.
    PRODUCE = "produce"
    #: Membership of the consumer group: kafka-python's member.
    GROUP = "group"
    #: Applied by Millstream, through `client_setting`.
    ENGINE = "engine"
    #: Fixed by Kafka Streams: the user's value is ignored with a warning, as in Java.
    IMPOSED = "imposed"
    #: Not supported: rejected unless it has its default value.
    UNSUPPORTED = "unsupported"


class ClientSetting(NamedTuple):
    """One row of the table, by the name of the setting in the Java clients."""

    name: str
    #: The Java clients with the setting: "c" consumer, "p" producer, "a" admin.
    clients: str
    scope: SettingScope
    #: "int", "float", "bool", "str", "list" or "object".
    kind: str
    #: Java's default (Kafka Streams' where that differs), which is never rejected.
    default: Any
    #: The setting's name in each library; "" if it is not passed to the library, None if the
    #: library does not support it.
    librdkafka: str | None = None
    kafka_python: str | None = None
    #: Why the setting is rejected, or how it is applied.
    why: str = ""
    #: Usually the minimum of the Java client, but higher where librdkafka interprets 0 differently
    #: or does not support it.
    minimum: int | None = None


#: Marks settings that depend on each other, so `kafka/settings/client_security.py` translates them
#: together.
SECURITY: Final = "(security)"

_JVM: Final = "It configures Java code that Millstream does not use."
_MEASURED: Final = "Millstream collects the metrics of its clients itself."
_SHARE: Final = "Kafka Streams reads through a consumer group, not a share group."


#: Stands for the name in the Java clients, with underscores instead of dots for kafka-python.
_SAME: Final = "="
_KINDS: Final = {bool: "bool", int: "int", str: "str"}


def _network(
    name: str,
    kind: str,
    default: Any,
    *,
    rd: str | None = _SAME,
    py: str | None = _SAME,
    clients: str = "cpa",
    minimum: int | None = None,
) -> ClientSetting:
    rd = name if rd == _SAME else rd
    py = name.replace(".", "_") if py == _SAME else py
    return ClientSetting(
        name, clients, SettingScope.NETWORK, kind, default, rd, py, minimum=minimum
    )


def _fetch(
    name: str, kind: str, default: Any, *, rd: str = "", minimum: int | None = None
) -> ClientSetting:
    return ClientSetting(
        name, "c", SettingScope.FETCH, kind, default, rd or name, "", minimum=minimum
    )


def _produce(
    name: str,
    kind: str,
    default: Any,
    *,
    rd: str = "",
    clients: str = "p",
    minimum: int | None = None,
) -> ClientSetting:
    scope = SettingScope.PRODUCE
    return ClientSetting(name, clients, scope, kind, default, rd or name, "", minimum=minimum)


def _group(name: str, kind: str, default: Any, *, minimum: int | None = None) -> ClientSetting:
    py = name.replace(".", "_")
    return ClientSetting(name, "c", SettingScope.GROUP, kind, default, "", py, minimum=minimum)


def _engine(
    name: str, clients: str, kind: str, default: Any, why: str, *, minimum: int | None = None
) -> ClientSetting:
    return ClientSetting(name, clients, SettingScope.ENGINE, kind, default, "", "", why, minimum)


def _imposed(name: str, clients: str, default: Any = None) -> ClientSetting:
    kind = _KINDS.get(type(default), "object")
    return ClientSetting(name, clients, SettingScope.IMPOSED, kind, default, "", "")


def _unsupported(name: str, clients: str, kind: str, default: Any, why: str) -> ClientSetting:
    return ClientSetting(name, clients, SettingScope.UNSUPPORTED, kind, default, None, None, why)


def _security(
    name: str, kind: str = "str", default: Any = None, *, minimum: int | None = None
) -> ClientSetting:
    return _network(name, kind, default, rd=SECURITY, py=SECURITY, minimum=minimum)


def _jvm(name: str, kind: str = "str", default: Any = None) -> ClientSetting:
    return _unsupported(name, "cpa", kind, default, _JVM)


_CONNECTIONS: Final = (
    _network("bootstrap.servers", "str", None),
    _network("client.dns.lookup", "str", "use_all_dns_ips"),
    _network("connections.max.idle.ms", "int", 540_000, minimum=-1),
    _network(
        "metadata.max.age.ms", "int", 300_000, rd="topic.metadata.refresh.interval.ms", minimum=0
    ),
    _network("metadata.recovery.strategy", "str", "rebootstrap", py=None),
    _network("metadata.recovery.rebootstrap.trigger.ms", "int", 300_000, py=None, minimum=0),
    _network("receive.buffer.bytes", "int", None, rd="socket.receive.buffer.bytes", minimum=-1),
    _network("send.buffer.bytes", "int", None, rd="socket.send.buffer.bytes", minimum=-1),
    _network("reconnect.backoff.ms", "int", 50, minimum=0),
    _network("reconnect.backoff.max.ms", "int", 1_000, minimum=0),
    _network("request.timeout.ms", "int", 30_000, rd="socket.timeout.ms", minimum=1),
    _network("retry.backoff.ms", "int", 100, minimum=0),
    _network("retry.backoff.max.ms", "int", 1_000, py=None, minimum=0),
    _network("socket.connection.setup.timeout.ms", "int", 10_000, py=None, minimum=1),
    _network("socket.connection.setup.timeout.max.ms", "int", 30_000, rd=None, py=None),
    _network("enable.metrics.push", "bool", True, py=""),
    _network("client.rack", "str", "", clients="c"),
    # librdkafka's own settings, for its connections only.
    _network("broker.address.family", "str", "any", py=""),
    _network("broker.address.ttl", "int", 1_000, py="", minimum=0),
    _network("socket.keepalive.enable", "bool", False, py=""),
    _network("socket.nagle.disable", "bool", True, py=""),
    _network("debug", "str", None, py=""),
    _network("log_level", "int", 6, py="", minimum=0),
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
    _security("sasl.kerberos.min.time.before.relogin", "int", 60_000, minimum=0),
    # librdkafka's names for the same settings, without a Java key store or a JAAS line.
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
    _fetch("check.crcs", "bool", True),
    _fetch("fetch.max.bytes", "int", 52_428_800, minimum=0),
    _fetch("fetch.max.wait.ms", "int", 500, rd="fetch.wait.max.ms", minimum=0),
    _fetch("fetch.min.bytes", "int", 1, minimum=0),
    _fetch("max.partition.fetch.bytes", "int", 1_048_576, minimum=0),
    _fetch("isolation.level", "str", "read_uncommitted"),
    # librdkafka's own settings, for tuning.
    _fetch("queued.min.messages", "int", None, minimum=1),
    _fetch("queued.max.messages.kbytes", "int", None, minimum=1),
    _fetch("fetch.queue.backoff.ms", "int", None, minimum=0),
    _fetch("fetch.error.backoff.ms", "int", None, minimum=0),
    _group("session.timeout.ms", "int", 45_000, minimum=1),
    _group("heartbeat.interval.ms", "int", 3_000, minimum=1),
    _group("max.poll.interval.ms", "int", 300_000, minimum=1),
    _group("exclude.internal.topics", "bool", True),
    _engine(
        "max.poll.records", "c", "int", 5_000, "Maximum number of records of one poll.", minimum=1
    ),
    _engine(
        "auto.offset.reset",
        "c",
        "object",
        "earliest",
        "Where to start without a committed offset: `earliest`, `latest`, `none`, or "
        "`by_duration:PT12H` or a timedelta (how far back from now).",
    ),
    _engine("group.instance.id", "c", "str", None, "Each thread appends its index."),
    _engine(
        "default.api.timeout.ms",
        "ca",
        "int",
        60_000,
        "Timeout of requests about the cluster.",
        minimum=1,
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
    _unsupported("interceptor.classes", "cp", "list", (), _JVM),
    _unsupported("share.acknowledgement.mode", "c", "str", "implicit", _SHARE),
    _unsupported("share.acquire.mode", "c", "str", "BATCH_OPTIMIZED", _SHARE),
)

_PRODUCER: Final = (
    _produce("acks", "str", "all"),
    _produce("batch.size", "int", 16_384, minimum=0),
    _produce("buffer.memory", "int", 33_554_432, rd="queue.buffering.max.kbytes", minimum=0),
    _produce("compression.type", "str", "none"),
    _produce("compression.gzip.level", "int", -1, rd="compression.level", minimum=-1),
    _produce("compression.lz4.level", "int", 9, rd="compression.level"),
    _produce("compression.zstd.level", "int", 3, rd="compression.level"),
    # 0 means no limit in librdkafka, but an immediate timeout in Java.
    _produce("delivery.timeout.ms", "int", 120_000, minimum=1),
    _produce("enable.idempotence", "bool", True),
    _produce("linger.ms", "float", 5, minimum=0),
    _produce("max.in.flight.requests.per.connection", "int", 5, minimum=1),
    # librdkafka's minimum.
    _produce("max.request.size", "int", 1_048_576, rd="message.max.bytes", minimum=1_000),
    _produce("retries", "int", 2_147_483_647, clients="pa", minimum=0),
    _produce("transaction.timeout.ms", "int", 60_000, minimum=1),
    # librdkafka's own settings, for tuning.
    _produce("queue.buffering.max.messages", "int", None, minimum=0),
    _produce("batch.num.messages", "int", None, minimum=1),
    _produce("sticky.partitioning.linger.ms", "int", None, minimum=0),
    _engine(
        "max.block.ms",
        "p",
        "int",
        60_000,
        "How long a send waits for space in a full producer queue before a warning. The warning is "
        "repeated until `task_timeout_ms` has passed; then the thread fails.",
        minimum=0,
    ),
    _imposed("transactional.id", "p"),
    _imposed("key.serializer", "p"),
    _imposed("value.serializer", "p"),
    _unsupported("metadata.max.idle.ms", "p", "int", 300_000, "librdkafka has no such limit."),
    _unsupported(
        "partitioner.class",
        "p",
        "str",
        None,
        "Pass a partitioner to the sink: stream.to(..., partitioner=f).",
    ),
    _unsupported(
        "partitioner.ignore.keys", "p", "bool", False, "The hash of the key selects the partition."
    ),
    _unsupported(
        "partitioner.adaptive.partitioning.enable",
        "p",
        "bool",
        True,
        "librdkafka distributes records without a key evenly.",
    ),
    _unsupported(
        "partitioner.availability.timeout.ms", "p", "int", 0, "librdkafka has no such limit."
    ),
    _unsupported(
        "transaction.two.phase.commit.enable",
        "p",
        "bool",
        False,
        "Each thread commits its own transaction.",
    ),
    _unsupported("bootstrap.controllers", "a", "list", (), "Clients connect to brokers."),
)

_METRICS: Final = (
    _engine("metrics.num.samples", "cpa", "int", 2, _MEASURED, minimum=1),
    _engine("metrics.sample.window.ms", "cpa", "int", 30_000, _MEASURED, minimum=1),
    _engine("metrics.recording.level", "cpa", "str", "INFO", _MEASURED),
    _jvm("metric.reporters", "list", ("org.apache.kafka.common.metrics.JmxReporter",)),
    _jvm("config.providers", "list", ()),
)

#: The prefix of Java's token settings. Those that are not in the table are for signing and
#: validating tokens in the client.
_OAUTH_PREFIX: Final = "sasl.oauthbearer."
_OAUTH_ADVICE: Final = (
    "Set 'sasl.login.callback.handler.class' to a function without arguments that returns (token, "
    "lifetime in seconds); both clients then use it."
)

#: The table, by Kafka's name.
CLIENT_SETTINGS: Final[Mapping[str, ClientSetting]] = {
    row.name: row for row in (*_CONNECTIONS, *_SECURITY_SETTINGS, *_CONSUMER, *_PRODUCER, *_METRICS)
}

#: The Java client of a role.
_CLIENT_OF: Final[Mapping[Role, str]] = {
    "main_consumer": "c",
    "restore_consumer": "c",
    "global_consumer": "c",
    "member": "c",
    "producer": "p",
    "admin": "a",
}


def is_client_setting(name: str) -> bool:
    return name in CLIENT_SETTINGS or name.startswith(_OAUTH_PREFIX)


def applies_to(row: ClientSetting, role: Role) -> bool:
    return _CLIENT_OF[role] in row.clients


def parsed_client_value(row: ClientSetting, value: Any) -> Any:
    """Convert `value` to the type of the setting.

    Strings are parsed as in a properties file. Raises ConfigError if the conversion fails or the
    value is below the minimum.
    """
    parsed = _of_kind(row, value)
    # `not >=` also rejects NaN.
    if row.minimum is not None and parsed is not None and not parsed >= row.minimum:
        raise ConfigError(f"{row.name} is {value!r}, but must be at least {row.minimum}.")
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
    # A bool is an int in Python, but not as a setting.
    kinds: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
    if type(value) in kinds.get(row.kind, ()):
        return value
    raise ConfigError(f"{row.name} is {value!r}, but must be of type {row.kind}.")


def check_client_settings(where: str, values: Mapping[str, Any], roles: tuple[Role, ...]) -> None:
    """Reject unsupported client settings, and log a warning about ignored settings.

    `where` is the argument that contains the settings, for messages. Raises ConfigError if a
    setting is unknown to these clients or not supported by one of the libraries.
    """
    for name, value in values.items():
        row = CLIENT_SETTINGS.get(name)
        if row is None:
            raise _unknown_client_setting(where, name)
        if not any(applies_to(row, role) for role in roles):
            raise ConfigError(f"{where}[{name!r}]: clients of this kind have no such setting.")
        value = parsed_client_value(row, value)
        if value == row.default:
            continue
        if row.scope is SettingScope.IMPOSED:
            _log.warning(
                "%s[%r] is ignored: Millstream sets it, as Kafka Streams does.", where, name
            )
            continue
        if row.scope is SettingScope.UNSUPPORTED:
            raise ConfigError(f"{where}[{name!r}] is not supported by librdkafka. {row.why}")
        if row.librdkafka is None:
            raise ConfigError(
                f"{where}[{name!r}] is not supported by librdkafka. Leave it at {row.default!r}."
            )
        if row.kafka_python is None and "member" in roles:
            raise ConfigError(
                f"{where}[{name!r}] is not supported by kafka-python, which is the member of the "
                f"consumer group. Leave it at {row.default!r}, or set it only for producer, admin "
                "or restore_consumer."
            )


#: The dictionary for a client setting that was passed as an argument, by the Java clients that have
#: the setting.
_DICTIONARY_OF_CLIENTS: Final = {"c": "consumer", "p": "producer", "a": "admin"}


def dictionary_of_client_setting(name: str) -> str | None:
    """Return the dictionary for a client setting; None if users cannot set it."""
    row = CLIENT_SETTINGS.get(name)
    if row is None or row.scope is SettingScope.IMPOSED:
        return None
    return _DICTIONARY_OF_CLIENTS.get(row.clients, "clients")


def client_setting_advice(name: str) -> str:
    """Explain how to pass a client setting that was passed as an argument.

    Returns an empty string if the setting does not exist.
    """
    row = CLIENT_SETTINGS.get(name.replace("_", "."))
    if row is None:
        return ""
    if row.name == "group.id":
        return "The id of the consumer group is set with application_id=."
    if row.scope is SettingScope.IMPOSED:
        return f"Millstream sets {row.name}, as Kafka Streams does: remove it."
    where = dictionary_of_client_setting(row.name)
    return f"It is a setting of the Kafka clients: write {where}={{{row.name!r}: ...}}."


def _unknown_client_setting(where: str, name: str) -> ConfigError:
    if name.startswith(_OAUTH_PREFIX):
        return ConfigError(f"{where}[{name!r}] is not supported by kafka-python. {_OAUTH_ADVICE}")
    hint = did_you_mean(name, CLIENT_SETTINGS)
    return ConfigError(f"{where}[{name!r}] is not a setting of Kafka's clients.{hint}")


#: The dictionaries with the settings of a role, the most specific last.
DICTIONARIES_OF: Final[Mapping[Role, tuple[str, ...]]] = {
    "main_consumer": ("clients", "consumer", "main_consumer"),
    "member": ("clients", "consumer", "main_consumer"),
    "restore_consumer": ("clients", "consumer", "restore_consumer"),
    "global_consumer": ("clients", "consumer", "global_consumer"),
    "producer": ("clients", "producer"),
    "admin": ("clients", "admin"),
}


def merged_client_settings(config: Any, role: Role) -> dict[str, Any]:
    """Return the explicitly set settings of one client by Kafka's names.

    As in Kafka Streams, a setting of the application that clients also have (`request.timeout.ms`)
    applies to them only if it was set explicitly, and the most specific dictionary takes
    precedence. Raises ConfigError if a value has the wrong type.
    """
    merged: dict[str, Any] = {}
    for field in config.settings():
        row = CLIENT_SETTINGS.get(field.dotted)
        if row is not None and field.name in config.given and row.scope is SettingScope.NETWORK:
            merged[row.name] = getattr(config, field.name)
    for dictionary in DICTIONARIES_OF[role]:
        for name, value in getattr(config, dictionary).items():
            row = CLIENT_SETTINGS[name]
            if applies_to(row, role) and row.scope is not SettingScope.IMPOSED:
                merged[name] = parsed_client_value(row, value)
    return merged
