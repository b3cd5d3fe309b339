"""`millstream query` and `millstream console`, against a server that answers as documented."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.machine.served_stores import TOKEN, ServedStores, not_ready, served_stores

from millstream.cli import main
from millstream.server.address import AddressFile, ServerAddress, write_address

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


def ask(served: ServedStores, *words: str) -> int:
    return main(["query", "--url", served.url, "--token", TOKEN, *words])


def test_stores_are_listed(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, and as the server's own document."""
    assert ask(served) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["counts", "key-value", "STRING", "LONG", "1", "–"]
    assert ask(served, "--json") == 0
    assert json.loads(capsys.readouterr().out) == STORES


def test_a_key(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """Its value; keys with slashes, blanks and umlauts arrive as they were written."""
    key = "a/ö b?"
    found = {"key": key, "value": 7, "timestamp": 0, "partition": 3, "host": None}
    served.documents[f"/stores/counts/keys/{key}"] = {"document": found}
    assert ask(served, "counts", key) == 0
    out = capsys.readouterr().out
    assert "1970-01-01T00:00:00.000+00:00" in out
    assert "partition" not in out
    assert ask(served, "counts", key, "--json") == 0
    assert json.loads(capsys.readouterr().out) == found


def test_a_key_that_is_not_there(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, like grep, and nothing on stdout."""
    assert ask(served, "counts", "bob") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "counts has no key 'bob'" in said.err


def test_ranges_come_in_pages(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """All pages, as far as the limit goes; the cursor is the server's."""
    entries = [{"key": f"k{number}", "value": number} for number in range(6)]
    served.documents["/stores/counts/range"] = {"pages": [entries[:2], entries[2:4], entries[4:]]}
    words = ["counts", "--from", "k0", "--to", "k9", "--descending", "--json"]
    assert ask(served, *words, "--limit", "0") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == entries
    queries = [query for path, query in served.asked if path == "/stores/counts/range"]
    assert [query.get("cursor") for query in queries] == [None, "1", "2"]
    assert {query["from"] + query["to"] + query["descending"] for query in queries} == {"k0k9true"}
    assert ask(served, "counts", "--limit", "3") == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == ["k0", "k1", "k2"]
    assert "more than these 3" in said.err


def test_windows_sessions_and_versions(served: ServedStores) -> None:
    """Each at its own path; times are milliseconds there, whatever is written here."""
    for path in ("per-hour/windows/ann", "per-hour/windows", "visits/sessions/ann"):
        served.documents[f"/stores/{path}"] = {"pages": [[{"key": "ann", "value": 1}]]}
    served.documents["/stores/prices/versions/tea"] = {"pages": [[{"key": "tea", "value": 1}]]}
    asked = [
        ask(served, "per-hour", "ann", "--from", "1970-01-01T00:00:01", "--to", "2000"),
        ask(served, "per-hour"),
        ask(served, "visits", "ann"),
        ask(served, "prices", "tea", "--as-of", "1970-01-01T01:00:00+01:00"),
    ]
    assert asked == [0, 0, 0, 0]
    queries = dict(reversed(served.asked))
    windows = queries["/stores/per-hour/windows/ann"]
    assert (windows["from"], windows["to"]) == ("1000", "2000")
    assert queries["/stores/prices/versions/tea"]["as_of"] == "0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["count"], "no store 'count'; it has counts, held-back, per-hour, prices, visits"),
        (["visits"], "visits is a session store: give the KEY"),
        (["held-back"], "which takes no queries"),
        (["counts", "ann", "--from", "a"], "--from and --to are for ranges"),
        (["counts", "--as-of", "1"], "--as-of is for versioned stores"),
        (["per-hour", "--from", "yesterday"], "'yesterday' is no time"),
        (["per-hour", "--from", "--5"], "'--5' is no time"),
    ],
)
def test_wrong_questions(
    words: list[str], said: str, served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2: what is asked does not fit the store."""
    assert ask(served, *words) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_store_that_is_not_ready(
    served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server's own words, and when to ask again."""
    served.documents["/stores/counts/keys/ann"] = not_ready("Partition 1 is restored.", 1_500)
    assert ask(served, "counts", "ann") == 1
    assert "Partition 1 is restored. Try again in 1.5 s." in capsys.readouterr().err


def test_a_wrong_token(served: ServedStores, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said what to do."""
    assert main(["query", "--url", served.url, "--token", "other"]) == 1
    assert "The token is wrong. Give --token" in capsys.readouterr().err


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the address, and why probably."""
    assert main(["query", "--url", "http://127.0.0.1:9"]) == 1
    assert "No server answers at http://127.0.0.1:9" in capsys.readouterr().err
    assert main(["query", "--url", "ftp://x"]) == 1


def broken_off(*lines: str) -> str:
    """The address of somebody who answers a single request with these lines, and hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listening, listening.accept()[0] as asking:
            asking.recv(65_536)
            asking.sendall("\r\n".join((*lines, "")).encode())

    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
def test_an_answer_that_breaks_off(status: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line as well, whatever the answer would have been."""
    url = broken_off(f"HTTP/1.1 {status}", "Transfer-Encoding: chunked", "", "no length")
    assert main(["query", "--url", url, "--token", TOKEN]) == 1
    assert f"No server answers at {url}" in capsys.readouterr().err


def test_the_token_is_sent_nowhere_else(
    served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who answers may send a browser elsewhere, and not this command."""
    url = broken_off("HTTP/1.1 302 Found", f"Location: {served.url}/stores", "")
    assert main(["query", "--url", url, "--token", TOKEN]) == 1
    assert "answers with HTTP 302" in capsys.readouterr().err
    assert served.asked == []


Tell = Callable[[Path, str], None]


@pytest.fixture
def tell() -> Iterator[Tell]:
    """Tells programs of its user, as a served application does, where it is."""
    files: list[AddressFile] = []

    def told(folder: Path, url: str) -> None:
        files.append(write_address(folder, ServerAddress(url, TOKEN), with_token=True))

    yield told
    for file in files:
        file.forget()


def test_the_server_is_found_where_the_application_keeps_its_state(
    served: ServedStores,
    tell: Tell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the state directory, the application id, or the program; the only one without either."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MILLSTREAM_TOKEN", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    state = tmp_path / "state"
    tell(state / "shop", served.url)
    program = tmp_path / "app.py"
    program.write_text(
        "from millstream import StreamsConfig\n"
        "config = StreamsConfig(application_id='shop', bootstrap_servers='x:1', "
        f"state_dir={str(state)!r})"
    )
    assert main(["query", "--state-dir", str(state)]) == 0
    assert main(["query", "--app", str(program)]) == 0
    tell(state / "mail", "http://127.0.0.1:9")
    assert main(["query", "--state-dir", str(state), "--application-id", "shop"]) == 0
    capsys.readouterr()
    assert main(["query", "--state-dir", str(state)]) == 1
    assert f"several are: {state / 'mail'}, {state / 'shop'}" in capsys.readouterr().err
    assert main(["query", "--state-dir", str(state), "--application-id", "other"]) == 1
    assert "no server of other is told" in capsys.readouterr().err


def test_the_file_of_an_application_that_was_killed_is_not_believed(
    served: ServedStores,
    tell: Tell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever has its port by now would get the token, and it would be in the way of others."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed = tmp_path / "killed" / "server.json"
    killed.parent.mkdir()
    killed.write_text(json.dumps({"url": served.url, "token": TOKEN, "pid": ended.pid}))
    words = ["query", "--state-dir", str(tmp_path)]
    assert main(words) == 1
    assert f"the one of {tmp_path / 'killed'} seems to have ended" in capsys.readouterr().err
    # Its number is another process's by now.
    killed.write_text(json.dumps({"url": served.url, "token": TOKEN, "pid": os.getpid()}))
    assert main(words) == 1
    assert served.asked == []
    tell(tmp_path / "shop", served.url)
    assert main(words) == 0


def test_the_file_of_another_user_is_not_believed(
    served: ServedStores, tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could lead the questions, and a token, elsewhere."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tell(tmp_path / "shop", served.url)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert main(["query", "--state-dir", str(tmp_path)]) == 1
    assert served.asked == []


def test_the_console_is_opened_without_showing_the_token(
    served: ServedStores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a browser is started with can be read by all users: it gets a page of this user's."""
    opened: list[tuple[Path, int, str]] = []

    def open_(url: str) -> bool:
        assert url.startswith("file://")
        page = Path(url.removeprefix("file://"))
        opened.append((page, page.stat().st_mode & 0o777, page.read_text()))
        return True

    monkeypatch.setattr("webbrowser.open", open_)
    monkeypatch.setattr("millstream.cli.commands.console._STARTS_S", 0.0)
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


def test_what_a_terminal_obeys_is_not_written(
    served: ServedStores, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who writes to a topic would set the clipboard of whoever looks, or draw over the table."""
    value = "\x1b]52;c;eA==\x1b\\a\nb\r\x9b2J\u202e\x00é"
    found = {"key": value, "value": {"x\x1b": value}, value: value}
    served.documents["/stores/counts/keys/k"] = {"document": found}
    served.documents["/stores/counts/keys/bad"] = not_ready(f"no\x1b[2J {value}", 10)
    assert ask(served, "counts", "k") == 0
    table = capsys.readouterr().out
    assert "\\x1b]52;c;eA==\\x1b\\a\\nb\\r\\x9b2J\\u202e\\x00é" in table
    assert len(table.splitlines()) == 3
    assert ask(served, "counts", "k", "--json") == 0
    document = capsys.readouterr().out
    assert json.loads(document) == found
    assert ask(served, "counts", "bad") == 1
    assert ask(served, value) == 2
    said = capsys.readouterr().err
    for text in (table, document, said):
        assert not set("\x1b\x9b\r\u202e\x00") & set(text)
