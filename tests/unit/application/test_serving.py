"""An application with a server but without threads: addresses, tokens, and cleanup."""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_client import HttpClient

from millstream import (
    ClientState,
    KafkaStreams,
    ServerAddress,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.errors import ConfigError, IllegalStateError, LockError
from millstream.parallel import ProcessorSubscription, Properties, SubscriptionConfig
from millstream.serdes import STRING
from millstream.server.address import read_address, write_address
from millstream.state.directories.state_directory import StateDirectory


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


def config(folder: Path, **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="shop", bootstrap_servers="127.0.0.1:1", state_dir=folder, **settings
    )


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[KafkaStreams]:
    application = KafkaStreams(topology(), config(tmp_path))
    yield application
    application.close()


def listening(port: int) -> set[str]:
    """The local addresses of sockets that listen on a port, in the kernel's notation."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    ends = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {address for address, number in ends if int(number, 16) == port}


def test_no_server_listens_by_default(streams: KafkaStreams) -> None:
    """By default there is no server; if there is one, it listens only on the loopback address."""
    assert streams.server_address is None
    port = int(streams.serve().url.rpartition(":")[2])
    assert listening(port) == {"0100007F"}


def test_a_server_listens_on_other_addresses_on_request(streams: KafkaStreams) -> None:
    """A server that listens on all addresses is announced by the machine's name."""
    address = streams.serve(host="0.0.0.0")
    assert listening(int(address.url.rpartition(":")[2])) == {"00000000"}
    assert address.url.startswith(f"http://{socket.gethostname()}:")


@pytest.mark.parametrize(
    ("host", "configured", "announced"),
    [
        ("127.0.0.1", "", None),
        ("localhost", "", None),
        ("0.0.0.0", "", socket.gethostname()),
        ("127.0.0.1", "127.0.0.1:8080", "127.0.0.1"),
    ],
)
def test_a_loopback_address_is_not_announced_to_other_machines(
    tmp_path: Path, host: str, configured: str, announced: str | None
) -> None:
    """Detects instances that mistake each other's partitions for their own, and send requests with
    the token to any program that listens on that port of their own machine."""
    streams = KafkaStreams(topology(), config(tmp_path, application_server=configured))
    streams.serve(host=host)
    own = streams._query_client.routing.own
    announced_server = streams._supervisor._config.application_server
    streams.close()
    assert (own and own.host) == announced
    assert announced_server.rpartition(":")[0] == (announced or "")


def test_an_unencrypted_token_is_warned_about(
    streams: KafkaStreams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.serve(host="0.0.0.0")
    assert "without TLS" in caplog.text


def test_a_generated_token_is_logged_once(
    streams: KafkaStreams, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, and in a file that only its owner can read, for as long as the server runs."""
    with caplog.at_level(logging.INFO):
        address = streams.serve()
    assert address.url.startswith("http://127.0.0.1:")
    assert caplog.text.count(address.token) == 1
    assert len(address.token) > 40
    assert address.token not in repr(address)
    file = tmp_path / "shop" / "server.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_address(tmp_path / "shop") == address
    client = HttpClient(address)
    assert client.request("/health/live")[0] == 200
    assert client.request("/health/ready")[0] == 503
    assert client.get("console", "state")["application"]["state"] == "CREATED"
    assert client.request("/stores/counts/keys/a")[1]["error"]["code"] == "NOT_STARTED"
    streams.close()
    assert not file.exists()
    assert streams.server_address is None
    with pytest.raises(OSError, match="refused"):
        client.request("/health/live")


def test_a_configured_stays_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is not logged, not written, and not shown with the settings."""
    secret = "one-that-is-used-elsewhere"
    settings = config(tmp_path, server_token=secret)
    assert secret not in repr(settings)
    streams = KafkaStreams(topology(), settings)
    with caplog.at_level(logging.DEBUG):
        assert streams.serve().token == secret
    assert secret not in caplog.text
    document = json.loads((tmp_path / "shop" / "server.json").read_text())
    assert document["token"] is None
    streams.close()


@pytest.mark.parametrize(
    "token", ["", "short", "with spaces in it", "tökens-are-ascii", "new\nlines"]
)
def test_weak_and_malformed_tokens_are_rejected(streams: KafkaStreams, token: str) -> None:
    with pytest.raises(ConfigError, match="server_token"):
        streams.serve(token=token)
    assert streams.server_address is None


def test_a_second_server_is_rejected(streams: KafkaStreams) -> None:
    address = streams.serve()
    with pytest.raises(IllegalStateError, match="already"):
        streams.serve()
    assert streams.server_address == address


def test_a_port_in_use(streams: KafkaStreams) -> None:
    """The error names the port, and another port can be tried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            streams.serve(port=port)
    with pytest.raises(ConfigError, match="no-such-host"):
        streams.serve(host="no-such-host.invalid")
    assert streams.serve(port=0)


def test_a_start_that_fails_leaves_no_server(tmp_path: Path) -> None:
    """The server starts before the threads, because they announce its address."""
    busy = KafkaStreams(topology(), config(tmp_path, server_port=0, task_timeout_ms=0))
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        busy.start()
    assert busy.state is ClientState.ERROR
    assert busy.server_address is None
    assert not (tmp_path / "shop" / "server.json").exists()


def test_a_rejected_second_server_leaves_the_first_one_intact(
    streams: KafkaStreams, tmp_path: Path
) -> None:
    """The same program started twice: the second server ends, and the first one can still be
    found."""
    address = streams.serve()
    directory = StateDirectory(str(tmp_path), "shop")
    directory.lock_application()
    again = KafkaStreams(topology(), config(tmp_path, server_port=0))
    try:
        with pytest.raises(LockError):
            again.start()
        assert again.server_address is None
        assert read_address(tmp_path / "shop") == address
    finally:
        directory.unlock_application()


def test_a_file_left_by_a_crash_is_overwritten(tmp_path: Path) -> None:
    """Regardless of its process id, which may belong to another process now."""
    (tmp_path / "server.json").write_text(
        json.dumps({"url": "http://127.0.0.1:1", "token": "x", "pid": os.getppid()})
    )
    address = ServerAddress("http://127.0.0.1:2", "a-token-for-tests")
    file = write_address(tmp_path, address, with_token=True)
    assert read_address(tmp_path) == address
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_no_token(tmp_path: Path) -> None:
    """Detects a temporary file with the token that is left behind."""
    (tmp_path / "server.json").mkdir()
    address = ServerAddress("http://127.0.0.1:2", "a-token-for-tests")
    with pytest.raises(IsADirectoryError):
        write_address(tmp_path, address, with_token=True)
    assert [each.name for each in tmp_path.iterdir()] == ["server.json"]


def test_a_file_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    """Detects a token that is sent to an address from a forged file."""
    address = ServerAddress("http://127.0.0.1:1", "a-token-for-tests")
    file = write_address(tmp_path, address, with_token=True)
    path = tmp_path / "server.json"
    assert read_address(tmp_path) == address
    for text in ("", "[]", "{", '{"url": 1}', "\0"):
        path.write_text(text)
        assert read_address(tmp_path) is None
    path.unlink()
    path.write_text(json.dumps({"url": "http://127.0.0.1:2", "token": "x", "pid": 1}))
    file.remove()
    assert path.exists(), "another process has announced its server"


def test_properties_of_a_subscription_change(tmp_path: Path) -> None:
    """Properties set over HTTP take effect in the subscription."""
    subscription = ProcessorSubscription(
        "mailer",
        topics="emails",
        processor=print,
        config=SubscriptionConfig("mailer", "127.0.0.1:1", state_dir=str(tmp_path)),
        properties=Properties(partition_concurrency=3),
    )
    client = HttpClient(subscription.serve())
    path = "/subscription/properties"
    try:
        assert client.get("subscription", "properties")["partition_concurrency"] == 3
        body = b'{"partition_concurrency": 20, "ignore_keys": ["a"]}'
        status, changed = client.request(path, method="PUT", body=body)
        assert (status, changed["partition_concurrency"]) == (200, 20)
        assert subscription.properties.partition_concurrency == 20
        assert subscription.properties.ignore_keys == ("a",)
        for wrong in (
            b'{"partition_concurrency": 0}',
            b'{"partition_concurrency": "many"}',
            b'{"no_such_thing": 1}',
            b'{"properties": {}}',
            b'{"per_key_quota_processing_rate": 5}',
        ):
            status, refused = client.request(path, method="PUT", body=wrong)
            assert (status, refused["error"]["code"]) == (400, "INVALID_PROPERTIES")
        assert subscription.properties.partition_concurrency == 20
    finally:
        subscription.close()


def test_a_server_that_cannot_be_announced_is_closed(tmp_path: Path) -> None:
    """Detects a server that continues to listen, with the token, and that can no longer be
    closed."""
    streams = KafkaStreams(topology(), config(tmp_path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    state = tmp_path / "shop"
    state.mkdir()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.application.served_application.write_address", fail)
        with pytest.raises(RuntimeError, match="the disk is gone"):
            streams.serve(port=port)
    assert not listening(port)
    assert streams.server_address is None
    streams.serve(port=port)
    assert listening(port)
    streams.close()
    assert not listening(port)
