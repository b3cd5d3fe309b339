"""`millstream query` and `millstream console`, against a server with the documented responses."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from support.machine.http_server import HttpRequest, http_server

from millstream.cli import main
from millstream.server.address import AddressFile, ServerAddress, write_address

TOKEN = "a-token-of-the-test"


class ServedStores:
    """The server's documents and its requests.

    Attributes:
        documents: by path; a list of pages is returned page by page, by cursor.
        requests: paths with their queries, in order.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    def answer(self, path: str, query: dict[str, str], token: str) -> tuple[int, Any]:
        """The status and the document for a request."""
        if token != TOKEN:
            return 401, _error("UNAUTHORIZED", "The token is wrong.")
        self.requests.append((path, query))
        found = self.documents.get(path)
        if found is None:
            return 404, _error("KEY_NOT_FOUND", "There is no such key.")
        if isinstance(found, tuple):
            status, document = found
            return status, document
        if "pages" in found:
            number = int(query.get("cursor", "0"))
            more = str(number + 1) if number + 1 < len(found["pages"]) else None
            return 200, {"entries": found["pages"][number], "cursor": more}
        return 200, found["document"]


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def not_ready(message: str, retry_after_ms: int) -> tuple[int, Any]:
    """The response for a store that is being restored."""
    return 503, {
        "error": {"code": "STORE_NOT_READY", "message": message, "retry_after_ms": retry_after_ms}
    }


@contextmanager
def served_stores() -> Iterator[ServedStores]:
    """Run the server at its `url`."""
    stores = ServedStores()

    def respond(request: HttpRequest) -> tuple[int, bytes]:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        token = (request.headers["Authorization"] or "").removeprefix("Bearer ")
        path = "/".join(map(unquote, parts.path.split("/")))
        status, document = stores.answer(path, query, token)
        return status, json.dumps(document).encode()

    with http_server(respond) as stores.url:
        yield stores


STORES = [
    {"name": "counts", "form": "key-value", "key": "STRING", "value": "LONG", "subtopology": 1},
    {"name": "per-hour", "form": "window", "key": "STRING", "value": "LONG", "subtopology": 1},
    {"name": "visits", "form": "session", "key": "STRING", "value": "LONG", "subtopology": 2},
    {"name": "prices", "form": "versioned", "key": "STRING", "value": "LONG", "subtopology": 2},
    {"name": "held-back", "form": "buffer", "key": None, "value": None, "subtopology": 2},
]


@pytest.fixture
def served() -> Iterator[ServedStores]:
    with served_stores() as stores:
        stores.documents["/stores"] = {"document": STORES}
        yield stores


def run_query(served: ServedStores, *words: str) -> int:
    return main(["query", "--url", served.url, "--token", TOKEN, *words])


def test_stores_are_listed(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, and as the server's own document."""
    assert run_query(served) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["counts", "key-value", "STRING", "LONG", "1", "–"]
    assert run_query(served, "--json") == 0
    assert json.loads(capsys.readouterr().out) == STORES


def test_a_key(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """Its value; slashes, spaces and umlauts in keys arrive unchanged."""
    key = "a/ö b?"
    found = {"key": key, "value": 7, "timestamp": 0, "partition": 3, "host": None}
    served.documents[f"/stores/counts/keys/{key}"] = {"document": found}
    assert run_query(served, "counts", key) == 0
    out = capsys.readouterr().out
    assert "1970-01-01T00:00:00.000+00:00" in out
    assert "partition" not in out
    assert run_query(served, "counts", key, "--json") == 0
    assert json.loads(capsys.readouterr().out) == found


def test_a_key_that_is_not_there(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, as with grep, and nothing on stdout."""
    assert run_query(served, "counts", "bob") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "counts has no key 'bob'" in captured.err


def test_ranges_come_in_pages(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """All pages up to the limit; the cursor comes from the server."""
    entries = [{"key": f"k{number}", "value": number} for number in range(6)]
    served.documents["/stores/counts/range"] = {"pages": [entries[:2], entries[2:4], entries[4:]]}
    words = ["counts", "--from", "k0", "--to", "k9", "--descending", "--json"]
    assert run_query(served, *words, "--limit", "0") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == entries
    queries = [query for path, query in served.requests if path == "/stores/counts/range"]
    assert [query.get("cursor") for query in queries] == [None, "1", "2"]
    assert {query["from"] + query["to"] + query["descending"] for query in queries} == {"k0k9true"}
    assert run_query(served, "counts", "--limit", "3") == 0
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()[2:]] == ["k0", "k1", "k2"]
    assert "more than 3 entries" in captured.err


def test_windows_sessions_and_versions(served: ServedStores) -> None:
    """Each at its own path; times are sent in milliseconds, whatever their notation."""
    for path in ("per-hour/windows/ann", "per-hour/windows", "visits/sessions/ann"):
        served.documents[f"/stores/{path}"] = {"pages": [[{"key": "ann", "value": 1}]]}
    served.documents["/stores/prices/versions/tea"] = {"pages": [[{"key": "tea", "value": 1}]]}
    exit_codes = [
        run_query(served, "per-hour", "ann", "--from", "1970-01-01T00:00:01", "--to", "2000"),
        run_query(served, "per-hour"),
        run_query(served, "visits", "ann"),
        run_query(served, "prices", "tea", "--as-of", "1970-01-01T01:00:00+01:00"),
    ]
    assert exit_codes == [0, 0, 0, 0]
    queries = dict(reversed(served.requests))
    windows = queries["/stores/per-hour/windows/ann"]
    assert (windows["from"], windows["to"]) == ("1000", "2000")
    assert queries["/stores/prices/versions/tea"]["as_of"] == "0"


@pytest.mark.parametrize(
    ("words", "captured"),
    [
        (["count"], "no store 'count'. Its stores: counts, held-back, per-hour, prices, visits"),
        (["visits"], "visits is a session store: give a KEY"),
        (["held-back"], "which cannot be queried"),
        (["counts", "ann", "--from", "a"], "--from and --to are for ranges"),
        (["counts", "--as-of", "1"], "--as-of is for versioned stores"),
        (["per-hour", "--from", "yesterday"], "'yesterday' is not a time"),
        (["per-hour", "--from", "--5"], "'--5' is not a time"),
    ],
)
def test_invalid_queries(
    words: list[str], captured: str, served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2: the query does not fit the store."""
    assert run_query(served, *words) == 2
    assert captured in " ".join(capsys.readouterr().err.split())


def test_a_store_that_is_not_ready(
    served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server's own message, and when to retry."""
    served.documents["/stores/counts/keys/ann"] = not_ready("Partition 1 is restored.", 1_500)
    assert run_query(served, "counts", "ann") == 1
    assert "Partition 1 is restored. Try again in 1.5 s." in capsys.readouterr().err


def test_a_wrong_token(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """The message explains the remedy."""
    assert main(["query", "--url", served.url, "--token", "other"]) == 1
    assert "The token is wrong. Pass --token" in capsys.readouterr().err


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the address and the probable reason."""
    assert main(["query", "--url", "http://127.0.0.1:9"]) == 1
    assert "No server responds at http://127.0.0.1:9" in capsys.readouterr().err
    assert main(["query", "--url", "ftp://x"]) == 1


def truncated_response(*lines: str) -> str:
    """Accept one request, send these lines, close the connection; return the address."""
    server_socket = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with server_socket, server_socket.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall("\r\n".join((*lines, "")).encode())

    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{server_socket.getsockname()[1]}"


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
def test_a_truncated_response(status: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line as well, regardless of the status."""
    url = truncated_response(f"HTTP/1.1 {status}", "Transfer-Encoding: chunked", "", "no length")
    assert main(["query", "--url", url, "--token", TOKEN]) == 1
    assert f"No server responds at {url}" in capsys.readouterr().err


def test_the_token_is_not_sent_to_other_servers(
    served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redirect of the server works in a browser, but not in this command."""
    url = truncated_response("HTTP/1.1 302 Found", f"Location: {served.url}/stores", "")
    assert main(["query", "--url", url, "--token", TOKEN]) == 1
    assert "responds with HTTP 302" in capsys.readouterr().err
    assert served.requests == []


AnnounceServer = Callable[[Path, str], None]


@pytest.fixture
def announce_server() -> Iterator[AnnounceServer]:
    """Write the address file, as a served application does."""
    files: list[AddressFile] = []

    def announce(folder: Path, url: str) -> None:
        files.append(write_address(folder, ServerAddress(url, TOKEN), with_token=True))

    yield announce
    for file in files:
        file.remove()


def test_the_server_is_found_by_the_state_directory(
    served: ServedStores,
    announce_server: AnnounceServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the state directory, the application id, or the program; without them, only if there is
    just one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MILLSTREAM_TOKEN", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    state = tmp_path / "state"
    announce_server(state / "shop", served.url)
    program = tmp_path / "app.py"
    program.write_text(
        "from millstream import StreamsConfig\n"
        "config = StreamsConfig(application_id='shop', bootstrap_servers='x:1', "
        f"state_dir={str(state)!r})"
    )
    assert main(["query", "--state-dir", str(state)]) == 0
    assert main(["query", "--app", str(program)]) == 0
    announce_server(state / "mail", "http://127.0.0.1:9")
    assert main(["query", "--state-dir", str(state), "--application-id", "shop"]) == 0
    capsys.readouterr()
    assert main(["query", "--state-dir", str(state)]) == 1
    assert (
        f"several servers are running: {state / 'mail'}, {state / 'shop'}"
        in capsys.readouterr().err
    )
    assert main(["query", "--state-dir", str(state), "--application-id", "other"]) == 1
    assert "no server of other was found" in capsys.readouterr().err


def test_the_file_of_a_killed_application_is_not_trusted(
    served: ServedStores,
    announce_server: AnnounceServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another process may have its port now and would get the token; and the file must not hide
    other servers."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed = tmp_path / "killed" / "server.json"
    killed.parent.mkdir()
    killed.write_text(json.dumps({"url": served.url, "token": TOKEN, "pid": ended.pid}))
    words = ["query", "--state-dir", str(tmp_path)]
    assert main(words) == 1
    assert f"the process of {tmp_path / 'killed'} has ended" in capsys.readouterr().err
    # Another process has its id now.
    killed.write_text(json.dumps({"url": served.url, "token": TOKEN, "pid": os.getpid()}))
    assert main(words) == 1
    assert served.requests == []
    announce_server(tmp_path / "shop", served.url)
    assert main(words) == 0


def test_the_file_of_another_user_is_not_trusted(
    served: ServedStores,
    announce_server: AnnounceServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could redirect queries, and the token, to another server."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    announce_server(tmp_path / "shop", served.url)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert main(["query", "--state-dir", str(tmp_path)]) == 1
    assert served.requests == []


def test_the_console_is_opened_without_showing_the_token(
    served: ServedStores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All users can read a browser's command line: the browser gets a page that only this user
    can read."""
    opened: list[tuple[Path, int, str]] = []

    def open_(url: str) -> bool:
        assert url.startswith("file://")
        page = Path(url.removeprefix("file://"))
        opened.append((page, page.stat().st_mode & 0o777, page.read_text()))
        return True

    monkeypatch.setattr("webbrowser.open", open_)
    monkeypatch.setattr("millstream.cli.commands.console._BROWSER_START_S", 0.0)
    served.documents["/console/state"] = {"document": {}}
    words = ["console", "--url", served.url, "--token", TOKEN]
    assert main(words) == 0
    address = f"{served.url}/#token={TOKEN}"
    assert capsys.readouterr().out == f"{address}\n"
    ((page, mode, text),) = opened
    assert TOKEN not in str(page)
    assert f'content="0; url={address}"' in text
    assert mode == 0o600
    assert not page.exists()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"url": address}
    assert main([*words[:-1], "wrong"]) == 1
    assert len(opened) == 1


def test_terminal_control_characters_are_escaped(
    served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """A producer to the topic could otherwise set the clipboard of the reader, or overwrite the
    table."""
    value = "\x1b]52;c;eA==\x1b\\a\nb\r\x9b2J\u202e\x00é"
    found = {"key": value, "value": {"x\x1b": value}, value: value}
    served.documents["/stores/counts/keys/k"] = {"document": found}
    served.documents["/stores/counts/keys/bad"] = not_ready(f"no\x1b[2J {value}", 10)
    assert run_query(served, "counts", "k") == 0
    table = capsys.readouterr().out
    assert "\\x1b]52;c;eA==\\x1b\\a\\nb\\r\\x9b2J\\u202e\\x00é" in table
    assert len(table.splitlines()) == 3
    assert run_query(served, "counts", "k", "--json") == 0
    document = capsys.readouterr().out
    assert json.loads(document) == found
    assert run_query(served, "counts", "bad") == 1
    assert run_query(served, value) == 2
    errors = capsys.readouterr().err
    for text in (table, document, errors):
        assert not set("\x1b\x9b\r\u202e\x00") & set(text)
