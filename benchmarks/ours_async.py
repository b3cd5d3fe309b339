"""Processes tasks with Millstream, like `DecatonPeer.java` with Decaton.

    ours_async.py PROGRAM BOOTSTRAP TOPIC GROUP CONCURRENCY WORK TASKS URL MARKS FOLDER

PROGRAM is one of `PROGRAMS`. One thread, in its own Spark task, reads the topic from its start. The
marks (`marks.py`) contain the nanoseconds between the start of the first task and the end of the
last one. The program runs until SIGTERM, then commits and exits.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import marks
from decaton import Work

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.parallel import ProcessorSubscription, Properties, SubscriptionConfig
from millstream.serdes import BYTES

#: A subscription with coroutines, one with plain functions, and `map_async`.
PROGRAMS = ("async", "threads", "map_async")
WORKS: tuple[Work, ...] = ("sleep", "noop", "http")
SLEEP_S = 0.01


class TaskTimer:
    """Counts tasks, and measures their total time.

    Args:
        file: the file for the mark.
        expected: the number of tasks.
    """

    def __init__(self, file: str, expected: int) -> None:
        self._file = file
        self._expected = expected
        # `next` is atomic for threads.
        self._started = itertools.count()
        self._done = itertools.count(1)
        self._first_ns = 0

    def begin(self) -> None:
        """Count the start of a task."""
        if next(self._started) == 0:
            self._first_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Count the end of a task."""
        if next(self._done) == self._expected:
            marks.put(self._file, f"took {time.perf_counter_ns() - self._first_ns}")


class Connections:
    """A pool of connections to an HTTP server, one for each concurrent request.

    No library is used, because Python's HTTP clients cost more than everything measured here.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._at = parts.hostname, parts.port
        path = parts.path or "/"
        self._request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        self._free: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()

    async def get(self) -> None:
        """Send a request and read the response."""
        reader, writer = await self._connection()
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(f"the server responded with {head[:60]!r}")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        await reader.readexactly(length)
        self._free.append((reader, writer))

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._free:
            return self._free.pop()
        return await asyncio.open_connection(*self._at)


class ThreadConnections:
    """A connection to one HTTP server for each thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._at = parts.hostname, parts.port
        self._path = parts.path or "/"
        self._mine = threading.local()

    def get(self) -> None:
        """Send a request and read the response."""
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = http.client.HTTPConnection(*self._at)
        connection.request("GET", self._path)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the server responded with {answer.status}")


async def _nothing() -> None:
    """Do nothing."""


async def _sleep() -> None:
    await asyncio.sleep(SLEEP_S)


class Worker:
    """Does the work of each task.

    Workers are pickled, and initialized in the thread's process.

    Args:
        work: the kind of work.
        url: the URL for "http".
        timed: creates the task timer.
    """

    def __init__(self, work: Work, url: str, timed: Callable[[], TaskTimer]) -> None:
        self._work = work
        self._url = url
        self._make_timed = timed
        self._lock = threading.Lock()
        self._parts: tuple[TaskTimer, Callable[[], Awaitable[None]], Callable[[], None]] | None = (
            None
        )

    def __getstate__(self) -> tuple[Any, ...]:
        return self._work, self._url, self._make_timed

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._work, self._url, self._make_timed = state
        self._lock = threading.Lock()
        self._parts = None

    async def task(self, _: Any, __: Any) -> None:
        """Process a task of a subscription on the event loop."""
        timed, work, _plain = self._parts or self._begin()
        timed.begin()
        await work()
        timed.end()

    def plain_task(self, _: Any, __: Any) -> None:
        """Process a task of a subscription on a thread."""
        timed, _work, plain = self._parts or self._begin()
        timed.begin()
        plain()
        timed.end()

    async def value(self, value: bytes) -> bytes:
        """Process a record of `map_async`."""
        timed, work, _ = self._parts or self._begin()
        timed.begin()
        await work()
        timed.end()
        return value

    def _begin(self) -> tuple[TaskTimer, Callable[[], Awaitable[None]], Callable[[], None]]:
        with self._lock:
            if self._parts is None:
                self._parts = (self._make_timed(), *self._make_work())
            return self._parts

    def _make_work(self) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        if self._work == "sleep":
            return _sleep, lambda: time.sleep(SLEEP_S)
        if self._work == "noop":
            return _nothing, lambda: None
        return Connections(self._url).get, ThreadConnections(self._url).get


def _mapped(config: StreamsConfig, topic: str, worker: Worker, concurrency: int) -> KafkaStreams:
    builder = StreamsBuilder()
    (
        builder.stream(topic, key=BYTES, value=BYTES)
        .map_async(worker.value, concurrency=concurrency)
        # Writes nothing, like subscriptions.
        .for_each(lambda key, value: None)
    )
    return KafkaStreams(builder.build(), config)


def main() -> None:
    program, bootstrap, topic, group, concurrency_text, work_name, tasks, url, file, folder = (
        sys.argv[1:]
    )
    concurrency, expected = int(concurrency_text), int(tasks)
    work = next(each for each in WORKS if each == work_name)
    worker = Worker(work, url, lambda: TaskTimer(file, expected))
    if program == "map_async":
        config = StreamsConfig(
            application_id=group,
            bootstrap_servers=bootstrap,
            state_dir=folder,
            commit_interval_ms=1_000,
        )
        _mapped(config, topic, worker, concurrency).run()
        return
    ProcessorSubscription(
        group,
        topics=topic,
        processor=worker.task if program == "async" else worker.plain_task,
        value=BYTES,
        config=SubscriptionConfig(group, bootstrap, state_dir=folder),
        properties=Properties(partition_concurrency=concurrency),
    ).run()


if __name__ == "__main__":
    main()
