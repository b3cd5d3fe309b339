"""A schema registry in the test's own process: the part of its REST API that serializers use."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class SchemaRegistry:
    """What is registered.

    Attributes:
        schemas: every schema by its id.
        subjects: the ids of each subject, by version, oldest first.
        requests: the method and path of each request.
        shares_ids: whether a schema has one id in all subjects, as long as they are in one context.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.url = ""
        self.shares_ids = True

    def register(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        """Give a schema an id, the same in all subjects, and put it under a subject."""
        kept: dict[str, Any] = {
            key: schema[key] for key in ("schema", "schemaType") if key in schema
        }
        candidates = self.schemas if self.shares_ids else self.subjects.get(subject, [])
        known = [number for number in candidates if self.schemas[number] == kept]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = kept
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return self.described(subject, number)

    def described(self, subject: str, number: int) -> dict[str, Any]:
        """A registered schema as the registry answers."""
        version = self.subjects[subject].index(number) + 1
        return {"subject": subject, "version": version, "id": number, **self.schemas[number]}

    def answer(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        """The answer to a request; None if there is no such thing."""
        self.requests.append(f"{method} {path}")
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["subjects", subject, "versions"] if method == "POST":
                return self.register(subject, body)
            case ["subjects", subject] if method == "POST" and subject in self.subjects:
                for number in self.subjects[subject]:
                    if self.schemas[number]["schema"] == body["schema"]:
                        return self.described(subject, number)
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return self.schemas[int(number)]
        return None


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """A registry that listens on a port of its own."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            found = registry.answer(self.command, urlsplit(self.path).path, body)
            missing = {"error_code": 40401, "message": "Not found."}
            data = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _respond  # noqa: N815 (the names that http.server calls)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
