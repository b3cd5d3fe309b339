"""`map_async(using=...)`: a resource is opened once per process, and closed after its last use."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from support.waiting import wait_for

from millstream import StreamsBuilder, StreamsError
from millstream.operators.concurrent import shared_resource
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

_TEXT: Any = {"key": STRING, "value": STRING}


class Client:
    """An asynchronous client that belongs to the loop and the task that opened it."""

    instances: list[Client]

    def __init__(self) -> None:
        self.events: list[str] = []
        Client.instances.append(self)

    async def __aenter__(self) -> Client:
        self.task = asyncio.current_task()
        self.events.append("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert asyncio.current_task() is self.task
        await asyncio.sleep(0)
        self.events.append("closed")

    async def get(self, value: str) -> str:
        assert self.events == ["opened"]
        await asyncio.sleep(0)
        return value.upper()


@pytest.fixture(autouse=True)
def _no_instances() -> None:
    Client.instances = []


def run_topology(builder: StreamsBuilder, *values: str) -> list[str]:
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", **_TEXT)
        for value in values:
            topic.pipe_input("k", value)
        return driver.create_output_topic("out", **_TEXT).read_values()


def test_client_is_opened_once_and_closed() -> None:
    """By one task of the event loop, also if two operations use it."""
    using = Client

    async def fetch(client: Client, value: str) -> str:
        return await client.get(value)

    async def fetch_with_key(client: Client, key: str, value: str) -> str:
        return key + await client.get(value)

    builder = StreamsBuilder()
    stream = builder.stream("in", **_TEXT).map_async(fetch, using=using)
    stream.map_async(fetch_with_key, using=using, with_key=True).to("out", **_TEXT)
    assert run_topology(builder, "a", "b") == ["kA", "kB"]
    assert [client.events for client in Client.instances] == [["opened", "closed"]]
    assert run_topology(builder, "c") == ["kC"]
    assert [client.events for client in Client.instances] == [["opened", "closed"]] * 2


def test_generator_as_context_manager() -> None:
    """Cancel scopes work: the same task enters and leaves them."""
    events: list[str] = []

    @asynccontextmanager
    async def pool() -> AsyncIterator[str]:
        async with asyncio.timeout(60), asyncio.TaskGroup():
            yield "pool-"
        events.append("left")

    async def fetch(pool: str, value: str) -> str:
        return pool + value

    builder = StreamsBuilder()
    builder.stream("in", **_TEXT).map_async(fetch, using=pool).to("out", **_TEXT)
    assert run_topology(builder, "a") == ["pool-a"]
    assert events == ["left"]


def test_plain_functions_share_a_plain_context_manager() -> None:
    """Entered once, whichever threads make the calls."""
    events: list[str] = []

    @contextmanager
    def session() -> Iterator[str]:
        events.append("opened")
        yield "session-"
        events.append("closed")

    builder = StreamsBuilder()
    stream = builder.stream("in", **_TEXT)
    stream.map_async(lambda client, value: client + value, using=session).to("out", **_TEXT)
    assert run_topology(builder, "a", "b") == ["session-a", "session-b"]
    assert events == ["opened", "closed"]


def test_resource_stays_open_during_a_call_that_cannot_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last call on a thread closes it; the wait of the owner has a timeout."""
    monkeypatch.setattr(shared_resource, "_CLOSE_S", 0.05)
    events: list[str] = []
    started, release = threading.Event(), threading.Event()

    @contextmanager
    def session() -> Iterator[str]:
        yield "s"
        events.append("closed")

    def slow(client: str) -> str:
        started.set()
        assert release.wait(20)
        events.append("used")
        return client

    resource = shared_resource.acquire(session, on_loop=False)
    thread = threading.Thread(target=resource.bound(slow))
    thread.start()
    assert started.wait(20)
    with caplog.at_level(logging.WARNING):
        shared_resource.release(resource)
    assert "is not closed after 0.05 s" in caplog.text
    assert events == []
    release.set()
    thread.join(20)
    assert events == ["used", "closed"]


def test_cancelled_calls_end_before_the_resource_is_closed() -> None:
    """A coroutine may still need the client while it is cancelled."""
    events: list[str] = []
    started = threading.Event()

    class Slow(Client):
        async def __aexit__(self, *_: object) -> None:
            events.append("closed")

    async def waits(client: Client, value: str) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            events.append("cancelled")
        return value

    resource = shared_resource.acquire(Slow, on_loop=True)
    call = asyncio.run_coroutine_threadsafe(resource.bound(waits)("a"), _loop())
    assert started.wait(20)
    call.cancel()
    shared_resource.release(resource)
    assert events == ["cancelled", "closed"]


def _loop() -> asyncio.AbstractEventLoop:
    from millstream.operators.concurrent.event_loop import event_loop

    return event_loop()


@pytest.mark.parametrize("fails_in", ["creation", "entering", "type"])
def test_resource_that_cannot_be_opened_fails_the_task(fails_in: str) -> None:
    """The error contains the name of the resource and the node; nothing is left open."""

    class Broken(Client):
        def __init__(self) -> None:
            super().__init__()
            if fails_in == "creation":
                raise ValueError("no address")

        async def __aenter__(self) -> Client:
            raise OSError("refused")

    async def fetch(client: Client, value: str) -> str:
        return value

    builder = StreamsBuilder()
    using: Any = (lambda: 5) if fails_in == "type" else Broken
    builder.stream("in", **_TEXT).map_async(fetch, using=using, name="fetch").to("out", **_TEXT)
    reason = {
        "creation": "no address",
        "entering": "OSError: refused",
        "type": "not a context manager",
    }
    with pytest.raises(StreamsError, match=rf"could not be opened: .*{reason[fails_in]}") as caught:
        run_topology(builder, "a")
    assert caught.value.node == "fetch"


def test_failure_to_close_the_resource_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Client):
        async def __aexit__(self, *_: object) -> None:
            raise OSError("gone")

    async def fetch(client: Client, value: str) -> str:
        return await client.get(value)

    builder = StreamsBuilder()
    builder.stream("in", **_TEXT).map_async(fetch, using=Failing).to("out", **_TEXT)
    with caplog.at_level(logging.WARNING):
        assert run_topology(builder, "a") == ["A"]
        wait_for(lambda: "gone" in caplog.text)
    assert "Failing" in caplog.text


def test_asynchronous_resource_requires_an_asynchronous_function() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **_TEXT)
    stream.map_async(lambda client, value: value, using=Client).to("out", **_TEXT)
    with pytest.raises(StreamsError, match="the mapper is a plain function"):
        run_topology(builder, "a")


@pytest.mark.parametrize(
    ("using", "mapper", "reason"),
    [
        (5, lambda client, value: value, r"returns a context manager on each worker, but got int"),
        (lambda a: a, lambda client, value: value, r"calls its using as using\(\)"),
        (Client, lambda value: value, r"calls its mapper as mapper\(resource, value\)"),
    ],
)
def test_invalid_arguments_are_rejected(using: Any, mapper: Any, reason: str) -> None:
    """When the operation is declared, with file and line."""
    stream: Any = StreamsBuilder().stream("in", **_TEXT)
    with pytest.raises(TypeError, match=rf"{reason}.*test_shared_resource.py:"):
        stream.map_async(mapper, using=using)


async def _asynchronous_client() -> AsyncIterator[str]:
    yield "client"


def _client() -> Iterator[str]:
    yield "client"


@pytest.mark.parametrize(
    ("using", "decorator"),
    [(_asynchronous_client, "asynccontextmanager"), (_client, "contextmanager")],
)
def test_generator_without_its_decorator_is_rejected(using: Any, decorator: str) -> None:
    stream: Any = StreamsBuilder().stream("in", **_TEXT)
    with pytest.raises(TypeError, match=rf"Put @contextlib\.{decorator} above it"):
        stream.map_async(lambda client, value: value, using=using)
