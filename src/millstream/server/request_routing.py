"""Endpoints and the routing of requests."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import Response

from millstream.server.parameters import Parameter, decode_part
from millstream.server.responses import HttpError

#: The parameter that extends to the end of the path, because keys may contain slashes.
_KEY_PARAMETER: Final = "key"


@dataclass(frozen=True)
class HttpRequest:
    """A validated request. `timed_out` is set if the request times out."""

    method: str
    values: Mapping[str, Any]
    headers: Headers
    body: bytes = b""
    is_authorized: bool = True
    timed_out: threading.Event = field(default_factory=threading.Event, compare=False)


Handler = Callable[[HttpRequest], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """A path and method of the server, with their handler and documentation.

    Args:
        method: `GET` (which includes `HEAD`), `POST` or `PUT`.
        path: the path, with parameter names in braces: `/stores/{store}/keys/{key}`. A key must be
            the last part, and may contain slashes.
        summary: one sentence for the OpenAPI document; empty if the endpoint is not part of it.
        schema: the name of the response schema; None if the response is not JSON.
        parameters: the path parameters, in order, and the query parameters.
        body: the name of the request body's schema; None if requests have no body.
        is_open: whether the endpoint works without the token.
        failures: possible statuses other than 200 and the common ones.
    """

    method: str
    path: str
    handler: Handler
    summary: str = ""
    schema: str | None = None
    media_type: str = "application/json"
    parameters: Sequence[Parameter] = ()
    body: str | None = None
    body_type: str = "application/json"
    is_open: bool = False
    failures: frozenset[int] = field(default=frozenset())

    def matches(self, parts: Sequence[bytes]) -> dict[str, bytes] | None:
        """Return the parameters of a path that is split at slashes.

        Returns None if the path does not match.
        """
        pattern = self.path.split("/")[1:]
        found: dict[str, bytes] = {}
        for index, part in enumerate(pattern):
            if part == f"{{{_KEY_PARAMETER}}}" and len(parts) > index:
                return found | {_KEY_PARAMETER: b"/".join(parts[index:])}
            if index >= len(parts):
                return None
            if part.startswith("{"):
                found[part[1:-1]] = parts[index]
            elif part.encode() != parts[index]:
                return None
        return found if len(parts) == len(pattern) else None


class Routes:
    """Finds the first endpoint that matches the path and method of a request."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)

    def find(self, method: str, raw_path: bytes) -> tuple[Endpoint, dict[str, str]]:
        parts = raw_path.split(b"/")[1:] if raw_path.startswith(b"/") else []
        allowed: set[str] = set()
        for endpoint in self.endpoints:
            found = endpoint.matches(parts)
            if found is None:
                continue
            if method == endpoint.method or (method, endpoint.method) == ("HEAD", "GET"):
                return endpoint, {name: decode_part(part) for name, part in found.items()}
            allowed |= {"GET", "HEAD"} if endpoint.method == "GET" else {endpoint.method}
        if not allowed:
            raise HttpError(
                404, "NOT_FOUND", "The path does not exist; see /openapi.json for all paths."
            )
        listed = ", ".join(sorted(allowed))
        raise HttpError(
            405,
            "METHOD_NOT_ALLOWED",
            f"{method[:20]} is not allowed for this path; allowed: {listed}.",
            headers={"allow": listed},
        )
