"""Goal: a malformed request is rejected and does no harm.

Too large, too slow, without the token, with unusual paths, keys and encodings; one by one, and some
at random (`support.odd_requests`).
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.http_client import HttpClient
from support.odd_requests import OddRequest, answer_to, odd_request
from support.tasks.served_tasks import ServedTasks
from support.waiting import HANG_S, NEVER_S, wait_for

from millstream import ServerAddress
from millstream.server.server_settings import ServerOptions
from millstream.server.server_thread import HttpServer

TOKEN = "a-token-for-tests"
_TIMEOUT_MS = 300
_MAX_BYTES = 50_000
_MAX_REQUESTS = 8
#: The statuses of malformed requests; and, with the token, of valid requests.
_REFUSALS = {400, 401, 404, 405, 408, 413, 429, 503}
_OPEN = re.compile(rb"^(GET|HEAD) /(assets/\S*|health/(live|ready)|)(\?\S*)? HTTP", re.IGNORECASE)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTasks]:
    with ServedTasks(2) as tasks:
        tasks.click(["ann", "bob", "eve", "judy"], time=1_000)
        yield tasks


@pytest.fixture(scope="module")
def serving(served: ServedTasks) -> Iterator[HttpServer]:
    options = ServerOptions(
        *("127.0.0.1", 0, TOKEN),
        timeout_ms=_TIMEOUT_MS,
        max_bytes=_MAX_BYTES,
        max_requests=_MAX_REQUESTS,
    )
    running = HttpServer(served, options)
    yield running
    running.close()


@pytest.fixture
def kept(served: ServedTasks) -> Iterator[socket.socket]:
    """A connection with an incomplete request to a server with a longer timeout."""
    running = HttpServer(
        served, ServerOptions("127.0.0.1", 0, TOKEN, timeout_ms=int(NEVER_S * 1_000))
    )
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.sendall(b"GET /stores HT")
        yield connection
    running.close()


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


@pytest.fixture
def client(serving: HttpServer) -> HttpClient:
    return HttpClient(ServerAddress(f"http://127.0.0.1:{serving.port}", TOKEN))


def status_of(serving: HttpServer, text: str) -> int | None:
    """Send a request, given as text, and return the status."""
    return answer_to(serving.port, text.replace("\n", "\r\n").encode("latin-1"), 5)


AUTHORIZED = f"host: x\nauthorization: Bearer {TOKEN}\n"


def test_a_body_is_bounded(serving: HttpServer) -> None:
    """With a known length or in chunks; and requests without a body must not have one."""
    put = f"PUT /subscription/properties HTTP/1.1\n{AUTHORIZED}"
    assert status_of(serving, f"{put}content-length: {_MAX_BYTES + 1}\n\n") == 413
    chunk = f"{40_000:x}\n{'x' * 40_000}\n"
    assert status_of(serving, f"{put}transfer-encoding: chunked\n\n{chunk}{chunk}0\n\n") == 413
    get = f"GET /stores HTTP/1.1\n{AUTHORIZED}"
    assert status_of(serving, f"{get}content-length: 1\n\nx") == 400
    assert status_of(serving, f"{get}transfer-encoding: chunked\n\n{chunk}0\n\n") == 400


def test_slow_requests_time_out(serving: HttpServer, kept: socket.socket) -> None:
    """Missing headers, headers that arrive slowly, and a missing body."""
    assert answer_to(serving.port, b"", HANG_S) is None
    assert answer_to(serving.port, b"GET /stores HT", HANG_S) is None
    put = f"PUT /subscription/properties HTTP/1.1\n{AUTHORIZED}content-length: 9\n\nabc"
    assert status_of(serving, put) == 408
    with socket.create_connection(("127.0.0.1", serving.port)) as connection:

        def is_closed() -> bool:
            try:
                connection.sendall(b"x")
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        wait_for(is_closed, HANG_S, "each byte must not restart the timeout")
    assert is_open(kept)


def test_a_slow_second_request_times_out(serving: HttpServer, kept: socket.socket) -> None:
    """On a connection whose first request was valid."""
    with socket.create_connection(("127.0.0.1", serving.port), timeout=HANG_S) as connection:
        request = f"GET /health/live HTTP/1.1\n{AUTHORIZED}\n".replace("\n", "\r\n").encode()
        connection.sendall(request)
        assert b" 200 OK" in connection.recv(65_536)
        connection.sendall(request[:20])
        while connection.recv(65_536):
            pass
    assert is_open(kept)


def test_slow_handlers_time_out(client: HttpClient, served: ServedTasks) -> None:
    """The client gets an error, and requests beyond the number of threads are rejected in the
    meantime."""
    release = threading.Event()
    held = [threading.Event() for _ in range(_MAX_REQUESTS)]
    waiting = iter(held)

    def slow() -> list[object]:
        next(waiting).set()
        release.wait(20)
        return []

    served.threads = slow  # type: ignore[method-assign,assignment]
    try:
        with ThreadPoolExecutor(_MAX_REQUESTS) as pool:
            pending = [pool.submit(client.request, "/metadata/threads") for _ in held]
            for each in held:
                assert each.wait(10)
            status, document = client.request("/stores")
            assert (status, document["error"]["code"]) == (429, "TOO_MANY_REQUESTS")
            assert client.request("/health/live")[0] == 200
            answers = [each.result() for each in pending]
        assert {(status, document["error"]["code"]) for status, document in answers} == {
            (503, "TIMEOUT")
        }
    finally:
        release.set()
        del served.threads
    wait_for(lambda: client.request("/stores")[0] == 200, 10, "the threads are free again")


def test_connections_are_bounded(serving: HttpServer, client: HttpClient) -> None:
    """Further connections are rejected; the open ones continue."""
    open_ones = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(64)]
    try:
        assert answer_to(serving.port, b"", 5) == 503
    finally:
        for each in open_ones:
            each.close()
    wait_for(lambda: client.request("/stores")[0] == 200, 10, "there is room again")


def run(serving: HttpServer, numbers: range) -> Counter[int | None]:
    """Send random requests in parallel, and count the statuses."""

    def one(number: int) -> tuple[OddRequest, int | None]:
        request = odd_request(number, TOKEN)
        return request, answer_to(serving.port, request.data, 15)

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(one, numbers))
    for number, (request, status) in zip(numbers, answers, strict=True):
        is_good = status is not None and status < 400
        description = f"seed {number}: {request.data[:300]!r} was answered with {status}"
        assert status is None or is_good or status in _REFUSALS, description
        assert request.is_authorized or not is_good or _OPEN.match(request.data), description
    valid = [status for request, status in answers if request.is_valid]
    # The connection of a client that is too slow may be closed, which is rare.
    assert valid.count(None) <= len(valid) // 50, "valid requests get a response"
    assert len(valid) > len(numbers) // 20
    return Counter(status for _, status in answers)


def check(
    serving: HttpServer, client: HttpClient, caplog: pytest.LogCaptureFixture, numbers: range
) -> None:
    """Send random requests, then check that the server is unchanged."""
    with caplog.at_level(logging.WARNING):
        counts = run(serving, numbers)
    assert counts.keys() >= {200, 400, 401, 404, 405, None}, counts
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not errors, [each.getMessage() for each in errors]
    wait_for(lambda: client.request("/stores")[0] == 200, 10, "it answers as before")
    assert client.get("stores", "counts", "keys", "ann")["value"] == 1


def test_malformed_requests(
    serving: HttpServer, client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A few hundred of them."""
    check(serving, client, caplog, range(500))


@pytest.mark.slow
def test_very_many_malformed_requests(
    serving: HttpServer, client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten thousand of them."""
    check(serving, client, caplog, range(1_000, 11_000))
