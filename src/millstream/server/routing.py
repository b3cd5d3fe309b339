"""What can be asked for, as a table; which row a request means; and what it says."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import Response

from millstream.server.http_error import HttpError
from millstream.server.parameters import Parameter, decoded

#: The end of a path that takes the rest of it, slashes and all: keys may hold anything.
_REST: Final = "key"


@dataclass(frozen=True)
class Asked:
    """A request that was let through.

    Args:
        method: `GET`, `HEAD`, `POST` or `PUT`.
        values: of the path and of the parameters, by name.
        headers: of the request.
        body: empty where none is taken.
        is_authorized: whether the token was shown.
        given_up: set once nobody waits for the answer any more.
    """

    method: str
    values: Mapping[str, Any]
    headers: Headers
    body: bytes = b""
    is_authorized: bool = True
    given_up: threading.Event = field(default_factory=threading.Event, compare=False)


Answer = Callable[[Asked], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """A row of the table: something that can be asked for.

    Args:
        method: `GET`, which includes `HEAD`, `POST` or `PUT`.
        path: with the names of parameters in braces: `/stores/{store}/keys/{key}`. A key is always
            the last part, and may have slashes.
        answer: gives the answer.
        summary: one sentence for the document; empty for what is none of its business.
        schema: the name of the answer in the document's schemas; None if it is not JSON.
        media_type: of the answer.
        parameters: those of the path, in its order, and those behind the question mark.
        body: the name of what is sent in the document's schemas; None if nothing is.
        body_type: the media type of what is sent.
        is_open: whether it is answered without the token.
        failures: which statuses it may have beside 200 and those that all have.
    """

    method: str
    path: str
    answer: Answer
    summary: str = ""
    schema: str | None = None
    media_type: str = "application/json"
    parameters: Sequence[Parameter] = ()
    body: str | None = None
    body_type: str = "application/json"
    is_open: bool = False
    failures: frozenset[int] = field(default=frozenset())

    def matches(self, parts: Sequence[bytes]) -> dict[str, bytes] | None:
        """The parameters in a path that was cut at its slashes; None if it is another path."""
        wanted = self.path.split("/")[1:]
        found: dict[str, bytes] = {}
        for place, part in enumerate(wanted):
            if part == f"{{{_REST}}}" and len(parts) > place:
                return found | {_REST: b"/".join(parts[place:])}
            if place >= len(parts):
                return None
            if part.startswith("{"):
                found[part[1:-1]] = parts[place]
            elif part.encode() != parts[place]:
                return None
        return found if len(parts) == len(wanted) else None


class Routes:
    """Finds the endpoint of a request.

    Args:
        endpoints: all there are. Of those that match a path, the first one is taken.
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)

    def find(self, method: str, raw_path: bytes) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint, and the parameters in the path.

        Raises:
            HttpError: there is none, or not for this method.
        """
        parts = raw_path.split(b"/")[1:] if raw_path.startswith(b"/") else []
        allowed: set[str] = set()
        for endpoint in self.endpoints:
            found = endpoint.matches(parts)
            if found is None:
                continue
            if method == endpoint.method or (method, endpoint.method) == ("HEAD", "GET"):
                return endpoint, {name: decoded(part) for name, part in found.items()}
            allowed |= {"GET", "HEAD"} if endpoint.method == "GET" else {endpoint.method}
        if not allowed:
            raise HttpError(
                404, "NOT_FOUND", "There is no such path; /openapi.json has all that there are."
            )
        listed = ", ".join(sorted(allowed))
        raise HttpError(
            405,
            "METHOD_NOT_ALLOWED",
            f"{method[:20]} is not for this path; {listed} is.",
            headers={"allow": listed},
        )
