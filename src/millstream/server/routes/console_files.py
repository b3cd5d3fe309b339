"""The files of the console, which are read into memory.

Only files that are in the folder `console` when the server starts are served, regardless of the
requested path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from millstream.server.request_routing import Endpoint, HttpRequest
from millstream.server.responses import HttpError

#: No external resources, no external requests, no frames.
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
#: The subfolder with one module for each view.
_VIEWS: Final = "views/"


@dataclass(frozen=True)
class _File:
    content: bytes
    headers: Mapping[str, str]


class ConsoleFiles:
    """Serves the files of the console as they were on creation."""

    def __init__(self) -> None:
        folder = files("millstream.server").joinpath("console")
        self._files = {
            prefix + each.name: _read(each.name, each.read_bytes())
            for prefix, found in (("", folder), (_VIEWS, folder.joinpath(_VIEWS)))
            for each in found.iterdir()
            if each.name.rpartition(".")[2] in _TYPES
        }

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints.

        They need no token: the files contain no application data.
        """
        return [
            Endpoint("GET", "/", self._page, is_open=True),
            Endpoint("GET", "/assets/{name}", self._asset, is_open=True),
            Endpoint("GET", f"/assets/{_VIEWS}{{name}}", self._view, is_open=True),
        ]

    async def _page(self, request: HttpRequest) -> Response:
        return self._file_response(request, _PAGE)

    async def _asset(self, request: HttpRequest) -> Response:
        return self._file_response(request, request.values["name"])

    async def _view(self, request: HttpRequest) -> Response:
        return self._file_response(request, _VIEWS + request.values["name"])

    def _file_response(self, request: HttpRequest, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HttpError(404, "NOT_FOUND", "The console does not have this file.")
        if request.headers.get("if-none-match") == file.headers["etag"]:
            return Response(status_code=304, headers=dict(file.headers))
        return Response(file.content, headers=dict(file.headers))


def _read(name: str, content: bytes) -> _File:
    headers = {
        "content-type": _TYPES[name.rpartition(".")[2]],
        "content-security-policy": _POLICY,
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        # Revalidated on each use, with a 304 response if unchanged.
        "cache-control": "no-cache",
    }
    return _File(content, headers)
