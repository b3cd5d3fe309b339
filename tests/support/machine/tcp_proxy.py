"""A TCP proxy between clients and a broker, which can cut connections, hold bytes and refuse."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_CHUNK_BYTES = 1 << 16
_END_S = 10


class TcpProxy:
    """Passes the connections to its `port` on to another port of this machine. A context manager.

    Args:
        target: the port.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        #: Connections since the start.
        self.total = 0
        self._target = target
        self._refuses = False
        self._writers: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        self._run(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)
        self._loop.close()

    def cut(self, share: float, chance: random.Random) -> int:
        """End a share of the connections, as if a router had forgotten them; how many."""

        async def cut() -> int:
            chosen = [pair for pair in self._writers if chance.random() < share]
            for pair in chosen:
                _abort(pair)
            return len(chosen)

        return self._run(cut)

    def refuse(self, *, refused: bool) -> None:
        """End every connection and refuse new ones, or take them again."""

        async def refuse() -> None:
            self._refuses = refused
            for pair in self._writers if refused else ():
                _abort(pair)

        self._run(refuse)

    def hold(self, *, held: bool) -> None:
        """Hold all bytes back, without a word to either end, or let them go on."""

        async def hold() -> None:
            if held:
                self._flowing.clear()
            else:
                self._flowing.set()

        self._run(hold)

    def _run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(_END_S)

    async def _listen(self) -> None:
        self._flowing.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for pair in self._writers:
            _abort(pair)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.total += 1
        if self._refuses:
            writer.transport.abort()
            return
        try:
            beyond, target = await asyncio.open_connection("127.0.0.1", self._target)
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
        # Either end has closed: so does the other.
        writer.transport.abort()


class TcpProxies:
    """One proxy for each port of several, controlled together. A context manager.

    Args:
        targets: the ports.
    """

    def __init__(self, targets: Sequence[int]) -> None:
        self._proxies = [TcpProxy(target) for target in targets]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> TcpProxies:
        for proxy in self._proxies:
            self._stack.enter_context(proxy)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def ports(self) -> list[int]:
        """The ports of the proxies, in the order of the targets."""
        return [proxy.port for proxy in self._proxies]

    @property
    def total(self) -> int:
        """The number of connections since the start."""
        return sum(proxy.total for proxy in self._proxies)

    def cut(self, share: float, chance: random.Random) -> int:
        """End a share of the connections of each proxy; returns how many."""
        return sum(proxy.cut(share, chance) for proxy in self._proxies)

    def refuse(self, *, refused: bool) -> None:
        """End every connection and refuse new ones, or accept them again."""
        for proxy in self._proxies:
            proxy.refuse(refused=refused)

    def hold(self, *, held: bool) -> None:
        """Hold all bytes back, or let them pass again."""
        for proxy in self._proxies:
            proxy.hold(held=held)


def _abort(pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
    for writer in pair:
        writer.transport.abort()
