"""An instance served to others by the smallest server that does it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from millstream import KafkaStreams
from millstream.query.peers import PATH


class PeerServer:
    """Listens on a free port of this machine; answers for an instance once it is told for which.

    Attributes:
        answered: how many requests it has answered.
    """

    def __init__(self, token: str = "secret") -> None:
        self.answered = 0
        self._streams: KafkaStreams | None = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != f"Bearer {token}" or self.path != PATH:
                    self._say(401, b"")
                elif server._streams is None:
                    self._say(503, b"")
                else:
                    server.answered += 1
                    self._say(200, server._streams._asked.answer(body))

            def _say(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._token = token
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """For `application_server`."""
        return f"127.0.0.1:{self._http.server_address[1]}"

    def serve(self, streams: KafkaStreams) -> None:
        """Answer for this instance, which shows the token to others as well."""
        self._streams = streams
        streams._asked.instances.use(self._token)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def peer_server() -> Iterator[PeerServer]:
    """A server that listens, closed at the end."""
    server = PeerServer()
    server.start()
    try:
        yield server
    finally:
        server.close()
