"""Goal: a request that is not as it should be is refused, and harms nobody.

Too large, too slow, without the token, with odd paths, keys and encodings; one by one, and some at
random (`support.odd_requests`).
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.http_client import HttpClient
from support.odd_requests import OddRequest, answer_to, odd_request
from support.tasks.served_tasks import ServedTasks
from support.waiting import wait_for

from millstream import ServerAddress
from millstream.server.serving import Serving
from millstream.server.settings import ServerOptions

TOKEN = "a-token-for-tests"
_TIMEOUT_MS = 300
_MAX_BYTES = 50_000
_MAX_REQUESTS = 8
#: What may be answered to requests that are wrong, and, with the token, to those that are right.
_REFUSALS = {400, 401, 404, 405, 408, 413, 429, 503}
_OPEN = re.compile(rb"^(GET|HEAD) /(assets/\S*|health/(live|ready)|)(\?\S*)? HTTP", re.IGNORECASE)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTasks]:
    with ServedTasks(2) as tasks:
        tasks.click(["ann", "bob", "eve", "judy"], time=1_000)
        yield tasks


@pytest.fixture(scope="module")
def serving(served: ServedTasks) -> Iterator[Serving]:
    options = ServerOptions(
        *("127.0.0.1", 0, TOKEN),
        timeout_ms=_TIMEOUT_MS,
        max_bytes=_MAX_BYTES,
        max_requests=_MAX_REQUESTS,
    )
    running = Serving(served, options)
    yield running
    running.close()


@pytest.fixture
def client(serving: Serving) -> HttpClient:
    return HttpClient(ServerAddress(f"http://127.0.0.1:{serving.port}", TOKEN))


def said(serving: Serving, text: str) -> int | None:
    """What is answered to a request as it is written here."""
    return answer_to(serving.port, text.replace("\n", "\r\n").encode("latin-1"), 5)


AUTHORIZED = f"host: x\nauthorization: Bearer {TOKEN}\n"


def test_a_body_is_bounded(serving: Serving) -> None:
    """Told beforehand, or not: in chunks; and none where none is taken."""
    put = f"PUT /subscription/properties HTTP/1.1\n{AUTHORIZED}"
    assert said(serving, f"{put}content-length: {_MAX_BYTES + 1}\n\n") == 413
    chunk = f"{40_000:x}\n{'x' * 40_000}\n"
    assert said(serving, f"{put}transfer-encoding: chunked\n\n{chunk}{chunk}0\n\n") == 413
    get = f"GET /stores HTTP/1.1\n{AUTHORIZED}"
    assert said(serving, f"{get}content-length: 1\n\nx") == 400
    assert said(serving, f"{get}transfer-encoding: chunked\n\n{chunk}0\n\n") == 400


def test_who_is_slow_is_not_waited_for(serving: Serving) -> None:
    """A head that does not come, one that drips, and a body that does not come."""
    began = time.monotonic()
    assert answer_to(serving.port, b"", 10) is None
    assert answer_to(serving.port, b"GET /stores HT", 10) is None
    put = f"PUT /subscription/properties HTTP/1.1\n{AUTHORIZED}content-length: 9\n\nabc"
    assert said(serving, put) == 408
    with socket.create_connection(("127.0.0.1", serving.port)) as connection:
        for _ in range(200):
            try:
                connection.sendall(b"x")
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.02)
    assert time.monotonic() - began < 4.1


def test_a_second_request_is_not_waited_for_either(serving: Serving) -> None:
    """Of a connection that was good for one."""
    with socket.create_connection(("127.0.0.1", serving.port), timeout=5) as connection:
        request = f"GET /health/live HTTP/1.1\n{AUTHORIZED}\n".replace("\n", "\r\n").encode()
        connection.sendall(request)
        assert b" 200 OK" in connection.recv(65_536)
        connection.sendall(request[:20])
        began = time.monotonic()
        while connection.recv(65_536):
            pass
        assert time.monotonic() - began < 2


def test_what_takes_too_long_is_given_up(client: HttpClient, served: ServedTasks) -> None:
    """The client is told, and more requests than there are threads are sent away meanwhile."""
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
            asked = [pool.submit(client.ask, "/metadata/threads") for _ in held]
            for each in held:
                assert each.wait(10)
            status, document = client.ask("/stores")
            assert (status, document["error"]["code"]) == (429, "TOO_MANY_REQUESTS")
            assert client.ask("/health/live")[0] == 200
            answers = [each.result() for each in asked]
        assert {(status, told["error"]["code"]) for status, told in answers} == {(503, "TIMEOUT")}
    finally:
        release.set()
        del served.threads
    wait_for(lambda: client.ask("/stores")[0] == 200, 10, "the threads are free again")


def test_connections_are_bounded(serving: Serving, client: HttpClient) -> None:
    """Those beyond are sent away, and the others go on."""
    open_ones = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(64)]
    try:
        assert answer_to(serving.port, b"", 5) == 503
    finally:
        for each in open_ones:
            each.close()
    wait_for(lambda: client.ask("/stores")[0] == 200, 10, "there is room again")


def run(serving: Serving, numbers: range) -> Counter[int | None]:
    """Odd requests, several at a time; how often each status was the answer."""

    def one(number: int) -> tuple[OddRequest, int | None]:
        request = odd_request(number, TOKEN)
        return request, answer_to(serving.port, request.data, 15)

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(one, numbers))
    for number, (request, status) in zip(numbers, answers, strict=True):
        is_good = status is not None and status < 400
        told = f"seed {number}: {request.data[:300]!r} was answered with {status}"
        assert status is None or is_good or status in _REFUSALS, told
        assert request.is_authorized or not is_good or _OPEN.match(request.data), told
    sound = [status for request, status in answers if request.is_sound]
    # Who is not given the time to send in it may be hung up on, which happens to few.
    assert sound.count(None) <= len(sound) // 50, "who asks as one should gets an answer"
    assert len(sound) > len(numbers) // 20
    return Counter(status for _, status in answers)


def check(
    serving: Serving, client: HttpClient, caplog: pytest.LogCaptureFixture, numbers: range
) -> None:
    """Run them, and see whether the server is as it was."""
    with caplog.at_level(logging.WARNING):
        counts = run(serving, numbers)
    assert counts.keys() >= {200, 400, 401, 404, 405, None}, counts
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not errors, [each.getMessage() for each in errors]
    wait_for(lambda: client.ask("/stores")[0] == 200, 10, "it answers as before")
    assert client.get("stores", "counts", "keys", "ann")["value"] == 1


def test_odd_requests(
    serving: Serving, client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Some hundred of them."""
    check(serving, client, caplog, range(500))


@pytest.mark.slow
def test_very_many_odd_requests(
    serving: Serving, client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten thousand of them."""
    check(serving, client, caplog, range(1_000, 11_000))
