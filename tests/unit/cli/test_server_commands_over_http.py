"""`millstream query`, `console` and `lag` against the real server, with real stores.

These tests detect a renamed field in the server's documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_client import HttpClient
from support.machine.authority import PASSWORD, Authority
from support.tasks.served_tasks import ServedTasks

from millstream import ServerAddress
from millstream.cli import main
from millstream.cli.application_server import ServerError, ServerLocation
from millstream.cli.commands.lag import show_stores, store_lags
from millstream.errors import StreamsError
from millstream.serdes import LONG
from millstream.server.address import write_address
from millstream.server.server_settings import ServerOptions, TlsSettings
from millstream.server.server_thread import HttpServer

TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTasks]:
    with ServedTasks(2) as tasks:
        tasks.click(["ann", "judy", "ann"], time=5_000)
        tasks.click(["ann"], time=600_000)
        for price, time in ((5, 1_000), (7, 2_000)):
            tasks.tasks[1].write("prices-in", b"ann", LONG.serialize("", price), time)
        for task in tasks.tasks:
            task.write("rates-in", b"eur", LONG.serialize("", 3), 0)
        yield tasks


@pytest.fixture(scope="module")
def url(served: ServedTasks) -> Iterator[str]:
    serving = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN))
    yield f"http://127.0.0.1:{serving.port}"
    serving.close()


@pytest.fixture
def query_lines(url: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[Any]]:
    """Run a query with --json and return the lines of output."""

    def run_query(*words: str) -> list[Any]:
        capsys.readouterr()
        assert main(["query", "--url", url, "--token", TOKEN, *words, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run_query


QueryLines = Callable[..., list[Any]]


def test_every_kind_of_store_is_read(query_lines: QueryLines) -> None:
    """Keys, ranges in pages, windows, sessions, versions, global stores."""
    (ann,) = query_lines("counts", "ann")
    assert (ann["key"], ann["value"], ann["timestamp"]) == ("ann", 3, 600_000)
    for limit in ("0", "100"):
        entries = query_lines("counts", "--limit", limit)
        assert {each["key"]: each["value"] for each in entries} == {"ann": 3, "judy": 1}
    assert [each["key"] for each in query_lines("counts", "--from", "b")] == ["judy"]
    windows = query_lines("minutes", "ann")
    assert [(each["window_start"], each["value"]) for each in windows] == [(0, 2), (600_000, 1)]
    assert len(query_lines("minutes")) == 3
    (late,) = query_lines("minutes", "ann", "--from", "1970-01-01T00:10:00")
    assert late["window_start"] == 600_000
    assert [each["value"] for each in query_lines("visits", "ann")] == [2, 1]
    assert [each["value"] for each in query_lines("prices", "ann", "--as-of", "1500")] == [5]
    assert query_lines("rates", "eur")[0]["value"] == 3


def test_tables_show_the_servers_fields(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The columns are the fields of the server's documents, with formatted times."""
    query = ["query", "--url", url, "--token", TOKEN]
    assert main(query) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["store", "form", "keys", "values", "sub-topology", "changelog"]
    found = {row[0]: row for row in rows[2:]}
    assert found["counts"][1:5] == ["key-value", "STRING", "LONG", "0"]
    assert (found["minutes"][1], found["visits"][1]) == ("window", "session")
    assert (found["prices"][1], found["rates"][4]) == ("versioned", "global")
    assert main([*query, "minutes", "judy"]) == 0
    out = capsys.readouterr().out
    assert "1970-01-01T00:01:00.000+00:00" in out
    assert main([*query, "counts", "bob"]) == 1
    assert main([*query, "count"]) == 2
    assert main(["console", "--url", url, "--token", TOKEN, "--no-browser"]) == 0


def test_the_lag_of_stores(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In columns, as returned by the server."""
    lags = store_lags(ServerLocation(url=url, token=TOKEN))
    assert lags.behind == HttpClient(ServerAddress(url, TOKEN)).get("metadata", "lags")
    show_stores(lags)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["counts", "0", "40", "42", "2"]


def test_the_reason_for_a_missing_lag_of_stores(
    url: str,
    served: ServedTasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A missing server differs from a server that returns an error."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    location = ServerLocation(application_id="shop", state_dir=str(tmp_path))
    show_stores(store_lags(location))
    assert "no server of the application was found" in capsys.readouterr().err
    file = write_address(tmp_path / "shop", ServerAddress(url, "wrong"), with_token=True)
    show_stores(store_lags(location))
    errors = capsys.readouterr().err
    assert "no server" not in errors
    assert "token" in errors
    with pytest.raises(ServerError):
        store_lags(location._replace(url=url, token="wrong"))

    def broken() -> Any:
        raise StreamsError("The group rebalances.")

    monkeypatch.setattr(served, "lags", broken)
    file.remove()
    write_address(tmp_path / "shop", ServerAddress(url, TOKEN), with_token=True)
    lags = store_lags(location)
    assert lags.behind is None
    assert "The group rebalances." in str(lags.unknown)


def _settings(own: TlsSettings, authority: Authority) -> str:
    """A program with the settings of an application that requires client certificates."""
    return f"""
from millstream import StreamsConfig
config = StreamsConfig(
    application_id="shop",
    bootstrap_servers="x:1",
    server_tls_certificate={own.certificate!r},
    server_tls_key={own.key!r},
    server_tls_key_password={PASSWORD!r},
    server_tls_ca={str(authority.certificate)!r},
    server_tls_client_ca={str(authority.certificate)!r},
)
"""


def test_a_server_that_requires_a_certificate(
    served: ServedTasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The certificate comes from the options, or from the program's settings."""
    authority = Authority(tmp_path)
    own, client = authority.sign("server"), authority.sign("client")
    ca = str(authority.certificate)
    program = tmp_path / "app.py"
    program.write_text(_settings(own, authority))
    client_tls = TlsSettings(own.certificate, own.key, PASSWORD, ca)
    serving = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN, client_tls))
    words = ["query", "--url", f"https://127.0.0.1:{serving.port}", "--token", TOKEN]
    shown = ["--cert", client.certificate, "--key", str(client.key)]
    try:
        assert main([*words, "--app", str(program)]) == 0
        monkeypatch.setenv("MILLSTREAM_KEY_PASSWORD", PASSWORD)
        assert main([*words, "--ca", ca, *shown]) == 0
        capsys.readouterr()
        # Each mistake yields a line that explains the remedy; there is never a prompt.
        junk = tmp_path / "junk.pem"
        junk.write_text("no certificate")
        for wrong, message in (
            (["--ca", ca], "--cert and --key"),
            (shown, "--ca"),
            (["--ca", str(junk)], f"Check --ca ({junk})"),
            (["--ca", ca, "--cert", str(junk)], f"--cert ({junk})"),
            (["--ca", ca, *shown[2:]], "--key requires --cert"),
        ):
            assert main([*words, *wrong]) == 1
            assert message in capsys.readouterr().err
        monkeypatch.delenv("MILLSTREAM_KEY_PASSWORD")
        assert main([*words, "--ca", ca, *shown]) == 1
        assert "MILLSTREAM_KEY_PASSWORD" in capsys.readouterr().err
    finally:
        serving.close()
