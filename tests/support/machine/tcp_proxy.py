"""A TCP proxy between clients and brokers that can cut connections, hold bytes back and refuse
connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Self, TypeVar

T = TypeVar("T")

_CHUNK_BYTES = 1 << 16
_END_S = 10


class TcpProxy:
    """Forwards connections from each of its `ports` to another port of this machine. A context
    manager.

    Attributes:
        ports: in the order of the targets.
        total: the number of connections since the start.
    """

    def __init__(self, *targets: int) -> None:
        self.ports: list[int] = []
        self.total = 0
        self._targets = targets
        self._servers: list[asyncio.Server] = []
        self._refuses = False
        self._writers: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)
        self._loop.close()

    def cut(self, share: float, chance: random.Random) -> int:
        """Close a share of the connections, as a router does that has lost its state; return
        their number."""

        async def cut() -> int:
            chosen = [pair for pair in self._writers if chance.random() < share]
            for pair in chosen:
                _abort(pair)
            return len(chosen)

        return self._run(cut)

    def refuse(self, *, refused: bool) -> None:
        """Close every connection and refuse new ones, or accept them again."""

        async def refuse() -> None:
            self._refuses = refused
            for pair in self._writers if refused else ():
                _abort(pair)

        self._run(refuse)

    def hold(self, *, held: bool) -> None:
        """Hold all bytes back with open connections, or let them pass again."""

        async def hold() -> None:
            (self._flowing.clear if held else self._flowing.set)()

        self._run(hold)

    def _run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(_END_S)

    async def _listen(self) -> None:
        self._flowing.set()
        for target in self._targets:
            server = await asyncio.start_server(partial(self._connected, target), "127.0.0.1", 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for pair in self._writers:
            _abort(pair)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.total += 1
        if self._refuses:
            writer.transport.abort()
            return
        try:
            beyond, target = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, target)
        self._writers.append(pair)
        try:
            await asyncio.gather(self._pass(reader, target), self._pass(beyond, writer))
        finally:
            _abort(pair)
            self._writers.remove(pair)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        # One side has closed its connection, so the other is closed as well.
        writer.transport.abort()


def _abort(pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
    for writer in pair:
        writer.transport.abort()
