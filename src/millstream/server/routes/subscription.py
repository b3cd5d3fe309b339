"""The properties of a subscription, which change while it runs."""

from __future__ import annotations

from typing import Any

import orjson

from millstream.errors import ConfigError
from millstream.server.http_error import HttpError
from millstream.server.parameters import bad_request
from millstream.server.routing import Asked, Endpoint
from millstream.server.served import Served
from millstream.server.workers import Workers, answered_on


def subscription_endpoints(served: Served, workers: Workers) -> list[Endpoint]:
    """`/subscription/properties`, to be read and changed."""

    def read(_: Asked) -> Any:
        properties = served.properties()
        if properties is None:
            raise _no_subscription()
        return properties

    def change(asked: Asked) -> Any:
        try:
            given = orjson.loads(asked.body)
        except orjson.JSONDecodeError as error:
            raise bad_request(f"The body is no JSON: {error}.") from None
        if not isinstance(given, dict) or not given:
            raise bad_request('The body must name properties: {"partition_concurrency": 20}.')
        try:
            properties = served.change_properties(given)
        except (ConfigError, TypeError) as error:
            raise HttpError(400, "INVALID_PROPERTIES", str(error)) from None
        if properties is None:
            raise _no_subscription()
        return properties

    path = "/subscription/properties"
    failures = frozenset({404})
    return [
        Endpoint(
            "GET",
            path,
            answered_on(workers, read),
            "The properties of the subscription.",
            "Properties",
            failures=failures,
        ),
        Endpoint(
            "PUT",
            path,
            answered_on(workers, change),
            "Change some properties of the subscription while it runs; all of them as they are "
            "then. A file of properties still wins.",
            "Properties",
            body="Properties",
            failures=failures | {413, 408},
        ),
    ]


def _no_subscription() -> HttpError:
    return HttpError(404, "NOT_FOUND", "This application is no subscription.")
