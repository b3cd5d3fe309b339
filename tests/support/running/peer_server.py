"""A minimal server that serves an instance's queries to other instances."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millstream import KafkaStreams
from millstream.query.remote_instances import PATH
from support.machine.http_server import HttpRequest, http_server

_TOKEN = "secret"


class PeerServer:
    """Answers for an instance after `serve`.

    Attributes:
        address: the value for `application_server`.
        answered: the number of answered requests.
    """

    def __init__(self) -> None:
        self.address = ""
        self.answered = 0
        self._streams: KafkaStreams | None = None

    def serve(self, streams: KafkaStreams) -> None:
        """Answer for this instance, which sends the token to other instances."""
        self._streams = streams
        streams._query_client.instances.set_credentials(_TOKEN)

    def respond(self, request: HttpRequest) -> tuple[int, bytes]:
        if request.headers["Authorization"] != f"Bearer {_TOKEN}" or request.path != PATH:
            return 401, b""
        if self._streams is None:
            return 503, b""
        self.answered += 1
        return 200, self._streams._query_client.answer(request.body)


@contextmanager
def peer_server() -> Iterator[PeerServer]:
    """Run a server until the end of the block."""
    peer = PeerServer()
    with http_server(peer.respond) as url:
        peer.address = url.removeprefix("http://")
        yield peer
