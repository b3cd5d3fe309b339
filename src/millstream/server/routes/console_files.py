"""The console's page: the files of the folder `console`, kept in memory.

What is not in the folder when the server starts cannot be asked for, whatever the path says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from millstream.server.http_error import HttpError
from millstream.server.routing import Asked, Endpoint

#: Nothing comes from elsewhere, nothing goes elsewhere, and nobody frames the page.
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
}
_PAGE: Final = "index.html"


@dataclass(frozen=True)
class _File:
    content: bytes
    headers: Mapping[str, str]


class ConsoleFiles:
    """The files of the console, as they were when this was made."""

    def __init__(self) -> None:
        self._files = {
            each.name: _read(each.name, each.read_bytes())
            for each in files("millstream.server").joinpath("console").iterdir()
            if each.name.rpartition(".")[2] in _TYPES
        }

    def endpoints(self) -> list[Endpoint]:
        """The page at the root, and what belongs to it. Both are for anybody: nothing of the
        application is in them."""
        return [
            Endpoint("GET", "/", self._page, is_open=True),
            Endpoint("GET", "/assets/{name}", self._asset, is_open=True),
        ]

    async def _page(self, asked: Asked) -> Response:
        return self._answer(asked, _PAGE)

    async def _asset(self, asked: Asked) -> Response:
        return self._answer(asked, asked.values["name"])

    def _answer(self, asked: Asked, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HttpError(404, "NOT_FOUND", "The console has no such file.")
        if asked.headers.get("if-none-match") == file.headers["etag"]:
            return Response(status_code=304, headers=dict(file.headers))
        return Response(file.content, headers=dict(file.headers))


def _read(name: str, content: bytes) -> _File:
    headers = {
        "content-type": _TYPES[name.rpartition(".")[2]],
        "content-security-policy": _POLICY,
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        # Asked for again each time, and answered with 304 if it is the same.
        "cache-control": "no-cache",
    }
    return _File(content, headers)
