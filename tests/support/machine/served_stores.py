"""An HTTP server that answers as a served application does, with what a test puts into it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "a-token-of-the-test"


class ServedStores:
    """What the server knows, and what it was asked.

    Attributes:
        documents: what it answers, by path; a list of pages is given out one by one, by cursor.
        asked: paths with their queries, in order.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    def answer(self, path: str, query: dict[str, str], token: str) -> tuple[int, Any]:
        """Status and document."""
        if token != TOKEN:
            return 401, _error("UNAUTHORIZED", "The token is wrong.")
        self.asked.append((path, query))
        found = self.documents.get(path)
        if found is None:
            return 404, _error("KEY_NOT_FOUND", "There is no such key.")
        if isinstance(found, tuple):
            status, document = found
            return status, document
        if "pages" in found:
            number = int(query.get("cursor", "0"))
            more = str(number + 1) if number + 1 < len(found["pages"]) else None
            return 200, {"entries": found["pages"][number], "cursor": more}
        return 200, found["document"]


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def not_ready(message: str, retry_after_ms: int) -> tuple[int, Any]:
    """The answer of a store that is restored at present."""
    return 503, {
        "error": {"code": "STORE_NOT_READY", "message": message, "retry_after_ms": retry_after_ms}
    }


@contextmanager
def served_stores() -> Iterator[ServedStores]:
    """Such a server, at its `url`."""
    stores = ServedStores()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
            path = "/".join(map(unquote, parts.path.split("/")))
            status, document = stores.answer(path, query, token)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stores.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stores
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
