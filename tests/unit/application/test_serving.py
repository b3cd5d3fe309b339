"""An application that serves, without its threads: where, for whom, and what is left at the end."""

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
    """The addresses on which this machine listens at a port, as the system writes them."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    ends = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {address for address, number in ends if int(number, 16) == port}


def test_nothing_listens_unasked(streams: KafkaStreams) -> None:
    """Not at all, and then on this machine's own address alone."""
    assert streams.server_address is None
    port = int(streams.serve().url.rpartition(":")[2])
    assert listening(port) == {"0100007F"}


def test_other_addresses_are_for_who_asks(streams: KafkaStreams) -> None:
    """What listens everywhere is announced by the machine's name."""
    address = streams.serve(host="0.0.0.0")
    assert listening(int(address.url.rpartition(":")[2])) == {"00000000"}
    assert address.url.startswith(f"http://{socket.gethostname()}:")


@pytest.mark.parametrize(
    ("host", "given", "announced"),
    [
        ("127.0.0.1", "", None),
        ("localhost", "", None),
        ("0.0.0.0", "", socket.gethostname()),
        ("127.0.0.1", "127.0.0.1:8080", "127.0.0.1"),
    ],
)
def test_other_machines_are_not_told_of_this_ones_own_address(
    tmp_path: Path, host: str, given: str, announced: str | None
) -> None:
    """Hunts instances that take each other's partitions for their own, and ask whoever listens at
    that port of their own machine, with the token."""
    streams = KafkaStreams(topology(), config(tmp_path, application_server=given))
    streams.serve(host=host)
    own = streams._asked.routing.own
    told = streams._supervisor._config.application_server
    streams.close()
    assert (own and own.host) == announced
    assert told.rpartition(":")[0] == (announced or "")


def test_a_token_that_travels_in_plain_text_is_warned_of(
    streams: KafkaStreams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.serve(host="0.0.0.0")
    assert "without TLS" in caplog.text


def test_a_token_is_made_up_and_told_once(
    streams: KafkaStreams, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, and in a file that nobody else can read, as long as it is served."""
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
    assert client.ask("/health/live")[0] == 200
    assert client.ask("/health/ready")[0] == 503
    assert client.get("console", "state")["application"]["state"] == "CREATED"
    assert client.ask("/stores/counts/keys/a")[1]["error"]["code"] == "NOT_STARTED"
    streams.close()
    assert not file.exists()
    assert streams.server_address is None
    with pytest.raises(OSError, match="refused"):
        client.ask("/health/live")


def test_a_given_token_stays_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is neither logged nor written, nor shown with the settings."""
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
def test_weak_and_odd_tokens_are_refused(streams: KafkaStreams, token: str) -> None:
    with pytest.raises(ConfigError, match="server_token"):
        streams.serve(token=token)
    assert streams.server_address is None


def test_one_server_is_enough(streams: KafkaStreams) -> None:
    address = streams.serve()
    with pytest.raises(IllegalStateError, match="already"):
        streams.serve()
    assert streams.server_address == address


def test_a_port_that_is_taken(streams: KafkaStreams) -> None:
    """The error names it, and another one can be tried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            streams.serve(port=port)
    with pytest.raises(ConfigError, match="no-such-host"):
        streams.serve(host="no-such-host.invalid")
    assert streams.serve(port=0)


def test_a_start_that_fails_leaves_no_server(tmp_path: Path) -> None:
    """The server is there before the threads, which are told where it is."""
    busy = KafkaStreams(topology(), config(tmp_path, server_port=0, task_timeout_ms=0))
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        busy.start()
    assert busy.state is ClientState.ERROR
    assert busy.server_address is None
    assert not (tmp_path / "shop" / "server.json").exists()


def test_who_is_refused_takes_nothing_from_who_runs(streams: KafkaStreams, tmp_path: Path) -> None:
    """The same program started twice: the second server ends, and the first is still found."""
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


def test_a_file_that_a_crash_has_left_is_written_anew(tmp_path: Path) -> None:
    """Whatever process id is in it: that may be anybody's by now."""
    (tmp_path / "server.json").write_text(
        json.dumps({"url": "http://127.0.0.1:1", "token": "x", "pid": os.getppid()})
    )
    address = ServerAddress("http://127.0.0.1:2", "a-token-for-tests")
    file = write_address(tmp_path, address, with_token=True)
    assert read_address(tmp_path) == address
    file.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_no_token(tmp_path: Path) -> None:
    """Hunts a token beside the place where it belongs, of which nobody knows."""
    (tmp_path / "server.json").mkdir()
    address = ServerAddress("http://127.0.0.1:2", "a-token-for-tests")
    with pytest.raises(IsADirectoryError):
        write_address(tmp_path, address, with_token=True)
    assert [each.name for each in tmp_path.iterdir()] == ["server.json"]


def test_a_file_of_somebody_else_is_not_believed(tmp_path: Path) -> None:
    """Hunts a token that is sent wherever a file says."""
    address = ServerAddress("http://127.0.0.1:1", "a-token-for-tests")
    file = write_address(tmp_path, address, with_token=True)
    path = tmp_path / "server.json"
    assert read_address(tmp_path) == address
    for text in ("", "[]", "{", '{"url": 1}', "\0"):
        path.write_text(text)
        assert read_address(tmp_path) is None
    path.unlink()
    path.write_text(json.dumps({"url": "http://127.0.0.1:2", "token": "x", "pid": 1}))
    file.forget()
    assert path.exists(), "another process serves by now"


def test_properties_of_a_subscription_change(tmp_path: Path) -> None:
    """What is changed over HTTP is what the subscription works by."""
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
        status, changed = client.ask(path, method="PUT", body=body)
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
            status, refused = client.ask(path, method="PUT", body=wrong)
            assert (status, refused["error"]["code"]) == (400, "INVALID_PROPERTIES")
        assert subscription.properties.partition_concurrency == 20
    finally:
        subscription.close()


def test_a_server_that_cannot_be_announced_is_closed(tmp_path: Path) -> None:
    """Hunts a server that listens on, with the token, and that nobody can close any more."""
    streams = KafkaStreams(topology(), config(tmp_path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    state = tmp_path / "shop"
    state.mkdir()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.application.serving.write_address", fail)
        with pytest.raises(RuntimeError, match="the disk is gone"):
            streams.serve(port=port)
    assert not listening(port)
    assert streams.server_address is None
    streams.serve(port=port)
    assert listening(port)
    streams.close()
    assert not listening(port)
