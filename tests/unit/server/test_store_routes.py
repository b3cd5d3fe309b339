"""Keys, ranges, windows, sessions and versions of real stores over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.http_client import HttpClient
from support.tasks.served_tasks import ServedTasks

from millstream import ServerAddress
from millstream.runtime.states.thread_states import ClientState
from millstream.serdes import LONG
from millstream.server.json_codec import from_base64
from millstream.server.paged_answers import PageCursor
from millstream.server.server_settings import ServerOptions
from millstream.server.server_thread import HttpServer

TOKEN = "a-token-for-tests"
WORDS = ["ann", "bob", "ann", "c/d", "eveline", "judy", "nöö %&?#+"]


def write(served: ServedTasks) -> None:
    """Write clicks of two minutes to three partitions, and a few prices, numbers and rates."""
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
    serving = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN))
    yield HttpClient(ServerAddress(f"http://127.0.0.1:{serving.port}", TOKEN))
    serving.close()


def error_of(client: HttpClient, path: str, **given: Any) -> tuple[int, str]:
    status, document = client.request(path, **given)
    return status, document["error"]["code"]


def test_keys_with_any_characters_are_found(client: HttpClient) -> None:
    """Detects keys that are cut at a slash, decoded twice, or only looked up in one partition:
    these keys were not written with Kafka's partitioner."""
    for word in set(WORDS):
        found = client.get("stores", "counts", "keys", word)
        assert (found["key"], found["value"]) == (word, 5 if word == "ann" else 2)
        assert found["partition"] == len(word) % 3
    assert client.get("stores", "counts", "keys", "ann")["timestamp"] == 600_000
    # Slashes and plus signs may be unescaped.
    assert client.request("/stores/counts/keys/c/d")[1]["value"] == 2
    assert error_of(client, "/stores/counts/keys/c%252Fd") == (404, "KEY_NOT_FOUND")
    assert error_of(client, "/stores/counts/keys/") == (404, "KEY_NOT_FOUND")


def test_keys_are_read_by_the_serde(client: HttpClient) -> None:
    """As text, as JSON, as base64 of the bytes; anything else is rejected."""
    for text, form in (("7", "text"), ("7", "json"), ("AAAAAAAAAAc", "base64")):
        found = client.get("stores", "numbers", "keys", text, key_as=form)
        assert (found["key"], found["value"]) == (7, "seven")
    for text, form in (("x", "text"), ("{}", "json"), ("AAAA", "base64"), ("!", "base64")):
        path = f"/stores/numbers/keys/{text}?key_as={form}"
        assert error_of(client, path) == (400, "BAD_REQUEST")
    assert error_of(client, "/stores/numbers/keys/9999999999999999999") == (400, "BAD_REQUEST")
    assert client.get("stores", "carts", "keys", "ann")["value"] == ["click"] * 5
    assert client.get("stores", "rates", "keys", "eur")["value"] == 3


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("descending", [False, True])
def test_pages_add_up_to_the_whole(client: HttpClient, limit: int, descending: bool) -> None:
    """Goal: with any page size, no entry is missing or duplicated."""
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


def test_a_cursor_continues_after_its_entry_was_deleted(
    client: HttpClient, served: ServedTasks
) -> None:
    """A key that was deleted in the meantime does not end the iteration; an order that cannot be
    resumed is an error."""
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
    assert error_of(client, other) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    "wrong", [{"start_ms": 2**64 - 1}, {"end_ms": 2**63}, {"partition": -2}, {"seen": 0}]
)
def test_a_forged_cursor_is_rejected(client: HttpClient, wrong: dict[str, int]) -> None:
    """Detects times that no store can look up, which were reported as a server error."""
    for path in (("visits", "sessions", "ann"), ("minutes", "windows")):
        given = client.get("stores", *path, limit=1)["cursor"]
        cursor = msgspec.msgpack.decode(from_base64(given), type=PageCursor)
        written = msgspec.structs.replace(cursor, **wrong).encode()
        request = f"/stores/{'/'.join(path)}?limit=1&cursor={written}"
        assert error_of(client, request) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("descending", [False, True])
def test_pages_continue_after_their_last_entry_is_gone(descending: bool) -> None:
    """As with sessions, which merge: entries that exist all the time are returned once."""
    with ServedTasks(1) as tasks:
        for time in (0, 200_000, 400_000):
            tasks.click(["ann", "bob"], time=time)
        serving = HttpServer(tasks, ServerOptions("127.0.0.1", 0, TOKEN))
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


def test_a_page_reads_only_its_own_entries(served: ServedTasks, client: HttpClient) -> None:
    """Detects pages that read all previous pages again: the last page of a large store would
    time out."""
    for path in (("minutes", "windows"), ("prices", "versions", "ann")):
        pairs_per_page: list[int] = []
        cursor = None
        while True:
            served.pairs_read = 0
            page = client.get("stores", *path, limit=1, cursor=cursor)
            pairs_per_page.append(served.pairs_read)
            cursor = page["cursor"]
            if cursor is None:
                break
        # The last entry of the previous page, to find the next one, and its own entry.
        assert pairs_per_page[-1] <= 2 < pairs_per_page[0], path


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
def test_errors(client: HttpClient, path: str, status: int, code: str) -> None:
    assert error_of(client, path) == (status, code)


def test_unavailable_stores_are_reported(client: HttpClient, served: ServedTasks) -> None:
    """Goal: a partial result is never returned as a complete one: an error says when to retry."""
    served.is_live = False
    try:
        for path in ("/stores/counts/keys/ann", "/stores/counts/range", "/stores/minutes/windows"):
            status, document = client.request(path)
            assert status == 503
            assert document["error"]["retry_after_ms"] == 500
        served.is_live = True
        served.state = ClientState.CREATED
        assert error_of(client, "/stores/counts/keys/ann") == (503, "NOT_STARTED")
        served.state = ClientState.NOT_RUNNING
        assert error_of(client, "/stores/counts/keys/ann") == (503, "NOT_RUNNING")
    finally:
        served.is_live, served.state = True, ClientState.RUNNING


def test_properties_change(client: HttpClient, served: ServedTasks) -> None:
    """Only for a subscription, only known properties, only JSON."""
    path = "/subscription/properties"
    served.property_values = {"partition_concurrency": 1}
    try:
        assert client.get("subscription", "properties") == {"partition_concurrency": 1}
        changed = client.request(path, method="PUT", body=b'{"partition_concurrency": 20}')
        assert changed == (200, {"partition_concurrency": 20})
        for body in (b"", b"[]", b"{}", b"{", b"\xff", b'"x"', b"null"):
            assert error_of(client, path, method="PUT", body=body) == (400, "BAD_REQUEST")
        wrong = error_of(client, path, method="PUT", body=b'{"rate": 1}')
        assert wrong == (400, "INVALID_PROPERTIES")
        assert error_of(client, path, method="POST", body=b"{}") == (405, "METHOD_NOT_ALLOWED")
    finally:
        served.property_values = None
