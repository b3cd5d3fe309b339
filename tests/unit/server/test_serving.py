"""The server on a real socket, with tasks and stores that need neither Spark nor Kafka."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support.tasks.served_tasks import ServedTasks
from support.waiting import HANG_S, wait_for

from millstream.assignment.wire_format import HostInfo
from millstream.errors import InvalidStateStoreError
from millstream.query.remote_instances import RemoteInstances
from millstream.runtime.queries.query_messages import QueryStore
from millstream.runtime.states.thread_states import ClientState
from millstream.server.server_settings import ServerOptions
from millstream.server.server_thread import HttpServer
from millstream.state.queries.read_requests import ReadKind, ReadRequest

TOKEN = "a-token-for-tests"
#: The delay of Linux.
DELAYED_ACKNOWLEDGMENT_S = 0.04


@pytest.fixture(scope="module")
def served() -> Iterator[ServedTasks]:
    with ServedTasks(2) as tasks:
        yield tasks


@pytest.fixture(scope="module")
def serving(served: ServedTasks) -> Iterator[HttpServer]:
    running = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN))
    yield running
    running.close()


def fetch(serving: HttpServer, path: str, token: str | None = TOKEN) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{serving.port}{path}")
    if token is not None:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_only_the_token_is_accepted(serving: HttpServer) -> None:
    """Detects a prefix, an extension, an empty string or another case that passes as the token."""
    assert fetch(serving, "/console/state")[0] == 200
    for token in (None, "", "another-token", TOKEN + "x", TOKEN[:-1], TOKEN.upper()):
        status, document = fetch(serving, "/console/state", token)
        assert (status, document["error"]["code"]) == (401, "UNAUTHORIZED")


def test_probes_need_no_token_and_reveal_little(serving: HttpServer, served: ServedTasks) -> None:
    """Without the token the response is only yes or no."""
    assert fetch(serving, "/health/live", None) == (200, {"status": "ok"})
    served.is_live = False
    try:
        assert fetch(serving, "/health/live", None) == (503, {"status": "not ok"})
        assert fetch(serving, "/health/live")[1]["why"] == "why not"
    finally:
        served.is_live = True


def test_answers_do_not_wait_for_acknowledgements(serving: HttpServer) -> None:
    """Detects the 40 ms delay of the kernel's delayed acknowledgment of a response's first part."""
    connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=HANG_S)

    def is_faster_than_the_kernel() -> bool:
        began = time.perf_counter()
        connection.request("GET", "/stores", headers={"authorization": f"Bearer {TOKEN}"})
        connection.getresponse().read()
        return time.perf_counter() - began < DELAYED_ACKNOWLEDGMENT_S

    wait_for(is_faster_than_the_kernel, HANG_S, "a response arrives without the delay")
    connection.close()


def test_events_report_changes(serving: HttpServer, served: ServedTasks) -> None:
    """First the current state, then each change, and nothing in between."""
    request = urllib.request.Request(f"http://127.0.0.1:{serving.port}/console/events")
    request.add_header("authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.headers["content-type"].startswith("text/event-stream")

        def next_state(kind: str = "change") -> str:
            assert response.readline() == f"event: {kind}\n".encode()
            document = json.loads(response.readline().removeprefix(b"data: "))
            assert response.readline() == b"\n"
            return str(document["application"]["state"])

        assert next_state("state") == "RUNNING"
        served.state = ClientState.REBALANCING
        try:
            assert next_state() == "REBALANCING"
        finally:
            served.state = ClientState.RUNNING
        assert next_state() == "RUNNING"


def test_followers_are_cheap(served: ServedTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects a document that is built for each console, or sent completely, every second: the
    document of an application with many failures has megabytes."""
    made = itertools.count(1)
    failures = [{"stack": "x" * 10_000, "number": number} for number in range(10)]

    def document() -> dict[str, Any]:
        totals = {"lag": next(made), "history": [1] * 300}
        return {"now_ms": totals["lag"], "totals": totals, "failures": list(failures)}

    monkeypatch.setattr(served, "console_state", document)
    serving = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN))
    request = urllib.request.Request(f"http://127.0.0.1:{serving.port}/console/events")
    request.add_header("authorization", f"Bearer {TOKEN}")
    with contextlib.ExitStack() as stack:
        stack.callback(serving.close)
        streams = [
            stack.enter_context(urllib.request.urlopen(request, timeout=10)) for _ in range(8)
        ]
        for stream in streams:
            assert event(stream)[0] == "state"
        failures.append({"stack": "", "number": 10})
        for stream in streams:
            known: dict[str, Any] = {"totals": {}}
            while len(known.get("failures", ())) != 11:
                kind, change = event(stream)
                assert kind == "change"
                assert "history" not in change["totals"]
                known |= change
            kind, change = event(stream)
            assert change.keys() == {"now_ms", "totals"}
    # Two or three seconds have passed.
    assert next(made) <= 6


def test_the_number_of_consoles_is_bounded_even_if_they_connect_at_once(
    serving: HttpServer,
) -> None:
    """Further consoles are rejected until others have left."""
    request = f"GET /console/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", serving.port), timeout=10))
            for _ in range(40)
        ]
        for client in clients:
            client.sendall(request.encode())
        statuses = [client.recv(65_536).split()[1] for client in clients]
    assert (statuses.count(b"200"), statuses.count(b"429")) == (16, 24)

    def is_let_in() -> bool:
        with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as client:
            client.sendall(request.encode())
            return client.recv(65_536).split()[1] == b"200"

    wait_for(is_let_in, 10, "another console is accepted")


def event(stream: Any) -> tuple[str, dict[str, Any]]:
    """The name and the data of the next event in a stream."""
    name = stream.readline().decode().removeprefix("event: ").strip()
    document = json.loads(stream.readline().removeprefix(b"data: "))
    assert stream.readline() == b"\n"
    return name, document


def test_the_page_has_a_strict_security_policy(serving: HttpServer) -> None:
    """It loads nothing from other servers, cannot be framed, and is cached."""
    url = f"http://127.0.0.1:{serving.port}/"
    with urllib.request.urlopen(url, timeout=10) as response:
        headers = response.headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    request = urllib.request.Request(url, headers={"if-none-match": headers["etag"]})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert caught.value.code == 304


def test_instances_query_each_other_over_http(serving: HttpServer, served: ServedTasks) -> None:
    """A query over HTTP gets the same answer as from the threads themselves."""
    served.click(["ann"])
    instances = RemoteInstances()
    instances.set_credentials(TOKEN)
    peer = instances.get(HostInfo("127.0.0.1", serving.port))
    codec = served.codec_of("counts")
    assert codec is not None
    question = QueryStore("counts", ReadRequest(ReadKind.GET, codec.key("ann")), "a test")
    (subtopology,) = {part.id for part in [served.catalog.find("counts").part] if part is not None}
    found = [answer for answer in peer.query(question, subtopology) if answer.page]
    assert [codec.value(stored) for answer in found for _, stored in answer.page] == [1]
    instances.set_credentials("another-token")
    with pytest.raises(InvalidStateStoreError, match="server_token"):
        instances.get(HostInfo("127.0.0.1", serving.port)).query(question, subtopology)
    instances.close()
