"""Every request comes through here: who may ask, what no request is, what is told of failures."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millstream.errors import StreamsError
from millstream.server.http_error import HttpError, http_error_of
from millstream.server.parameters import read_query
from millstream.server.routing import Asked, Endpoint, Routes
from millstream.server.settings import ServerOptions

logger = logging.getLogger(__name__)

_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Site:
    """An application's answers to requests, as an ASGI application.

    Args:
        routes: what can be asked for.
        options: whom is answered, and how much.
    """

    def __init__(self, routes: Routes, options: ServerOptions) -> None:
        self._routes = routes
        self._token = options.token.encode()
        self._max_bytes = options.max_bytes
        self._timeout_ms = options.timeout_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "neither web sockets nor a life span are served"
        headers = Headers(scope=scope)
        try:
            endpoint, asked = await self._admitted(scope, headers, receive)
            response = await endpoint.answer(asked)
        except Exception as error:
            response = _failed(error, scope)
            if _has_body(headers):
                # What was not read of it is not waited for.
                response.headers["connection"] = "close"
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _admitted(
        self, scope: Scope, headers: Headers, receive: Receive
    ) -> tuple[Endpoint, Asked]:
        """What is asked for, if it may be.

        Raises:
            HttpError: it may not.
        """
        method, is_authorized = scope["method"], self._is_authorized(headers)
        try:
            endpoint, values = self._routes.find(method, scope["raw_path"])
        except HttpError:
            # Who does not show the token is not told what there is.
            if is_authorized:
                raise
            raise _unauthorized() from None
        if not is_authorized and not endpoint.is_open:
            raise _unauthorized()
        given = read_query(scope["query_string"], endpoint.parameters)
        if endpoint.body is not None:
            body = await self._body(headers, receive)
        elif _has_body(headers):
            raise HttpError(400, "BAD_REQUEST", f"{method} has no body here.")
        else:
            body = b""
        return endpoint, Asked(method, values | given, headers, body, is_authorized)

    def _is_authorized(self, headers: Headers) -> bool:
        given = headers.getlist("authorization")
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(" ")
        # Headers are latin-1 here; whatever was sent comes back as the bytes that it was.
        is_same = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        return scheme.lower() == "bearer" and is_same

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """All that was sent.

        Raises:
            HttpError: it is too large, takes too long, or the client is gone.
        """
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > self._max_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                is_whole = False
                while not is_whole:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise HttpError(400, "BAD_REQUEST", "The body has ended early.")
                    body += message.get("body", b"")
                    is_whole = not message.get("more_body", False)
                    if len(body) > self._max_bytes:
                        raise self._too_large()
        except TimeoutError:
            raise HttpError(
                408,
                "REQUEST_TOO_SLOW",
                f"The body has not come within {self._timeout_ms} ms (server_request_timeout_ms).",
            ) from None
        return bytes(body)

    def _too_large(self) -> HttpError:
        return HttpError(
            413,
            "REQUEST_TOO_LARGE",
            f"A body may have {self._max_bytes} bytes (server_request_max_bytes).",
        )


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _unauthorized() -> HttpError:
    return HttpError(
        401,
        "UNAUTHORIZED",
        "Show the token of the server: 'Authorization: Bearer <token>'. The application's log told "
        "it when the server started, unless it was given (server_token).",
        headers={"www-authenticate": "Bearer"},
    )


def _failed(error: Exception, scope: Scope) -> Response:
    if isinstance(error, HttpError):
        return error.as_response()
    if isinstance(error, StreamsError):
        return http_error_of(error).as_response()
    logger.error("%s %r failed", scope["method"], scope["raw_path"], exc_info=error)
    return HttpError(
        500, "INTERNAL_ERROR", "The server has failed; the application's log tells how."
    ).as_response()
