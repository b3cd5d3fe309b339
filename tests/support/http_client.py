"""A client for the HTTP server of an application."""

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
    """Sends requests and returns the status and the document."""

    def __init__(self, address: ServerAddress, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._tls = tls

    def request(
        self, path: str, *, token: str | None = "", method: str = "GET", body: bytes | None = None
    ) -> tuple[int, Any]:
        """Send a request and return the status and the decoded body.

        Args:
            token: None sends no token; the default is the valid one.
        """
        request = urllib.request.Request(self.address.url + path, data=body, method=method)
        if token is not None:
            request.add_header("authorization", f"Bearer {token or self.address.token}")
        try:
            with self._open(request) as response:
                return response.status, _document(response)
        except urllib.error.HTTPError as error:
            return error.code, _document(error)

    def stream(self, path: str) -> http.client.HTTPResponse:
        """Open a stream of events; the caller closes it."""
        token = {"authorization": f"Bearer {self.address.token}"}
        return self._open(urllib.request.Request(self.address.url + path, headers=token))

    def _open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        response: http.client.HTTPResponse = urllib.request.urlopen(
            request, timeout=30, context=self._tls
        )
        return response

    def get(self, *parts: str, **parameters: Any) -> Any:
        """Request the document at a path and quote the parts of the path.

        Args:
            parameters: of the query string; a trailing `_` of a name is removed.
        """
        path = "/" + "/".join(quote(part, safe="") for part in parts)
        query = {
            name.rstrip("_"): str(value).lower() if isinstance(value, bool) else value
            for name, value in parameters.items()
            if value is not None
        }
        status, document = self.request(f"{path}?{urlencode(query)}" if query else path)
        assert status == 200, document
        return document

    def pages(self, *parts: str, **parameters: Any) -> list[Any]:
        """Request all pages and return their entries."""
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
