"""`StreamsConfig.from_env`: settings in environment variables."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.serdes import LONG, STRING


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the required settings are set."""
    for name in os.environ:
        if name.startswith("MILLSTREAM_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MILLSTREAM_APPLICATION_ID", "shop")
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVERS", "a:9092,b:9092")


def with_variables(monkeypatch: pytest.MonkeyPatch, **values: str) -> StreamsConfig:
    for name, value in values.items():
        monkeypatch.setenv(f"MILLSTREAM_{name}", value)
    return StreamsConfig.from_env()


def test_values_have_the_types_of_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, flags, durations, ranges, lists, choices, objects and dictionaries."""
    config = with_variables(
        monkeypatch,
        NUM_STREAM_THREADS="1-8",
        ALLOW_OS_GROUP_WRITE_ACCESS="TRUE",
        PROCESSING_GUARANTEE="Exactly_Once_V2",
        POLL_MS="50",
        TASK_TIMEOUT_MS="PT2M",
        STATE_CLEANUP_DELAY_MS="7d",
        SERVER_PORT="",
        SPEEDUPS="false",
        RACK_AWARE_ASSIGNMENT_TAGS="zone, rack",
        DEFAULT_KEY_SERDE="millstream.serdes:STRING",
        CONSUMER_MAX_POLL_RECORDS="500",
        MAIN_CONSUMER_SESSION_TIMEOUT_MS="10s",
        CLIENTS_DEBUG="broker",
        CLIENT_TAGS_ZONE="a",
        TOPIC_RETENTION_MS="100",
        EXTRA_MY_OWN="1",
    )
    assert (config.application_id, config.bootstrap_servers) == ("shop", "a:9092,b:9092")
    assert config.num_stream_threads == (1, 8)
    assert config.allow_os_group_write_access is True
    assert config.exactly_once
    assert (config.poll_ms, config.task_timeout_ms) == (50, 120_000)
    assert config.state_cleanup_delay_ms == 7 * 86_400_000
    assert config.server_port is None
    assert config.speedups is False
    assert config.rack_aware_assignment_tags == ("zone", "rack")
    assert config.default_key_serde is STRING
    assert config.client_settings("main_consumer")["max.poll.records"] == 500
    assert config.main_consumer == {"session.timeout.ms": 10_000}
    assert config.clients == {"debug": "broker"}
    assert config.client_tags == {"zone": "a"}
    assert config.topic == {"retention.ms": "100"}
    assert config.extra == {"my.own": "1"}


def test_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments, then the environment, then the file, then defaults; dictionaries by key."""
    file = tmp_path / "app.toml"
    file.write_text(
        'poll_ms = 1\nnum_stream_threads = 1\ncommit_interval_ms = 1\napplication_id = "file"\n'
        "[consumer]\nmax.poll.records = 1\nfetch.min.bytes = 1\nfetch.max.wait.ms = 1\n"
    )
    monkeypatch.setenv("MILLSTREAM_POLL_MS", "2")
    monkeypatch.setenv("MILLSTREAM_NUM_STREAM_THREADS", "2")
    monkeypatch.setenv("MILLSTREAM_CONSUMER_FETCH_MIN_BYTES", "2")
    monkeypatch.setenv("MILLSTREAM_CONSUMER_FETCH_MAX_WAIT_MS", "2")
    config = StreamsConfig.from_env(
        file=file, poll_ms=3, consumer={"fetch.max.wait.ms": 3}, default_value_serde=LONG
    )
    assert config.application_id == "shop"
    assert (config.commit_interval_ms, config.num_stream_threads, config.poll_ms) == (1, 2, 3)
    assert config.task_timeout_ms == 300_000
    own = config.client_settings("main_consumer")
    assert (own["max.poll.records"], own["fetch.min.bytes"], own["fetch.max.wait.ms"]) == (1, 2, 3)
    assert config.default_value_serde is LONG


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("POLL_MS", "soon", "poll_ms is 'soon', but must be a number"),
        ("POLL_MS", "-1", "poll_ms is -1, but must be at least 0"),
        ("SPEEDUPS", "yes", "must be true or false"),
        ("CONSUMER_MAX_POLL_RECORDS", "0", "max.poll.records is '0'"),
        ("CONSUMER_MAX_POLL_RECORS", "5", "Did you mean 'max.poll.records'"),
        ("CONSUMER", "5", "append a name in capitals"),
        ("NUM_STREAM_THREAD", "5", "Did you mean 'MILLSTREAM_NUM_STREAM_THREADS'"),
        ("SASL_PASSWORD", "s3cret", "write MILLSTREAM_CLIENTS_SASL_PASSWORD"),
        ("CLIENTS_SASL_PASSWORD", "${env:UNSET}", "variable UNSET, which is unset"),
    ],
)
def test_errors_contain_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        with_variables(monkeypatch, **{name: value})
    assert f"environment variable MILLSTREAM_{name}" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_other_variables(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Millstream's other variables and those of Kubernetes are ignored; others are reported."""
    with caplog.at_level(logging.WARNING):
        config = with_variables(
            monkeypatch,
            CLIENT_TAG_ZONE="a",
            CACHE="/tmp",
            PORT_9092_TCP_ADDR="10.0.0.1",
            SERVICE_HOST="10.0.0.1",
            COLOR="red",
        )
    assert config.client_tags == {}
    assert [record.getMessage() for record in caplog.records] == [
        "The environment variable MILLSTREAM_COLOR is not a setting and has no effect."
    ]


def test_missing_settings_name_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_APPLICATION_ID")
    with pytest.raises(ConfigError, match="is missing: set MILLSTREAM_APPLICATION_ID, or pass"):
        StreamsConfig.from_env()
    with pytest.raises(ConfigError, match="is missing: set SHOP_APPLICATION_ID, or pass"):
        StreamsConfig.from_env("SHOP_")


def test_values_of_variables_may_be_references(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    config = with_variables(monkeypatch, CLIENTS_SASL_PASSWORD=f"${{file:{tmp_path}/password}}")
    assert config.clients == {"sasl.password": "s3cret"}
    assert "s3cret" not in repr(config)
