"""An HTTP server whose responses a function computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class HttpRequest(NamedTuple):
    """A request to the server; `path` includes the query string."""

    method: str
    path: str
    headers: Message
    body: bytes


@contextmanager
def http_server(
    respond: Callable[[HttpRequest], tuple[int, bytes]], content_type: str = "application/json"
) -> Iterator[str]:
    """Run a server on a free port, and yield its URL.

    Args:
        respond: returns the status and the body.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            request = HttpRequest(self.command, self.path, self.headers, body)
            status, document = respond(request)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(document)))
            self.end_headers()
            self.wfile.write(document)

        do_GET = do_POST = _respond  # noqa: N815 (the names that http.server calls)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
