"""What is for programs alone: scrapes of metrics, and the questions of other instances."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from millstream.export.prometheus import CONTENT_TYPE
from millstream.server.parameters import bad_request
from millstream.server.routing import Asked, Endpoint
from millstream.server.served import Served
from millstream.server.workers import Workers

_MSGPACK: Final = "application/msgpack"


def metrics_endpoint(served: Served, workers: Workers) -> Endpoint:
    """`/metrics`, as Prometheus scrapes it."""

    async def answer(_: Asked) -> Response:
        text = await workers.run(served.metrics_text)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return Endpoint(
        "GET",
        "/metrics",
        answer,
        "What is counted and measured, as Prometheus scrapes it.",
        media_type="text/plain",
    )


def peer_endpoint(served: Served, workers: Workers) -> Endpoint:
    """`/internal/query`, for other instances of the same application.

    Args:
        served: what they ask.
        workers: other ones than wait for those instances in turn: two that ask each other must not
            wait for each other's threads.
    """

    async def answer(asked: Asked) -> Response:
        try:
            document = await workers.run(lambda: served.answer_peer(asked.body))
        except ValueError as error:
            raise bad_request(str(error)) from None
        return Response(document, media_type=_MSGPACK)

    return Endpoint(
        "POST",
        "/internal/query",
        answer,
        "What another instance of the same application asks. Its form may change with any version.",
        media_type=_MSGPACK,
        body="PeerQuestion",
        body_type=_MSGPACK,
        failures=frozenset({408, 413}),
    )
