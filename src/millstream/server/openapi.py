"""The OpenAPI document, generated from the endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from starlette.responses import Response

from millstream.server.parameters import MAX_INTEGER, Parameter
from millstream.server.request_routing import Endpoint, HttpRequest
from millstream.server.responses import JsonResponse, as_json
from millstream.server.schemas import SCHEMAS, ref

_MEANINGS: Final[Mapping[int, str]] = {
    400: "The request is invalid.",
    401: "The token is missing or wrong.",
    404: "The resource does not exist.",
    408: "The request was not received in time.",
    413: "The request is too large.",
    429: "There are too many concurrent requests; try again later.",
    500: "An internal error occurred.",
    503: "Temporarily unavailable; the error contains the delay before a retry.",
}
#: The error statuses that every endpoint can return.
_COMMON_FAILURES: Final = (400, 429, 500, 503)


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        if each.summary:
            paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream",
            "version": version("millstream"),
            "description": "Metadata and stores of an application. Times are milliseconds since "
            "the epoch.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(SCHEMAS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {endpoint.media_type: {}}
    if endpoint.schema is not None:
        content = {endpoint.media_type: {"schema": ref(endpoint.schema)}}
    statuses = {*_COMMON_FAILURES, *endpoint.failures, *(() if endpoint.is_open else (401,))}
    described: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "parameters": [_parameter(each) for each in endpoint.parameters],
        "responses": {
            "200": {"description": "Success.", "content": content},
            **{str(status): _failure(status, endpoint) for status in sorted(statuses)},
        },
    }
    if endpoint.is_open:
        described["security"] = []
    if endpoint.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {endpoint.body_type: {"schema": ref(endpoint.body)}},
        }
    return described


def _failure(status: int, endpoint: Endpoint) -> dict[str, Any]:
    schema = ref("Health" if endpoint.schema == "Health" and status == 503 else "Error")
    return {
        "description": _MEANINGS[status],
        "content": {"application/json": {"schema": schema}},
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.kind == "integer":
        schema["format"] = "int64"
        schema["minimum"] = parameter.minimum
        if parameter.maximum != MAX_INTEGER:
            schema["maximum"] = parameter.maximum
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "path" if parameter.is_in_path else "query",
        "required": parameter.required,
        "description": parameter.doc,
        "schema": schema,
    }


def _name(endpoint: Endpoint) -> str:
    """Return the operation ID, such as `get_stores_keys_by_store_key`."""
    parts = [part for part in endpoint.path.strip("/").split("/") if part]
    plain = [part.replace(".", "_") for part in parts if not part.startswith("{")]
    given = [part.strip("{}") for part in parts if part.startswith("{")]
    return "_".join([endpoint.method.lower(), *plain, *(["by", *given] if given else [])])


def document_endpoint(others: Sequence[Endpoint]) -> Endpoint:
    """Return the endpoint `/openapi.json`, whose document includes itself."""

    async def handle(_: HttpRequest) -> Response:
        return Response(written, media_type=JsonResponse.media_type)

    own = Endpoint(
        "GET", "/openapi.json", handle, "This document.", "OpenApi", failures=frozenset()
    )
    written = as_json(openapi([*others, own]))
    return own
