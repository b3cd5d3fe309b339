"""Keys, ranges, windows, sessions and versions of real stores, as the server tells them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.http_client import HttpClient
from support.tasks.served_tasks import ServedTasks

from millstream import ServerAddress
from millstream.runtime.states import ClientState
from millstream.serdes import LONG
from millstream.server.cursors import Cursor
from millstream.server.forms import from_base64
from millstream.server.serving import Serving
from millstream.server.settings import ServerOptions

TOKEN = "a-token-for-tests"
WORDS = ["ann", "bob", "ann", "c/d", "eveline", "judy", "nöö %&?#+"]


def write(served: ServedTasks) -> None:
    """Clicks of two minutes in three partitions, and a few prices, numbers and rates."""
    served.click(WORDS, time=5_000)
    served.click(WORDS, time=65_000)
    served.click(["ann"], time=600_000)
    for price, time in ((5, 1_000), (7, 2_000), (9, 4_000)):
        served.tasks[0].write("prices-in", b"ann", LONG.serialize("", price), time)
    served.tasks[0].write("numbers-in", b"\0\0\0\0\0\0\0\7", b"seven", 0)
    for task in served.tasks:
        task.write("rates-in", b"eur", LONG.serialize("", 3), 0)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTasks]:
    with ServedTasks(3) as tasks:
        write(tasks)
        yield tasks


@pytest.fixture(scope="module")
def client(served: ServedTasks) -> Iterator[HttpClient]:
    serving = Serving(served, ServerOptions("127.0.0.1", 0, TOKEN))
    yield HttpClient(ServerAddress(f"http://127.0.0.1:{serving.port}", TOKEN))
    serving.close()


def refused(client: HttpClient, path: str, **given: Any) -> tuple[int, str]:
    status, document = client.ask(path, **given)
    return status, document["error"]["code"]


def test_a_key_is_found_whatever_is_in_it(client: HttpClient) -> None:
    """Hunts keys cut at a slash, decoded twice, or looked for in one partition alone: they were not
    written by Kafka's partitioner here."""
    for word in set(WORDS):
        found = client.get("stores", "counts", "keys", word)
        assert (found["key"], found["value"]) == (word, 5 if word == "ann" else 2)
        assert found["partition"] == len(word) % 3
    assert client.get("stores", "counts", "keys", "ann")["timestamp"] == 600_000
    # A slash may stand for itself, and a plus sign, too.
    assert client.ask("/stores/counts/keys/c/d")[1]["value"] == 2
    assert refused(client, "/stores/counts/keys/c%252Fd") == (404, "KEY_NOT_FOUND")
    assert refused(client, "/stores/counts/keys/") == (404, "KEY_NOT_FOUND")


def test_keys_are_read_by_the_serde(client: HttpClient) -> None:
    """As a text, as JSON, as base64 of the bytes; what is none of these is refused."""
    for text, form in (("7", "text"), ("7", "json"), ("AAAAAAAAAAc", "base64")):
        found = client.get("stores", "numbers", "keys", text, key_as=form)
        assert (found["key"], found["value"]) == (7, "seven")
    for text, form in (("x", "text"), ("{}", "json"), ("AAAA", "base64"), ("!", "base64")):
        path = f"/stores/numbers/keys/{text}?key_as={form}"
        assert refused(client, path) == (400, "BAD_REQUEST")
    assert refused(client, "/stores/numbers/keys/9999999999999999999") == (400, "BAD_REQUEST")
    assert client.get("stores", "carts", "keys", "ann")["value"] == ["click"] * 5
    assert client.get("stores", "rates", "keys", "eur")["value"] == 3


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("descending", [False, True])
def test_pages_are_the_whole(client: HttpClient, limit: int, descending: bool) -> None:
    """Goal: whatever the size of pages is, nothing is left out or told twice."""
    for path, count in (
        (("counts", "range"), 6),
        (("minutes", "windows"), 13),
        (("minutes", "windows", "ann"), 3),
        (("visits", "sessions", "ann"), 2),
        (("prices", "versions", "ann"), 3),
        (("rates", "range"), 1),
    ):
        whole = client.get("stores", *path, limit=1_000, descending=descending)
        assert whole["cursor"] is None
        assert len(whole["entries"]) == count
        entries = client.pages("stores", *path, limit=limit, descending=descending)
        assert entries == whole["entries"]


def test_ranges_and_times_include_their_ends(client: HttpClient) -> None:
    keys = [
        each["key"]
        for each in client.get("stores", "counts", "range", from_="bob", to="c/d")["entries"]
    ]
    assert sorted(keys) == ["bob", "c/d"]
    starts = [
        each["window_start"]
        for each in client.get("stores", "minutes", "windows", "ann", from_=0, to=60_000)["entries"]
    ]
    assert starts == [0, 60_000]
    versions = client.get("stores", "prices", "versions", "ann", as_of=2_500)["entries"]
    assert [(each["value"], each["timestamp"], each["valid_to"]) for each in versions] == [
        (7, 2_000, 4_000)
    ]


def test_a_cursor_goes_on_although_its_entry_is_gone(
    client: HttpClient, served: ServedTasks
) -> None:
    """A key that was deleted meanwhile ends no page; an order that cannot be resumed says so."""
    for key in (b"\0\0\0\0\0\0\0\10", b"\0\0\0\0\0\0\0\11"):
        served.tasks[0].write("numbers-in", key, b"more", 0)
    first = client.get("stores", "numbers", "range", limit=2)
    assert [each["key"] for each in first["entries"]] == [7, 8]
    served.tasks[0].write("numbers-in", b"\0\0\0\0\0\0\0\10", None, 0)
    second = client.get("stores", "numbers", "range", limit=2, cursor=first["cursor"])
    assert [each["key"] for each in second["entries"]] == [9]
    served.tasks[0].write("numbers-in", b"\0\0\0\0\0\0\0\11", None, 0)
    versions = client.get("stores", "prices", "versions", "ann", limit=1)
    other = f"/stores/prices/versions/bob?cursor={versions['cursor']}"
    assert refused(client, other) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    "wrong", [{"start_ms": 2**64 - 1}, {"end_ms": 2**63}, {"partition": -2}, {"seen": 0}]
)
def test_a_cursor_that_somebody_has_written_is_refused(
    client: HttpClient, wrong: dict[str, int]
) -> None:
    """Hunts times that no store can look for: that was told as a defect of the server."""
    for path in (("visits", "sessions", "ann"), ("minutes", "windows")):
        given = client.get("stores", *path, limit=1)["cursor"]
        cursor = msgspec.msgpack.decode(from_base64(given), type=Cursor)
        written = msgspec.structs.replace(cursor, **wrong).written()
        asked = f"/stores/{'/'.join(path)}?limit=1&cursor={written}"
        assert refused(client, asked) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("descending", [False, True])
def test_pages_go_on_where_what_they_ended_with_is_gone(descending: bool) -> None:
    """As it is with sessions, which merge: what is there all the while is told once."""
    with ServedTasks(1) as tasks:
        for time in (0, 200_000, 400_000):
            tasks.click(["ann", "bob"], time=time)
        serving = Serving(tasks, ServerOptions("127.0.0.1", 0, TOKEN))
        client = HttpClient(ServerAddress(f"http://127.0.0.1:{serving.port}", TOKEN))
        try:
            path = ("stores", "visits", "sessions", "ann")
            page = client.get(*path, limit=2, descending=descending)
            assert [each["window_start"] for each in page["entries"]] == (
                [400_000, 200_000] if descending else [0, 200_000]
            )
            # The session of 200 s becomes another one.
            tasks.click(["ann"], time=230_000)
            page = client.get(*path, descending=descending, cursor=page["cursor"])
            starts = [each["window_start"] for each in page["entries"]]
            assert starts[-1] == (0 if descending else 400_000)
        finally:
            serving.close()


def test_a_page_takes_what_is_on_it(served: ServedTasks, client: HttpClient) -> None:
    """Hunts pages that read all that the pages before them had: the last one of a large store
    would not come in time."""
    for path in (("minutes", "windows"), ("prices", "versions", "ann")):
        told: list[int] = []
        cursor = None
        while True:
            served.told = 0
            page = client.get("stores", *path, limit=1, cursor=cursor)
            told.append(served.told)
            cursor = page["cursor"]
            if cursor is None:
                break
        # The one that it ended with, to see what comes behind, and its own.
        assert told[-1] <= 2 < told[0], path


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/stores/nowhere/keys/a", 404, "UNKNOWN_STATE_STORE"),
        ("/stores/counts/windows", 400, "WRONG_STORE_KIND"),
        ("/stores/counts/sessions/ann", 400, "WRONG_STORE_KIND"),
        ("/stores/minutes/keys/ann", 400, "WRONG_STORE_KIND"),
        ("/stores/minutes/range", 400, "WRONG_STORE_KIND"),
        ("/stores/counts/versions/ann", 400, "WRONG_STORE_KIND"),
        ("/stores/minutes/windows/ann?from=9&to=5", 400, "BAD_REQUEST"),
        ("/stores/prices/versions/ann?as_of=1&from=1", 400, "BAD_REQUEST"),
        ("/stores/minutes/windows/ann?from=-1", 400, "BAD_REQUEST"),
        ("/stores/counts/range?limit=1001", 400, "BAD_REQUEST"),
        ("/stores/counts/range?limit=1&limit=2", 400, "BAD_REQUEST"),
        ("/stores/counts/range?offset=1", 400, "BAD_REQUEST"),
        ("/stores/counts/range?descending=yes", 400, "BAD_REQUEST"),
        ("/stores/counts/range?cursor=AAAA", 400, "BAD_REQUEST"),
        ("/stores/counts/keys/%FF", 400, "BAD_REQUEST"),
        ("/stores/counts/keys/%G0", 400, "BAD_REQUEST"),
        ("/stores/counts/keys/a?key_as=pickle", 400, "BAD_REQUEST"),
        ("/stores/counts", 404, "NOT_FOUND"),
        ("/stores/", 404, "NOT_FOUND"),
        ("/subscription/properties", 404, "NOT_FOUND"),
        ("/metadata/stores/nowhere", 404, "UNKNOWN_STATE_STORE"),
        ("/metadata/stores/rates/keys/eur", 400, "WRONG_STORE_KIND"),
    ],
)
def test_what_is_wrong_is_told(client: HttpClient, path: str, status: int, code: str) -> None:
    assert refused(client, path) == (status, code)


def test_what_is_in_the_way_is_told(client: HttpClient, served: ServedTasks) -> None:
    """Goal: nothing partial is told as the whole: an error says when to ask again."""
    served.is_live = False
    try:
        for path in ("/stores/counts/keys/ann", "/stores/counts/range", "/stores/minutes/windows"):
            status, document = client.ask(path)
            assert status == 503
            assert document["error"]["retry_after_ms"] == 500
        served.is_live = True
        served.state = ClientState.CREATED
        assert refused(client, "/stores/counts/keys/ann") == (503, "NOT_STARTED")
        served.state = ClientState.NOT_RUNNING
        assert refused(client, "/stores/counts/keys/ann") == (503, "NOT_RUNNING")
    finally:
        served.is_live, served.state = True, ClientState.RUNNING


def test_properties_change(client: HttpClient, served: ServedTasks) -> None:
    """Only of a subscription, only known ones, only JSON."""
    path = "/subscription/properties"
    served.given = {"partition_concurrency": 1}
    try:
        assert client.get("subscription", "properties") == {"partition_concurrency": 1}
        changed = client.ask(path, method="PUT", body=b'{"partition_concurrency": 20}')
        assert changed == (200, {"partition_concurrency": 20})
        for body in (b"", b"[]", b"{}", b"{", b"\xff", b'"x"', b"null"):
            assert refused(client, path, method="PUT", body=body) == (400, "BAD_REQUEST")
        wrong = refused(client, path, method="PUT", body=b'{"rate": 1}')
        assert wrong == (400, "INVALID_PROPERTIES")
        assert refused(client, path, method="POST", body=b"{}") == (405, "METHOD_NOT_ALLOWED")
    finally:
        served.given = None
