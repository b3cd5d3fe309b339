"""Settings passed to the two Kafka libraries, and rejected settings."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from millstream.config.client_settings import (
    CLIENT_SETTINGS,
    SECURITY,
    Role,
    SettingScope,
    parsed_client_value,
)
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.kafka.settings.librdkafka_settings import (
    client_setting,
    create_client,
    kafka_python_settings,
    librdkafka_settings,
)

#: All settings of the Java clients of Kafka 4.3.1, by client, without those of OAuth logins.
JAVA_CONSUMER = """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers check.crcs
client.dns.lookup client.id client.rack config.providers connections.max.idle.ms
default.api.timeout.ms enable.auto.commit enable.metrics.push exclude.internal.topics
fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level key.deserializer
max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism security.protocol security.providers send.buffer.bytes session.timeout.ms
share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type value.deserializer
"""
JAVA_PRODUCER_ONLY = """
acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type
compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable
transactional.id value.serializer
"""

CLIENTS: dict[Role, Any] = {
    "main_consumer": Consumer,
    "restore_consumer": Consumer,
    "global_consumer": Consumer,
    "producer": Producer,
    "admin": AdminClient,
}


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(
        **{"application_id": "shop", "bootstrap_servers": "localhost:1,other:2", **settings}
    )


def librdkafka(role: Role, **settings: Any) -> dict[str, Any]:
    return librdkafka_settings(config(**settings), role, "shop-1")


def kafka_python(**settings: Any) -> dict[str, Any]:
    return kafka_python_settings(config(**settings), client_id="shop-1")


def test_the_table_contains_every_java_client_setting() -> None:
    """An unknown setting would be an error for users coming from Java."""
    names = set((JAVA_CONSUMER + JAVA_PRODUCER_ONLY).split())
    assert names - CLIENT_SETTINGS.keys() == set()
    for name in JAVA_CONSUMER.split():
        assert "c" in CLIENT_SETTINGS[name].clients, name
    for name in JAVA_PRODUCER_ONLY.split():
        assert "p" in CLIENT_SETTINGS[name].clients, name


@pytest.mark.parametrize("role", list(CLIENTS))
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_librdkafka_accepts_the_default_settings(role: Role, guarantee: str) -> None:
    """With real clients."""
    create_client(CLIENTS[role], librdkafka(role, processing_guarantee=guarantee))


def test_every_translated_name_is_valid_in_its_library() -> None:
    """A misspelled name in the table would otherwise only surface for users of the setting."""
    samples = {"int": 1_000, "float": 5.0, "bool": True, "list": (), "str": "x"}
    special = {
        "bootstrap.servers": "a:1",
        "client.dns.lookup": "use_all_dns_ips",
        "metadata.recovery.strategy": "none",
        "broker.address.family": "v4",
        "debug": "generic",
        "isolation.level": "read_committed",
        "acks": "1",
        "compression.type": "zstd",
        "log_level": 5,
        "max.in.flight.requests.per.connection": 3,
        "fetch.max.bytes": 2_000_000,
    }
    for row in CLIENT_SETTINGS.values():
        if SECURITY in (row.librdkafka, row.kafka_python):
            continue
        value = special.get(row.name, samples.get(row.kind))
        if row.librdkafka and row.librdkafka != "compression.level":
            kind = Producer if row.clients == "p" else Consumer
            create_client(kind, {"group.id": "g", row.librdkafka: value})
        if row.kafka_python:
            assert row.kafka_python in KafkaConsumer.DEFAULT_CONFIG, row.name


def test_explicit_defaults_are_accepted() -> None:
    """Java applications may set defaults explicitly."""
    for row in CLIENT_SETTINGS.values():
        if row.default is None:
            continue
        settings = config(clients={row.name: row.default})
        for role in CLIENTS:
            librdkafka_settings(settings, role, "x")
        kafka_python_settings(settings, client_id="x")


def test_imposed_consumer_settings() -> None:
    """The member owns group and offsets. Settings that Kafka Streams imposes cannot be changed."""
    for role in ("main_consumer", "restore_consumer", "global_consumer"):
        settings = librdkafka(role, consumer={"enable.auto.commit": True, "group.id": "mine"})
        assert settings["group.id"] == "shop"
        assert settings["client.id"] == "shop-1"
        assert settings["bootstrap.servers"] == "localhost:1,other:2"
        assert settings["enable.auto.commit"] is False
        assert settings["enable.auto.offset.store"] is False
        assert settings["allow.auto.create.topics"] is False
        assert settings["enable.partition.eof"] is True
        assert settings["auto.offset.reset"] == "error"
        assert "session.timeout.ms" not in settings


def test_the_isolation_level_follows_the_guarantee() -> None:
    """It is always set, since librdkafka has another default than Java."""
    assert librdkafka("main_consumer")["isolation.level"] == "read_uncommitted"
    assert kafka_python()["isolation_level"] == "read_uncommitted"
    once = {"processing_guarantee": "exactly_once_v2"}
    assert librdkafka("restore_consumer", **once)["isolation.level"] == "read_committed"
    assert kafka_python(**once)["isolation_level"] == "read_committed"
    mine = {"consumer": {"isolation.level": "read_committed"}}
    assert librdkafka("main_consumer", **mine)["isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    ("role", "name", "value", "minimum"),
    [
        ("consumer", "max.poll.records", 0, 1),
        ("main_consumer", "max.poll.records", "-5", 1),
        ("consumer", "max.poll.interval.ms", 0, 1),
        ("consumer", "session.timeout.ms", -1, 1),
        ("consumer", "fetch.max.wait.ms", -1, 0),
        ("admin", "default.api.timeout.ms", 0, 1),
        ("producer", "delivery.timeout.ms", 0, 1),
        ("producer", "linger.ms", -0.5, 0),
        ("producer", "linger.ms", float("nan"), 0),
        ("producer", "transaction.timeout.ms", 0, 1),
        ("producer", "buffer.memory", -1, 0),
        ("producer", "max.request.size", 999, 1_000),
        ("clients", "request.timeout.ms", 0, 1),
    ],
)
def test_values_below_the_minimum_are_rejected(
    role: str, name: str, value: object, minimum: int
) -> None:
    """When the configuration is created, and not minutes later by a thread that gets no records."""
    with pytest.raises(ConfigError, match=f"{re.escape(name)} is .*at least {minimum}"):
        config(**{role: {name: value}})
    config(**{role: {name: minimum}})


def test_every_number_has_a_minimum() -> None:
    """Except unsupported settings and compression levels, which depend on the codec."""
    free = {"compression.lz4.level", "compression.zstd.level"}
    for row in CLIENT_SETTINGS.values():
        if row.kind in ("int", "float") and row.scope not in (
            SettingScope.IMPOSED,
            SettingScope.UNSUPPORTED,
        ):
            if row.name in free or row.librdkafka is None:
                continue
            with pytest.raises(ConfigError, match="at least"):
                parsed_client_value(row, -1_000_000)


def test_bounds_are_split_over_threads() -> None:
    """The total over all threads does not grow with their number, unless a thread's share would be
    too small to be usable."""
    one, four, many = (
        librdkafka("main_consumer", num_stream_threads=n)["queued.max.messages.kbytes"]
        for n in (1, 4, 1000)
    )
    assert one == 4 * four
    assert many >= 1024
    unsent = "queue.buffering.max.kbytes"
    assert (
        librdkafka("producer")[unsent] == 4 * librdkafka("producer", num_stream_threads=4)[unsent]
    )


def test_names_and_values_are_translated() -> None:
    """Java's names become librdkafka's; -1 and 0 keep their meaning."""
    consumer = librdkafka(
        "main_consumer",
        consumer={
            "fetch.max.wait.ms": "20",
            "fetch.min.bytes": 0,
            "receive.buffer.bytes": -1,
            "connections.max.idle.ms": -1,
            "metadata.max.age.ms": 60_000,
        },
    )
    assert consumer["fetch.wait.max.ms"] == 20
    assert consumer["fetch.min.bytes"] == 1
    assert consumer["socket.receive.buffer.bytes"] == 0
    assert consumer["connections.max.idle.ms"] == 0
    assert consumer["topic.metadata.refresh.interval.ms"] == 60_000
    producer = librdkafka(
        "producer",
        request_timeout_ms=7_000,
        producer={"buffer.memory": 2**20, "max.request.size": 5_000, "acks": -1},
    )
    assert producer["queue.buffering.max.kbytes"] == 1024
    assert producer["message.max.bytes"] == 5_000
    assert producer["acks"] == "all"
    assert producer["request.timeout.ms"] == producer["socket.timeout.ms"] == 7_000


def test_a_member_gets_group_and_network_settings() -> None:
    """It does not get settings for fetching."""
    member = kafka_python(
        request_timeout_ms=7_000,
        receive_buffer_bytes=-1,
        connections_max_idle_ms=-1,
        consumer={
            "session.timeout.ms": "8000",
            "heartbeat.interval.ms": 900,
            "fetch.min.bytes": 100,
            "client.rack": "a",
        },
        main_consumer={"max.poll.interval.ms": 10_000},
    )
    assert member["bootstrap_servers"] == ["localhost:1", "other:2"]
    assert member["group_id"] == "shop"
    assert member["client_id"] == "shop-1"
    assert member["session_timeout_ms"] == 8_000
    assert member["heartbeat_interval_ms"] == 900
    assert member["max_poll_interval_ms"] == 10_000
    assert member["request_timeout_ms"] == 7_000
    assert member["client_rack"] == "a"
    assert member["receive_buffer_bytes"] is None
    assert member["connections_max_idle_ms"] > 10**9
    assert member["enable_auto_commit"] is False
    assert member["allow_auto_create_topics"] is False
    assert "fetch_min_bytes" not in member
    assert set(member) <= set(KafkaConsumer.DEFAULT_CONFIG)


def test_a_member_waits_for_brokers_for_task_timeout() -> None:
    """0 disables retries, not the first attempt."""
    assert kafka_python()["bootstrap_timeout_ms"] == 300_000
    assert kafka_python(task_timeout_ms=0)["bootstrap_timeout_ms"] == 15_000


def test_instance_ids_of_static_members_contain_the_thread_index() -> None:
    """Two threads with one `group.instance.id` would fence each other."""
    settings = config(consumer={"group.instance.id": "host-1"})
    names = {
        kafka_python_settings(settings, client_id="x", thread_index=index)["group_instance_id"]
        for index in (1, 2)
    }
    assert names == {"host-1-1", "host-1-2"}
    assert "group_instance_id" not in kafka_python()


def test_producer_settings() -> None:
    """An idempotent producer with Java's partitioner. The transaction timeout bounds requests and
    delivery."""
    plain = librdkafka("producer")
    assert plain["enable.idempotence"] is True
    assert plain["partitioner"] == "murmur2_random"
    # Records do not time out before their task.
    assert plain["delivery.timeout.ms"] == 300_000
    assert librdkafka("producer", task_timeout_ms=5)["delivery.timeout.ms"] == 120_000
    own = librdkafka("producer", producer={"delivery.timeout.ms": 9_000})
    assert own["delivery.timeout.ms"] == 9_000
    once = librdkafka("producer", processing_guarantee="exactly_once_v2")
    assert once["transaction.timeout.ms"] == 10_000
    assert once["socket.timeout.ms"] <= 10_000
    assert "delivery.timeout.ms" not in once


def test_weaker_acknowledgements_disable_idempotence() -> None:
    """As in Kafka's producer. Setting both explicitly is an error."""
    assert librdkafka("producer", producer={"acks": "1"})["enable.idempotence"] is False
    assert librdkafka("producer", producer={"retries": 0})["enable.idempotence"] is False
    with pytest.raises(ConfigError, match="contradicts acks=0"):
        librdkafka("producer", producer={"acks": "0", "enable.idempotence": True})
    with pytest.raises(ConfigError, match="needs an idempotent producer"):
        librdkafka("producer", producer={"acks": "1"}, processing_guarantee="exactly_once_v2")


def test_a_compression_level_applies_to_its_codec() -> None:
    """As in Java, the levels of other codecs are ignored."""
    levels = {"compression.zstd.level": 5, "compression.gzip.level": 7}
    assert "compression.level" not in librdkafka("producer", producer=levels)
    zstd = {**levels, "compression.type": "zstd"}
    assert librdkafka("producer", producer=zstd)["compression.level"] == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"consumer": {"interceptor.classes": "com.example.X"}},
            "is not supported by librdkafka",
        ),
        ({"consumer": {"retry.backoff.max.ms": 5}}, "is not supported by kafka-python"),
        ({"clients": {"socket.connection.setup.timeout.max.ms": 5}}, "not supported by librdkafka"),
        ({"producer": {"partitioner.class": "com.example.P"}}, "Pass a partitioner to the sink"),
        (
            {"clients": {"sasl.oauthbearer.jwks.endpoint.url": "x"}},
            "sasl.login.callback.handler.class",
        ),
        ({"producer": {"max.poll.records": 5}}, "clients of this kind"),
        ({"admin": {"lingr.ms": 5}}, "Did you mean 'linger.ms'"),
        ({"metadata_recovery_strategy": "none"}, "is not supported by kafka-python"),
        ({"consumer": {"fetch.min.bytes": [1]}}, "must be of type int"),
    ],
)
def test_unsupported_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    """When the configuration is created. The error names the setting and the client."""
    with pytest.raises(ConfigError) as raised:
        config(**settings)
    assert message in str(raised.value)


def test_settings_are_accepted_if_their_client_supports_them() -> None:
    """The restore consumer has no group member."""
    settings = librdkafka("restore_consumer", restore_consumer={"retry.backoff.max.ms": 500})
    assert settings["retry.backoff.max.ms"] == 500


def test_imposed_settings_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka Streams. Setting the imposed value explicitly causes no warning."""
    with caplog.at_level(logging.WARNING):
        config(consumer={"enable.auto.commit": "false"})
        assert not caplog.records
        config(consumer={"enable.auto.commit": "true"})
    assert "enable.auto.commit" in caplog.text


def test_values_out_of_the_range_of_librdkafka_are_rejected() -> None:
    """Its limits differ from Java's. The error names the setting."""
    settings = librdkafka("main_consumer", consumer={"fetch.max.wait.ms": 400_000})
    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.ms"):
        create_client(Consumer, settings)


def test_settings_applied_by_millstream() -> None:
    """Kafka Streams' defaults differ from those of consumers."""
    assert client_setting(config(), "main_consumer", "max.poll.records") == 5_000
    assert client_setting(config(), "main_consumer", "auto.offset.reset") == "earliest"
    given = config(consumer={"max.poll.records": "7"})
    assert client_setting(given, "main_consumer", "max.poll.records") == 7


def test_settings_of_the_engine_do_not_reach_a_library() -> None:
    """They would be applied twice."""
    for row in CLIENT_SETTINGS.values():
        if row.scope in (SettingScope.ENGINE, SettingScope.IMPOSED):
            assert row.librdkafka == row.kafka_python == "", row.name
