"""Endpoints for programs: health probes, metrics, and queries of other instances."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from millstream.export.prometheus import CONTENT_TYPE
from millstream.server.backend import ServerBackend
from millstream.server.parameters import bad_request
from millstream.server.request_routing import Endpoint, HttpRequest
from millstream.server.request_threads import RequestThreads
from millstream.server.responses import JsonResponse

_MSGPACK: Final = "application/msgpack"


def health_endpoints(backend: ServerBackend) -> list[Endpoint]:
    """Return the endpoints `/health/live` and `/health/ready`.

    The status is 200 for yes and 503 for no.

    They need no token, because probes do not send one. With the token, the response also contains
    the state and the reason.
    """

    def endpoint(probe: str, summary: str) -> Endpoint:
        async def handle(request: HttpRequest) -> Response:
            health = backend.health()
            is_ok = health.live if probe == "live" else health.ready
            document = {"status": "ok" if is_ok else "not ok"}
            if request.is_authorized:
                document |= {"state": health.state, "why": health.why}
            return JsonResponse(document, 200 if is_ok else 503)

        path, failures = f"/health/{probe}", frozenset({503})
        return Endpoint("GET", path, handle, summary, "Health", is_open=True, failures=failures)

    return [
        endpoint("live", "Whether the instance is alive; if not, it should be restarted."),
        endpoint("ready", "Whether the instance processes all its tasks."),
    ]


def metrics_endpoint(backend: ServerBackend, threads: RequestThreads) -> Endpoint:
    async def handle(_: HttpRequest) -> Response:
        text = await threads.run(backend.metrics_text)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return Endpoint(
        "GET",
        "/metrics",
        handle,
        "The metrics in Prometheus' text format.",
        media_type="text/plain",
    )


def peer_endpoint(backend: ServerBackend, threads: RequestThreads) -> Endpoint:
    """Return the endpoint `/internal/query` for other instances of the application.

    Its threads never wait for other instances: otherwise, two instances that query each other could
    exhaust each other's threads.
    """

    async def handle(request: HttpRequest) -> Response:
        try:
            document = await threads.run(lambda: backend.answer_peer(request.body))
        except ValueError as error:
            raise bad_request(str(error)) from None
        return Response(document, media_type=_MSGPACK)

    return Endpoint(
        "POST",
        "/internal/query",
        handle,
        "Queries of other instances of the application. The format may change in any version.",
        media_type=_MSGPACK,
        body="PeerQuestion",
        body_type=_MSGPACK,
        failures=frozenset({408, 413}),
    )
