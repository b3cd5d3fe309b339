"""The OpenAPI document of all that can be asked for."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from millstream.server.json_response import JsonResponse, as_json
from millstream.server.openapi import openapi
from millstream.server.routing import Asked, Endpoint


def document_endpoint(others: Sequence[Endpoint]) -> Endpoint:
    """`/openapi.json`, which has itself as well."""

    async def answer(_: Asked) -> Response:
        return Response(written, media_type=JsonResponse.media_type)

    own = Endpoint(
        "GET", "/openapi.json", answer, "This document.", "OpenApi", failures=frozenset()
    )
    written = as_json(openapi([*others, own]))
    return own
