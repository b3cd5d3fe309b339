"""`map_async(using=...)`: what calls share is opened once a process, and closed after the last."""

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
from millstream.operators.apart import shared_resource
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

_TEXT: Any = {"key": STRING, "value": STRING}


class Client:
    """An asynchronous client, which belongs to the loop and the task that it was opened on."""

    made: list[Client]

    def __init__(self) -> None:
        self.events: list[str] = []
        Client.made.append(self)

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
def _none_made() -> None:
    Client.made = []


def driven(builder: StreamsBuilder, *values: str) -> list[str]:
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", **_TEXT)
        for value in values:
            topic.pipe_input("k", value)
        return driver.create_output_topic("out", **_TEXT).read_values()


def test_a_client_is_opened_once_and_closed() -> None:
    """By one task of the event loop, also where two operations use it."""
    using = Client

    async def fetched(client: Client, value: str) -> str:
        return await client.get(value)

    async def keyed(client: Client, key: str, value: str) -> str:
        return key + await client.get(value)

    builder = StreamsBuilder()
    stream = builder.stream("in", **_TEXT).map_async(fetched, using=using)
    stream.map_async(keyed, using=using, with_key=True).to("out", **_TEXT)
    assert driven(builder, "a", "b") == ["kA", "kB"]
    assert [client.events for client in Client.made] == [["opened", "closed"]]
    assert driven(builder, "c") == ["kC"]
    assert [client.events for client in Client.made] == [["opened", "closed"]] * 2


def test_generators_as_context_managers() -> None:
    """Cancel scopes work: they are left by the task that has entered them."""
    events: list[str] = []

    @asynccontextmanager
    async def pool() -> AsyncIterator[str]:
        async with asyncio.timeout(60), asyncio.TaskGroup():
            yield "pool-"
        events.append("left")

    async def fetched(pool: str, value: str) -> str:
        return pool + value

    builder = StreamsBuilder()
    builder.stream("in", **_TEXT).map_async(fetched, using=pool).to("out", **_TEXT)
    assert driven(builder, "a") == ["pool-a"]
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
    assert driven(builder, "a", "b") == ["session-a", "session-b"]
    assert events == ["opened", "closed"]


def test_it_stays_open_while_a_call_runs_that_cannot_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last call on a thread closes it; the owner does not wait for that for ever."""
    monkeypatch.setattr(shared_resource, "_CLOSE_S", 0.05)
    events: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    @contextmanager
    def session() -> Iterator[str]:
        yield "s"
        events.append("closed")

    def slow(client: str) -> str:
        begun.set()
        assert go_on.wait(20)
        events.append("used")
        return client

    resource = shared_resource.acquire(session, on_loop=False)
    thread = threading.Thread(target=resource.bound(slow))
    thread.start()
    assert begun.wait(20)
    with caplog.at_level(logging.WARNING):
        shared_resource.release(resource)
    assert "is not closed after 0.05 s" in caplog.text
    assert events == []
    go_on.set()
    thread.join(20)
    assert events == ["used", "closed"]


def test_cancelled_calls_end_before_it_is_closed() -> None:
    """What a coroutine does when it is cancelled may still need the client."""
    events: list[str] = []
    begun = threading.Event()

    class Slow(Client):
        async def __aexit__(self, *_: object) -> None:
            events.append("closed")

    async def waits(client: Client, value: str) -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            events.append("cancelled")
        return value

    resource = shared_resource.acquire(Slow, on_loop=True)
    call = asyncio.run_coroutine_threadsafe(resource.bound(waits)("a"), _loop())
    assert begun.wait(20)
    call.cancel()
    shared_resource.release(resource)
    assert events == ["cancelled", "closed"]


def _loop() -> asyncio.AbstractEventLoop:
    from millstream.operators.apart.event_loop import event_loop

    return event_loop()


@pytest.mark.parametrize("fails_in", ["making", "entering", "kind"])
def test_one_that_cannot_be_opened_fails_the_task(fails_in: str) -> None:
    """With its name and the node; nothing is left open."""

    class Broken(Client):
        def __init__(self) -> None:
            super().__init__()
            if fails_in == "making":
                raise ValueError("no address")

        async def __aenter__(self) -> Client:
            raise OSError("refused")

    async def fetched(client: Client, value: str) -> str:
        return value

    builder = StreamsBuilder()
    using: Any = (lambda: 5) if fails_in == "kind" else Broken
    builder.stream("in", **_TEXT).map_async(fetched, using=using, name="ask").to("out", **_TEXT)
    why = {"making": "no address", "entering": "OSError: refused", "kind": "no context manager"}
    with pytest.raises(StreamsError, match=rf"could not be opened: .*{why[fails_in]}") as caught:
        driven(builder, "a")
    assert caught.value.node == "ask"


def test_one_that_fails_to_close_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Client):
        async def __aexit__(self, *_: object) -> None:
            raise OSError("gone")

    async def fetched(client: Client, value: str) -> str:
        return await client.get(value)

    builder = StreamsBuilder()
    builder.stream("in", **_TEXT).map_async(fetched, using=Failing).to("out", **_TEXT)
    with caplog.at_level(logging.WARNING):
        assert driven(builder, "a") == ["A"]
        wait_for(lambda: "gone" in caplog.text)
    assert "Failing" in caplog.text


def test_an_asynchronous_one_needs_an_asynchronous_function() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **_TEXT)
    stream.map_async(lambda client, value: value, using=Client).to("out", **_TEXT)
    with pytest.raises(StreamsError, match="the mapper is a plain function"):
        driven(builder, "a")


@pytest.mark.parametrize(
    ("using", "mapper", "why"),
    [
        (5, lambda client, value: value, r"returns a context manager on each worker, but got int"),
        (lambda a: a, lambda client, value: value, r"calls its using as using\(\)"),
        (Client, lambda value: value, r"calls its mapper as mapper\(resource, value\)"),
    ],
)
def test_wrong_arguments(using: Any, mapper: Any, why: str) -> None:
    """Where they are declared, with file and line."""
    stream: Any = StreamsBuilder().stream("in", **_TEXT)
    with pytest.raises(TypeError, match=rf"{why}.*test_shared_resource.py:"):
        stream.map_async(mapper, using=using)


async def _asynchronous_client() -> AsyncIterator[str]:
    yield "client"


def _client() -> Iterator[str]:
    yield "client"


@pytest.mark.parametrize(
    ("using", "decorator"),
    [(_asynchronous_client, "asynccontextmanager"), (_client, "contextmanager")],
)
def test_a_generator_without_its_decorator_is_refused(using: Any, decorator: str) -> None:
    stream: Any = StreamsBuilder().stream("in", **_TEXT)
    with pytest.raises(TypeError, match=rf"Put @contextlib\.{decorator} above it"):
        stream.map_async(lambda client, value: value, using=using)
