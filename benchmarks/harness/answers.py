"""An HTTP server that responds after 10 ms, with as little work as possible.

    answers.py      # prints its URL; ends when its stdin is closed

The server runs in a separate process, which competes with its clients for the processors.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ANSWER_S = 0.01
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_END = b"\r\n\r\n"


class DelayedResponses(asyncio.Protocol):
    """A connection that responds to each request after the delay."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport for responses."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle requests without bodies, which may arrive in parts."""
        *requests, self._unread = (self._unread + data).split(_END)
        for _ in requests:
            asyncio.get_running_loop().call_later(ANSWER_S, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(_ANSWER)


@contextmanager
def answer_server() -> Iterator[str]:
    """Run the server in a separate process, and yield its URL."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(DelayedResponses, "127.0.0.1", 0, backlog=2_000)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
