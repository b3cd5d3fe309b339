"""`StreamsConfig`: defaults, validation, copies."""

from __future__ import annotations

import logging
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError

#: Defaults of Kafka Streams 4.3.1 (`StreamsConfig.configDef()`), where values can be compared.
JAVA_DEFAULTS: dict[str, Any] = {
    "acceptable.recovery.lag": 10000,
    "allow.os.group.write.access": False,
    "application.server": "",
    "buffered.records.per.partition": 1000,
    "built.in.metrics.version": "latest",
    "client.id": "",
    "commit.interval.ms": 30000,
    "connections.max.idle.ms": 540000,
    "dsl.store.format": "DEFAULT",
    "enable.metrics.push": True,
    "ensure.explicit.internal.resource.naming": False,
    "errors.dead.letter.queue.topic.name": None,
    "group.protocol": "classic",
    "log.summary.interval.ms": 120000,
    "max.task.idle.ms": 0,
    "max.warmup.replicas": 2,
    "metadata.max.age.ms": 300000,
    "metadata.recovery.rebootstrap.trigger.ms": 300000,
    "metadata.recovery.strategy": "rebootstrap",
    "metrics.num.samples": 2,
    "metrics.recording.level": "INFO",
    "metrics.sample.window.ms": 30000,
    "num.standby.replicas": 0,
    "num.stream.threads": 1,
    "poll.ms": 100,
    "probing.rebalance.interval.ms": 600000,
    "processing.exception.handler.global.enabled": False,
    "processing.guarantee": "at_least_once",
    "rack.aware.assignment.non_overlap_cost": None,
    "rack.aware.assignment.strategy": "none",
    "rack.aware.assignment.tags": (),
    "rack.aware.assignment.traffic_cost": None,
    "receive.buffer.bytes": 32768,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "repartition.purge.interval.ms": 30000,
    "replication.factor": -1,
    "request.timeout.ms": 40000,
    "retry.backoff.ms": 100,
    "security.protocol": "PLAINTEXT",
    "send.buffer.bytes": 131072,
    "state.cleanup.delay.ms": 600000,
    "state.cleanup.dir.max.age.ms": -1,
    "statestore.cache.max.bytes": 10485760,
    "task.timeout.ms": 300000,
    "topology.optimization": "none",
    "upgrade.from": None,
    "windowstore.changelog.additional.retention.ms": 86400000,
}

#: Settings with Java classes as values; only their names can be compared.
JAVA_CLASSES = {
    "config.providers",
    "default.client.supplier",
    "default.dsl.store",
    "default.key.serde",
    "default.list.key.serde.inner",
    "default.list.key.serde.type",
    "default.list.value.serde.inner",
    "default.list.value.serde.type",
    "default.timestamp.extractor",
    "default.value.serde",
    "deserialization.exception.handler",
    "dsl.store.suppliers.class",
    "metric.reporters",
    "processing.exception.handler",
    "processor.wrapper.class",
    "production.exception.handler",
    "rocksdb.config.setter",
    "state.dir",
    "task.assignor.class",
    "window.size.ms",
    "windowed.inner.class.serde",
}


class Setter:
    """Stands for a class that is passed where Java takes a class name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setter)

    def __hash__(self) -> int:
        return 1


class RequiresArgument:
    def __init__(self, something: object) -> None:
        self.something = something


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(
        **{"application_id": "shop", "bootstrap_servers": "localhost:9092", **settings}
    )


def test_every_kafka_streams_setting_is_defined_with_its_default() -> None:
    ours = {field.dotted: field for field in StreamsConfig.settings()}
    assert JAVA_CLASSES | JAVA_DEFAULTS.keys() | {"application.id", "bootstrap.servers"} <= set(
        ours
    )
    assert {name: ours[name].default for name in JAVA_DEFAULTS} == JAVA_DEFAULTS


def test_every_setting_is_documented() -> None:
    """The reference page is generated from the table."""
    for field in StreamsConfig.settings():
        assert field.name, field.dotted
        assert field.doc.endswith("."), field.name
        if field.dotted and field.kind != "mapping":
            assert field.name == field.dotted.replace(".", "_"), field.dotted


@pytest.mark.parametrize("missing", ["application_id", "bootstrap_servers"])
def test_required_settings_are_required(missing: str) -> None:
    settings = {"application_id": "shop", "bootstrap_servers": "b:1"}
    del settings[missing]
    with pytest.raises(ConfigError, match=f"needs {missing}"):
        StreamsConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_steam_threads": 2}, "Did you mean 'num_stream_threads'"),
        ({"aplication_id": "x"}, "Did you mean 'application_id'"),
        ({"auto_offset_reset": "latest"}, r"write consumer=\{'auto.offset.reset': ...\}"),
        ({"max_poll_records": 5}, r"write consumer=\{'max.poll.records': ...\}"),
        ({"session_timeout_ms": 5}, r"write consumer=\{'session.timeout.ms': ...\}"),
        ({"linger_ms": 5}, r"write producer=\{'linger.ms': ...\}"),
        ({"sasl_mechanism": "PLAIN"}, r"write clients=\{'sasl.mechanism': ...\}"),
        (
            {"enable_auto_commit": False},
            "Millstream sets enable.auto.commit, as Kafka Streams does: remove it",
        ),
        ({"group_id": "x"}, "set with application_id="),
        ({"broker": "x"}, "Write bootstrap_servers="),
        ({"bootstrap_servers": "kafka://x:1"}, "is 'host:port' without 'kafka://': write 'x:1'"),
        ({"bootstrap_servers": ["y:1", "kafka://x:1/"]}, "has 'kafka://x:1/', but"),
        ({"num.stream.threads": 2}, "Use num_stream_threads="),
        ({"cache.max.bytes.buffering": 2}, "Use statestore_cache_max_bytes="),
        ({"application_id": "a b"}, "application_id is 'a b'"),
        ({"application_id": ""}, "application_id"),
        ({"application_id": ".."}, "application_id"),
        ({"application_id": "a" * 201}, "201 characters"),
        ({"application_id": None}, "must not be None"),
        ({"bootstrap_servers": " , "}, "bootstrap_servers is empty"),
        ({"num_stream_threads": 0}, "at least 1"),
        ({"num_stream_threads": True}, "must be an int"),
        ({"num_stream_threads": 1.5}, "must be an int"),
        (
            {"num_stream_threads": (1, 2.5)},
            "must be an int or a pair",
        ),
        ({"num_stream_threads": (3, 2)}, "Use (2, 3"),
        ({"num_stream_threads": "1-8"}, "must be an int or a pair"),
        ({"commit_interval_ms": -1}, "at least 0"),
        ({"commit_interval_ms": "100"}, "must be an int"),
        ({"commit_interval_ms": timedelta(seconds=2)}, "commit_interval_ms=2000"),
        ({"max_task_idle_ms": -2}, "at least -1"),
        ({"probing_rebalance_interval_ms": 59_999}, "at least 60000"),
        ({"max_warmup_replicas": 0}, "at least 1"),
        ({"processing_guarantee": "exactly_once"}, "Did you mean 'exactly_once_v2'"),
        ({"default_dsl_store": "rocks"}, "Did you mean 'rocksdb'"),
        ({"metrics_recording_level": "WARN"}, "one of INFO, DEBUG, TRACE"),
        ({"allow_os_group_write_access": 1}, "True or False"),
        ({"application_server": "localhost"}, "host:port"),
        ({"topology_optimization": "most"}, "topology_optimization"),
        ({"rack_aware_assignment_tags": list("abcdef")}, "at most 5"),
        ({"client_tags": "zone"}, "a dictionary"),
        ({"consumer": {1: 2}}, "keys must be setting names"),
        ({"consumer": {"auto.offset.reset": "earlist"}}, "Did you mean 'earliest'"),
        ({"clients": {"auto.offset.reset": "by_duration:12h"}}, "by_duration:PT12H"),
        ({"main_consumer": {"auto.offset.reset": "by_duration:"}}, "by_duration:PT12H"),
        ({"rocksdb_config_setter": RequiresArgument}, "cannot be called without arguments"),
        ({"group_protocol": "streams"}, "not supported"),
        ({"upgrade_from": "3.9"}, "not supported"),
        ({"config_providers": ["file"]}, "not supported"),
        ({"dsl_store_format": "HEADERS"}, "not supported"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    """The error names the setting and a valid value."""
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        config(**settings)


def test_choices_are_case_insensitive() -> None:
    """Java uses `rocksDB`."""
    assert config(default_dsl_store="rocksDB").default_dsl_store == "rocksdb"


def test_classes_are_instantiated() -> None:
    """Like class names in Java."""
    assert config(rocksdb_config_setter=Setter).rocksdb_config_setter == Setter()
    setter = Setter()
    assert config(rocksdb_config_setter=setter).rocksdb_config_setter is setter


def test_the_commit_interval_follows_the_guarantee() -> None:
    """Under exactly-once, the default is 100 ms. `replace` recomputes it."""
    assert config().commit_interval_ms == 30_000
    once = config().replace(processing_guarantee="exactly_once_v2")
    assert once.exactly_once
    assert once.commit_interval_ms == 100
    assert once.replace(processing_guarantee="at_least_once").commit_interval_ms == 30_000
    given = config(commit_interval_ms=500, processing_guarantee="exactly_once_v2")
    assert given.commit_interval_ms == 500


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"commit_interval_ms": 20_000}, "transaction.timeout.ms (10000) is shorter"),
        ({"producer": {"enable.idempotence": False}}, "contradicts"),
        ({"producer": {"max.in.flight.requests.per.connection": 6}}, "at most 5"),
        ({"producer": {"transaction.timeout.ms": 50}}, "transaction.timeout.ms (50)"),
    ],
)
def test_settings_that_break_exactly_once_are_rejected(
    settings: dict[str, Any], message: str
) -> None:
    """As in Java."""
    config(**{**settings, "processing_guarantee": "at_least_once"})
    with pytest.raises(ConfigError) as raised:
        config(processing_guarantee="exactly_once_v2", **settings)
    assert message in str(raised.value)


def test_tls_settings_without_a_certificate_are_rejected() -> None:
    """Otherwise client certificates would silently not be verified."""
    tls = {"server_tls_key": "own.key", "server_tls_client_ca": "clients.pem"}
    with pytest.raises(ConfigError, match=r"_key and server_tls_client_ca.*_certificate"):
        config(**tls)
    assert config(server_tls_certificate="own.pem", **tls).server_tls_key == "own.key"


def test_the_isolation_level_is_imposed_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka Streams under exactly-once."""
    consumer = {"isolation.level": "read_uncommitted"}
    with caplog.at_level(logging.WARNING):
        config(consumer=consumer)
        assert not caplog.records
        config(consumer=consumer, processing_guarantee="exactly_once_v2")
    assert "isolation.level" in caplog.text


def test_a_config_is_immutable() -> None:
    """All threads share it."""
    one = config()
    with pytest.raises(AttributeError, match="replace"):
        one.num_stream_threads = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del one.application_id


def test_dictionaries_are_copied() -> None:
    """Later changes of a passed dictionary have no effect."""
    consumer = {"max.poll.records": 5}
    one = config(consumer=consumer)
    consumer["max.poll.records"] = 6
    assert one.consumer["max.poll.records"] == 5
    assert config().topic is not config().topic


def test_equality_and_pickling() -> None:
    """Copies in workers are equal."""
    one = config(num_stream_threads=3, topic={"retention.ms": "5"}, rocksdb_config_setter=Setter)
    for library in (pickle, cloudpickle):
        copy = pickle.loads(library.dumps(one))
        assert copy == one
        assert copy.given == one.given
        assert copy.replace(processing_guarantee="exactly_once_v2").commit_interval_ms == 100
    assert one != config(num_stream_threads=3)
    assert one.replace(num_stream_threads=1) != one


def test_secrets_are_not_printed() -> None:
    """Configs are logged."""
    one = config(
        security_protocol="SASL_SSL",
        clients={"sasl.username": "bob", "sasl.password": "hush", "ssl.keystore.key": "PRIVATE"},
    )
    assert "hush" not in repr(one)
    assert "PRIVATE" not in repr(one)
    assert "bob" in repr(one)
    assert "poll_ms" not in repr(one)


@pytest.mark.parametrize(
    "name", ["deserialization_exception_handler", "processing_exception_handler"]
)
def test_a_handler_must_be_callable(name: str) -> None:
    """A string instead of a handler is rejected immediately, not when the first record fails."""
    given: dict[str, Any] = {name: "continue"}
    with pytest.raises(ConfigError, match=f"{name} is 'continue', but must be a function"):
        StreamsConfig(application_id="a", bootstrap_servers="a:1", **given)


def test_paths_and_lists_are_accepted(tmp_path: Path) -> None:
    """They are converted to strings, as in Java's properties files."""
    settings = config(state_dir=tmp_path / "state", bootstrap_servers=["one:1", "two:2"])
    assert settings.state_dir == str(tmp_path / "state")
    assert settings.bootstrap_servers == "one:1,two:2"
    with pytest.raises(ConfigError, match=r"state_dir .* must be a path"):
        config(state_dir=3)
    with pytest.raises(ConfigError, match=r"bootstrap_servers .* must be a string or a list"):
        config(bootstrap_servers=9092)
    with pytest.raises(ConfigError, match="empty"):
        config(bootstrap_servers=[])


def test_a_range_of_threads_has_bounds() -> None:
    """The bounds are also available for a fixed number of threads. Copies keep the range."""
    ranged = config(num_stream_threads=[1, 8])
    assert ranged.num_stream_threads == (1, 8)
    assert (ranged.least_stream_threads, ranged.most_stream_threads) == (1, 8)
    assert ranged.replace(poll_ms=5).num_stream_threads == (1, 8)
    assert pickle.loads(pickle.dumps(ranged)) == ranged
    fixed = config(num_stream_threads=(3, 3))
    assert fixed.num_stream_threads == 3
    assert (fixed.least_stream_threads, fixed.most_stream_threads) == (3, 3)
