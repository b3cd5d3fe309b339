"""The ASGI application: authorization, request validation and error responses."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millstream.errors import StreamsError
from millstream.server.parameters import read_query
from millstream.server.request_routing import Endpoint, HttpRequest, Routes
from millstream.server.responses import HttpError, to_http_error
from millstream.server.server_settings import ServerOptions

logger = logging.getLogger(__name__)

_SECURITY_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class AsgiApp:
    def __init__(self, routes: Routes, options: ServerOptions) -> None:
        self._routes = routes
        self._token = options.token.encode()
        self._max_bytes = options.max_bytes
        self._timeout_ms = options.timeout_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "WebSocket and lifespan are disabled"
        headers = Headers(scope=scope)
        try:
            endpoint, request = await self._validate(scope, headers, receive)
            response = await endpoint.handler(request)
        except Exception as error:
            response = _error_response(error, scope)
            if _has_body(headers):
                # The rest of the body is not read.
                response.headers["connection"] = "close"
        for name, value in _SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _validate(
        self, scope: Scope, headers: Headers, receive: Receive
    ) -> tuple[Endpoint, HttpRequest]:
        method, is_authorized = scope["method"], self._is_authorized(headers)
        try:
            endpoint, values = self._routes.find(method, scope["raw_path"])
        except HttpError:
            # Do not reveal to unauthorized clients which paths exist.
            if is_authorized:
                raise
            raise _unauthorized() from None
        if not is_authorized and not endpoint.is_open:
            raise _unauthorized()
        given = read_query(scope["query_string"], endpoint.parameters)
        if endpoint.body is not None:
            body = await self._body(headers, receive)
        elif _has_body(headers):
            raise HttpError(400, "BAD_REQUEST", f"{method} must not have a body for this path.")
        else:
            body = b""
        return endpoint, HttpRequest(method, values | given, headers, body, is_authorized)

    def _is_authorized(self, headers: Headers) -> bool:
        given = headers.getlist("authorization")
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(" ")
        # Headers are decoded as latin-1, so encoding restores the original bytes.
        is_same = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        return scheme.lower() == "bearer" and is_same

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
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
                        raise HttpError(400, "BAD_REQUEST", "The body is incomplete.")
                    body += message.get("body", b"")
                    is_whole = not message.get("more_body", False)
                    if len(body) > self._max_bytes:
                        raise self._too_large()
        except TimeoutError:
            raise HttpError(
                408,
                "REQUEST_TOO_SLOW",
                f"The body was not received within {self._timeout_ms} ms "
                "(server_request_timeout_ms).",
            ) from None
        return bytes(body)

    def _too_large(self) -> HttpError:
        return HttpError(
            413,
            "REQUEST_TOO_LARGE",
            f"The body may have at most {self._max_bytes} bytes (server_request_max_bytes).",
        )


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _unauthorized() -> HttpError:
    return HttpError(
        401,
        "UNAUTHORIZED",
        "Send the token of the server: 'Authorization: Bearer <token>'. The application logged "
        "it when the server started, unless it was configured (server_token).",
        headers={"www-authenticate": "Bearer"},
    )


def _error_response(error: Exception, scope: Scope) -> Response:
    if isinstance(error, HttpError):
        return error.as_response()
    if isinstance(error, StreamsError):
        return to_http_error(error).as_response()
    logger.error("%s %r failed", scope["method"], scope["raw_path"], exc_info=error)
    return HttpError(
        500, "INTERNAL_ERROR", "An internal error occurred; see the application's log."
    ).as_response()
