"""`StreamsConfig.from_file`: TOML and properties files, references to secrets, located errors."""

from __future__ import annotations

import logging
import pickle
import textwrap
from pathlib import Path

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.processor.handlers import LogAndContinueExceptionHandler
from millstream.serdes import LONG, STRING

BASE = 'application_id = "shop"\nbootstrap_servers = "localhost:9092"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, so that messages contain short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: str, text: str) -> str:
    Path(path).write_text(textwrap.dedent(text))
    return path


def read(text: str, **settings: object) -> StreamsConfig:
    """Read a TOML file with the required settings in its first two lines."""
    return StreamsConfig.from_file(write("app.toml", BASE + textwrap.dedent(text)), **settings)


@pytest.mark.usefixtures("folder")
def test_a_toml_file_has_our_names_and_a_table_for_each_dictionary() -> None:
    """Each kind of value; dotted keys with and without quotes."""
    config = StreamsConfig.from_file(
        write(
            "shop.toml",
            """
            application_id = "shop"
            bootstrap_servers = ["a:9092", "b:9092"]
            num_stream_threads = [1, 8]
            allow_os_group_write_access = true
            commit_interval_ms = "1.5s"
            task_timeout_ms = "PT2M"
            poll_ms = 50
            rack_aware_assignment_tags = ["zone"]
            default_key_serde = "millstream.serdes:STRING"
            deserialization_exception_handler = "millstream:LogAndContinueExceptionHandler"
            client_tags = { zone = "a" }

            [consumer]
            max.poll.records = 500
            "session.timeout.ms" = "10s"

            [producer]
            compression.type = "zstd"

            [clients]
            sasl.login.callback.handler.class = "os:getcwd"

            [topic]
            "retention.ms" = 100
            """,
        )
    )
    assert config.bootstrap_servers == "a:9092,b:9092"
    assert config.num_stream_threads == (1, 8)
    assert config.allow_os_group_write_access is True
    assert (config.commit_interval_ms, config.task_timeout_ms, config.poll_ms) == (
        1500,
        120_000,
        50,
    )
    assert config.rack_aware_assignment_tags == ("zone",)
    assert config.default_key_serde is STRING
    assert isinstance(config.deserialization_exception_handler, LogAndContinueExceptionHandler)
    assert config.client_tags == {"zone": "a"}
    assert config.consumer == {"max.poll.records": 500, "session.timeout.ms": 10_000}
    assert config.producer == {"compression.type": "zstd"}
    assert callable(config.clients["sasl.login.callback.handler.class"])
    assert config.topic == {"retention.ms": 100}


@pytest.mark.usefixtures("folder")
def test_arguments_take_precedence_over_the_file() -> None:
    """Dictionaries are merged by key."""
    config = read(
        """
        poll_ms = 1
        [consumer]
        max.poll.records = 1
        fetch.min.bytes = 1
        """,
        poll_ms=2,
        consumer={"max.poll.records": 2},
        default_value_serde=LONG,
    )
    assert config.poll_ms == 2
    assert config.consumer == {"max.poll.records": 2, "fetch.min.bytes": 1}
    assert config.default_value_serde is LONG


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("poll_ms = -1", 3, "poll_ms is -1, but must be at least 0"),
        ('poll_ms = "soon"', 3, "poll_ms is 'soon', but must be a number"),
        ('\n# "poll_ms"\npoll_ms = true', 5, "must be an int"),
        ("num_stream_thread = 2", 3, "Did you mean 'num_stream_threads'"),
        ("num.stream.threads = 2", 3, "write num_stream_threads instead of num.stream.threads"),
        ('"cache.max.bytes.buffering" = 2', 3, "write statestore_cache_max_bytes"),
        ('"max.poll.records" = 2', 3, r"write it in the table \[consumer\]"),
        ("consumer = 2", 3, r"must be a table, which begins with \[consumer\]"),
        ("[consumer]\n\nmax.poll.recors = 5", 5, "Did you mean 'max.poll.records'"),
        ("[consumer]\nmax.poll.records = 0", 4, "max.poll.records is 0"),
        ("[consumer]\nacks = 0", 4, "have no such setting"),
        ("[ consumer ] # ours\n'max.poll.records' = 0", 4, "max.poll.records is 0"),
        ('consumer = {"max.poll.records" = 0}', 3, "max.poll.records is 0"),
        ("consumer.max.poll.records = 0", 3, "max.poll.records is 0"),
        ("[consumer.max]\npoll.records = 0", 4, "max.poll.records is 0"),
        ('default_key_serde = "STRING"', 3, "Write module:attribute"),
        ('default_key_serde = "millstream.serdes:NONE"', 3, "has no attribute 'NONE'"),
        ('metric_reporters = ["x"]', 3, "is not supported"),
        ("poll_ms = 1\npoll_ms = 2", 4, "is not valid TOML: Cannot overwrite a value"),
        ("poll_ms = 'x", 3, "is not valid TOML"),
        ("poll_ms = [", 3, "is not valid TOML"),
        ('[clients]\nsasl.password = "${env:UNSET}"', 4, "variable UNSET, which is unset"),
        ('[clients]\nsasl.password = "${vault:x}"', 4, "unknown provider 'vault'"),
    ],
)
def test_errors_contain_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(text)
    assert str(caught.value).startswith(f"app.toml, line {line}")


@pytest.mark.usefixtures("folder")
def test_contradictions_contain_the_lines_of_the_settings() -> None:
    """The message mentions two settings in the file; settings from arguments have no line."""
    text = """
        processing_guarantee = "exactly_once_v2"
        commit_interval_ms = "20s"
        """
    with pytest.raises(ConfigError, match=r"commit_interval_ms is set in app\.toml, line 5\)$"):
        read(text)
    with pytest.raises(ConfigError, match=r"in producer=\{\.\.\.\}, or lower the latter\.$"):
        read(text, commit_interval_ms=20_000)


@pytest.mark.usefixtures("folder")
def test_missing_settings_name_the_file() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap_servers is missing: add it to empty\.toml"):
        StreamsConfig.from_file(write("empty.toml", 'application_id = "shop"'))
    with pytest.raises(ConfigError, match=r"ends in '\.toml' or '\.properties'"):
        StreamsConfig.from_file("app.yaml")
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read: No such file"):
        StreamsConfig.from_file("nowhere.toml")


@pytest.mark.usefixtures("folder")
def test_a_properties_file_of_a_java_application(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's names, escapes and continuation lines; the last of equal lines takes precedence."""
    path = write(
        "java.properties",
        r"""
        # A Java application
        application.id=shop
        bootstrap.servers=a\:9092,\
            b\:9092
        poll.ms=1
        poll.ms=2
        cache.max.bytes.buffering=1
        statestore.cache.max.bytes=2
        main.consumer.max.poll.records=500
        default.key.serde=millstream.serdes:STRING
        client.tag.zone=\u00e9
        my.own=1
        num.stream.thread=2
        """,
    )
    with caplog.at_level(logging.WARNING):
        config = StreamsConfig.from_file(path)
    assert config.bootstrap_servers == "a:9092,b:9092"
    assert config.poll_ms == config.statestore_cache_max_bytes == 2
    assert config.main_consumer == {"max.poll.records": "500"}
    assert config.default_key_serde is STRING
    assert config.client_tags == {"zone": "é"}
    assert config.extra == {"my.own": "1", "num.stream.thread": "2"}
    assert "java.properties, line 14: The setting 'num.stream.thread' is unknown" in caplog.text
    assert "Did you mean 'num.stream.threads'?" in caplog.text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("poll.ms=soon", 3, "poll.ms is 'soon', but must be a number"),
        ("poll.ms=-1", 3, "poll_ms is -1, but must be at least 0"),
        ("\nconsumer.max.poll.recors=5", 4, "Did you mean 'max.poll.records'"),
        ("default.key.serde=com.example.MySerde", 3, "names a Java class"),
        ("poll.ms", 3, "is not a setting, because it contains no '='"),
    ],
)
def test_errors_contain_the_line_of_a_property(text: str, line: int, message: str) -> None:
    path = write("app.properties", f"application.id=shop\nbootstrap.servers=b:1\n{text}\n")
    with pytest.raises(ConfigError, match=message) as caught:
        StreamsConfig.from_file(path)
    assert str(caught.value).startswith(f"app.properties, line {line}")


@pytest.fixture
def secrets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret-env")
    (folder / "token").write_text("s3cret-file\n")
    (folder / "kafka.properties").write_text("user = ann\npassword = s3cret-key\n")
    return folder


def test_references_are_resolved(secrets: Path) -> None:
    """Kafka's forms, and the content of a file without its line break; also within a text."""
    config = read(
        f"""
        server_token = "${{file:{secrets}/token}}"
        state_dir = "/data/${{ZONE}}"
        [clients]
        sasl.username = "${{file:{secrets}/kafka.properties:user}}"
        sasl.password = "${{env:SHOP_PASSWORD}}"
        ssl.key.password = "${{dir:{secrets}:token}}"
        sasl.jaas.config = 'password="${{env:SHOP_PASSWORD}}-${{file:{secrets}/token}}";'
        """
    )
    assert config.server_token == "s3cret-file"
    assert config.state_dir == "/data/${ZONE}"
    assert config.clients == {
        "sasl.username": "ann",
        "sasl.password": "s3cret-env",
        "ssl.key.password": "s3cret-file",
        "sasl.jaas.config": 'password="s3cret-env-s3cret-file";',
    }


def test_resolved_values_are_masked(secrets: Path) -> None:
    """In repr and in errors, also where the name of the setting is not that of a secret."""
    config = read(
        f"""
        client_id = "${{env:SHOP_PASSWORD}}"
        [extra]
        vault = "${{file:{secrets}/token}}"
        [clients]
        sasl.username = "${{env:SHOP_PASSWORD}}"
        """
    )
    copy = pickle.loads(pickle.dumps(config.replace(poll_ms=1)))
    assert copy.client_id == "s3cret-env"
    assert copy.client_settings("producer")["sasl.username"] == "s3cret-env"
    for each in (config, copy):
        assert "s3cret" not in repr(each)
        assert "s3cret" not in f"{each.extra} {each.clients}"
    for text in ("poll_ms", "processing_guarantee", "default_key_serde"):
        with pytest.raises(ConfigError) as caught:
            read(f'{text} = "${{env:SHOP_PASSWORD}}"')
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        read('[consumer]\n"max.poll.records" = "${env:SHOP_PASSWORD}"')
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${file:kafka.properties:pasword}", "Did you mean 'password'"),
        ("${file:nowhere}", "nowhere cannot be read: No such file"),
        ("${file:nowhere:key}", "nowhere cannot be read: No such file"),
        ("${file:token:key}", "token, line 1 is not a setting"),
        ("${dir:token}", "must contain a folder and the name of a file"),
        ("${dir:.:../token}", "must contain a folder and the name of a file"),
        ("${dir:.:..}", "must contain a folder and the name of a file"),
        ("${evn:X}", "Did you mean 'env'"),
    ],
)
@pytest.mark.usefixtures("secrets")
def test_invalid_references(reference: str, message: str) -> None:
    """The error contains the reference and the line, but no secret."""
    with pytest.raises(ConfigError, match=message) as caught:
        read(f'server_token = "{reference}"')
    assert str(caught.value).startswith(f"app.toml, line 3: {reference}")
    assert "s3cret" not in str(caught.value)


def test_providers_of_a_java_application(secrets: Path) -> None:
    """A declared provider may have any name; other classes and parameters are rejected."""
    provider = "org.apache.kafka.common.config.provider"
    head = "application.id=shop\nbootstrap.servers=b:1\nconfig.providers=vault\n"
    declared = f"{head}config.providers.vault.class={provider}.FileConfigProvider\n"
    config = StreamsConfig.from_file(
        write(
            "app.properties",
            f"{declared}sasl.password=${{vault:{secrets}/kafka.properties:password}}\n",
        )
    )
    assert config.clients == {"sasl.password": "s3cret-key"}
    assert "s3cret" not in repr(config)
    write("app.properties", f"{head}config.providers.vault.class=com.example.Vault\n")
    with pytest.raises(ConfigError, match=r"is 'com\.example\.Vault', but must be one of"):
        StreamsConfig.from_file("app.properties")
    write("app.properties", f"{declared}config.providers.vault.param.allowed.paths=/run\n")
    with pytest.raises(ConfigError, match=r"allowed\.paths is not supported"):
        StreamsConfig.from_file("app.properties")
