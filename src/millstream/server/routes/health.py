"""Probes, for those who start instances and send them requests."""

from __future__ import annotations

from starlette.responses import Response

from millstream.server.json_response import JsonResponse
from millstream.server.routing import Asked, Endpoint
from millstream.server.served import Served


def health_endpoints(served: Served) -> list[Endpoint]:
    """`/health/live` and `/health/ready`: 200 for yes, 503 for no.

    They are for anybody, since those who probe show no tokens, and so tell no more than that; with
    the token they tell why.
    """

    def answer(asked: Asked, is_well: bool, state: str, why: str) -> Response:
        document = {"status": "ok" if is_well else "not ok"}
        if asked.is_authorized:
            document |= {"state": state, "why": why}
        return JsonResponse(document, 200 if is_well else 503)

    async def live(asked: Asked) -> Response:
        health = served.health()
        return answer(asked, health.live, health.state, health.why)

    async def ready(asked: Asked) -> Response:
        health = served.health()
        return answer(asked, health.ready, health.state, health.why)

    return [
        Endpoint(
            "GET",
            "/health/live",
            live,
            "Whether the instance is alive; one that is not is to be started anew.",
            "Health",
            is_open=True,
            failures=frozenset({503}),
        ),
        Endpoint(
            "GET",
            "/health/ready",
            ready,
            "Whether the instance processes all its tasks.",
            "Health",
            is_open=True,
            failures=frozenset({503}),
        ),
    ]
