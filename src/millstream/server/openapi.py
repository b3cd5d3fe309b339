"""The OpenAPI document, made of the table of endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final

from millstream.server.parameters import INTEGER_MOST, Parameter
from millstream.server.routing import Endpoint
from millstream.server.schemas import SCHEMAS, ref

_MEANINGS: Final[Mapping[int, str]] = {
    400: "The request is not as it must be.",
    401: "The token was not shown, or is another one.",
    404: "There is no such thing.",
    408: "The request took too long to come.",
    413: "The request is too large.",
    429: "Too many requests at a time; ask again later.",
    500: "The server has failed.",
    503: "There is no answer now; the error tells when to ask again.",
}
#: What may happen to any request that takes a thread.
_ALWAYS: Final = (400, 429, 500, 503)


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document: what can be asked for, with what, and what the answers look like."""
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        if each.summary:
            paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream",
            "version": version("millstream"),
            "description": "What an application answers about itself and its stores. Times are "
            "milliseconds since the epoch.",
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
    statuses = {*_ALWAYS, *endpoint.failures, *(() if endpoint.is_open else (401,))}
    described: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "parameters": [_parameter(each) for each in endpoint.parameters],
        "responses": {
            "200": {"description": "The answer.", "content": content},
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
        schema["minimum"] = parameter.least
        if parameter.most != INTEGER_MOST:
            schema["maximum"] = parameter.most
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
    """`GET /stores/{store}/keys/{key}` as `get_stores_keys_by_store_key`."""
    parts = [part for part in endpoint.path.strip("/").split("/") if part]
    plain = [part.replace(".", "_") for part in parts if not part.startswith("{")]
    given = [part.strip("{}") for part in parts if part.startswith("{")]
    return "_".join([endpoint.method.lower(), *plain, *(["by", *given] if given else [])])
