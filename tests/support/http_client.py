"""Asking an application's HTTP server."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlencode

from millstream import ServerAddress


class HttpClient:
    """Asks, and gives status and document.

    Args:
        address: of the server.
        tls: for HTTPS.
    """

    def __init__(self, address: ServerAddress, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._tls = tls

    def ask(
        self, path: str, *, token: str | None = "", method: str = "GET", body: bytes | None = None
    ) -> tuple[int, Any]:
        """Ask for a path; status, and what is in the body.

        Args:
            path: with its parameters.
            token: None for none; by default the right one.
            method: of the request.
            body: what is sent.
        """
        request = urllib.request.Request(self.address.url + path, data=body, method=method)
        if token is not None:
            request.add_header("authorization", f"Bearer {token or self.address.token}")
        try:
            with self._open(request) as response:
                return response.status, _document(response)
        except urllib.error.HTTPError as error:
            return error.code, _document(error)

    def listen(self, path: str) -> http.client.HTTPResponse:
        """What is told at a path until the server ends it; whoever listens closes it."""
        token = {"authorization": f"Bearer {self.address.token}"}
        return self._open(urllib.request.Request(self.address.url + path, headers=token))

    def _open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        response: http.client.HTTPResponse = urllib.request.urlopen(
            request, timeout=30, context=self._tls
        )
        return response

    def get(self, *parts: str, **parameters: Any) -> Any:
        """The document at a path, of which each part is quoted.

        Args:
            parts: of the path.
            parameters: behind the question mark; a `_` at the end of a name is left out.
        """
        path = "/" + "/".join(quote(part, safe="") for part in parts)
        given = {
            name.rstrip("_"): str(value).lower() if isinstance(value, bool) else value
            for name, value in parameters.items()
            if value is not None
        }
        status, document = self.ask(f"{path}?{urlencode(given)}" if given else path)
        assert status == 200, document
        return document

    def pages(self, *parts: str, **parameters: Any) -> list[Any]:
        """All entries, page by page."""
        entries: list[Any] = []
        cursor = None
        while True:
            page = self.get(*parts, **parameters, cursor=cursor)
            entries += page["entries"]
            cursor = page["cursor"]
            if cursor is None:
                return entries


def _document(response: http.client.HTTPResponse | urllib.error.HTTPError) -> Any:
    data = response.read()
    if "json" in (response.headers.get("content-type") or ""):
        return json.loads(data)
    return data
