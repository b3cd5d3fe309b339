"""`StreamsConfig.from_properties` with the settings of a Java application."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError

BASE = {"application.id": "shop", "bootstrap.servers": "localhost:9092"}


class Handler:
    def __call__(self, *_: object) -> str:
        return "CONTINUE"


def read(properties: dict[str, Any]) -> StreamsConfig:
    return StreamsConfig.from_properties({**BASE, **properties})


def test_strings_are_converted_to_the_type_of_the_setting() -> None:
    """Properties files only contain strings."""
    config = read(
        {
            "num.stream.threads": "4",
            "allow.os.group.write.access": "TRUE",
            "processing.guarantee": " exactly_once_v2 ",
            "rack.aware.assignment.tags": "zone, rack",
            "poll.ms": 50,
        }
    )
    assert config.num_stream_threads == 4
    assert config.allow_os_group_write_access is True
    assert config.exactly_once
    assert config.rack_aware_assignment_tags == ("zone", "rack")
    assert config.poll_ms == 50


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num.stream.threads", "many", "num.stream.threads is 'many', but must be a number"),
        ("allow.os.group.write.access", "yes", "must be true or false"),
        ("num.stream.threads", "0", "at least 1"),
        ("consumer.max.poll.records", "many", "max.poll.records is 'many'"),
        ("consumer.max.poll.recors", "5", "Did you mean 'max.poll.records'"),
    ],
)
def test_invalid_values_are_rejected(key: str, value: str, message: str) -> None:
    """The error names the property."""
    with pytest.raises(ConfigError, match=message):
        read({key: value})


def test_prefixes_select_client_settings() -> None:
    """The most specific prefix wins: `main.consumer`, then `consumer`, then none."""
    config = read(
        {
            "max.poll.records": "1",
            "fetch.min.bytes": "1",
            "linger.ms": "7",
            "consumer.max.poll.records": "2",
            "consumer.fetch.min.bytes": "2",
            "main.consumer.max.poll.records": "3",
            "restore.consumer.fetch.min.bytes": "4",
            "global.consumer.fetch.min.bytes": "5",
            "producer.acks": "all",
            "admin.retries": "8",
            "topic.retention.ms": "100",
            "client.tag.zone": "a",
        }
    )
    assert config.client_settings("main_consumer")["max.poll.records"] == 3
    assert config.client_settings("main_consumer")["fetch.min.bytes"] == 2
    assert config.client_settings("restore_consumer")["max.poll.records"] == 2
    assert config.client_settings("restore_consumer")["fetch.min.bytes"] == 4
    assert config.client_settings("global_consumer")["fetch.min.bytes"] == 5
    assert config.client_settings("member")["max.poll.records"] == 3
    assert config.client_settings("producer")["linger.ms"] == 7
    assert "linger.ms" not in config.client_settings("main_consumer")
    assert config.client_settings("admin")["retries"] == 8
    assert config.topic == {"retention.ms": "100"}
    assert config.client_tags == {"zone": "a"}


def test_settings_of_the_application_only_reach_clients_when_given() -> None:
    """As in Kafka Streams, defaults of the application do not override those of the clients."""
    assert "request.timeout.ms" not in read({}).client_settings("producer")
    given = read({"request.timeout.ms": "7000", "consumer.request.timeout.ms": "8000"})
    assert given.client_settings("producer")["request.timeout.ms"] == 7000
    assert given.client_settings("main_consumer")["request.timeout.ms"] == 8000


def test_newer_names_override_older_ones() -> None:
    """As in Kafka Streams, in any order."""
    assert read({"cache.max.bytes.buffering": "1"}).statestore_cache_max_bytes == 1
    both = {"statestore.cache.max.bytes": "2", "cache.max.bytes.buffering": "1"}
    assert read(both).statestore_cache_max_bytes == 2
    assert read(dict(reversed(both.items()))).statestore_cache_max_bytes == 2


def test_python_objects_and_classes_are_accepted() -> None:
    """Serdes, handlers and extractors are Python objects."""
    serde = object()

    def extractor(record: object, partition_time: int) -> int:
        return 0

    config = read(
        {
            "default.key.serde": serde,
            "default.timestamp.extractor": extractor,
            "default.deserialization.exception.handler": Handler,
        }
    )
    assert config.default_key_serde is serde
    assert config.default_timestamp_extractor is extractor
    assert isinstance(config.deserialization_exception_handler, Handler)


def test_java_class_names_are_rejected_with_advice() -> None:
    """The error names the replacement. Java's own defaults are accepted."""
    with pytest.raises(ConfigError, match=r"millstream\.serdes\.LONG"):
        read({"default.key.serde": "org.apache.kafka.common.serialization.Serdes$LongSerde"})
    with pytest.raises(ConfigError, match="an equivalent object"):
        read({"default.value.serde": "com.example.MySerde"})
    config = read(
        {
            "deserialization.exception.handler": (
                "org.apache.kafka.streams.errors.LogAndFailExceptionHandler"
            ),
            "metric.reporters": "",
        }
    )
    assert config.deserialization_exception_handler is None


def test_unknown_settings_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning and a suggestion; internal flags without a warning."""
    flag = "__emit.interval.ms.kstreams.windowed.aggregation__"
    with caplog.at_level(logging.WARNING):
        config = read({"num.stream.thread": "3", "my.own": 1, flag: 0})
    assert config.extra == {"num.stream.thread": "3", "my.own": 1, flag: 0}
    assert config.num_stream_threads == 1
    assert "Did you mean 'num.stream.threads'" in caplog.text
    assert "my.own" in caplog.text
    assert flag not in caplog.text


def test_lists_of_brokers() -> None:
    """Java accepts a list instead of a string."""
    listed = StreamsConfig.from_properties({**BASE, "bootstrap.servers": ["a:1", "b:2"]})
    assert listed.bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize(
    ("text", "threads"), [("4", 4), ("1-8", (1, 8)), (" 2 - 3 ", (2, 3)), ("5-5", 5)]
)
def test_threads_may_be_a_range(text: str, threads: object) -> None:
    given = {"application.id": "a", "bootstrap.servers": "b:1", "num.stream.threads": text}
    assert StreamsConfig.from_properties(given).num_stream_threads == threads
