"""All that can be asked for, put together, and what it needs while it is."""

from __future__ import annotations

from millstream.server.routes.console import ConsoleRoutes
from millstream.server.routes.console_files import ConsoleFiles
from millstream.server.routes.document import document_endpoint
from millstream.server.routes.health import health_endpoints
from millstream.server.routes.internal import metrics_endpoint, peer_endpoint
from millstream.server.routes.metadata import MetadataRoutes
from millstream.server.routes.stores import StoreRoutes
from millstream.server.routes.subscription import subscription_endpoints
from millstream.server.routing import Routes
from millstream.server.served import Served
from millstream.server.settings import ServerOptions
from millstream.server.workers import Workers


class Answers:
    """The table of an application's server.

    Args:
        served: what is asked.
        options: how much is done at a time.
    """

    def __init__(self, served: Served, options: ServerOptions) -> None:
        self._workers = Workers(options.max_requests, options.timeout_ms)
        self._for_peers = Workers(options.max_requests, options.timeout_ms)
        self._console = ConsoleRoutes(served, self._workers)
        endpoints = [
            *ConsoleFiles().endpoints(),
            *health_endpoints(served),
            *self._console.endpoints(),
            *StoreRoutes(served, self._workers).endpoints(),
            *MetadataRoutes(served, self._workers).endpoints(),
            *subscription_endpoints(served, self._workers),
            metrics_endpoint(served, self._workers),
            peer_endpoint(served, self._for_peers),
        ]
        self.routes = Routes([*endpoints, document_endpoint(endpoints)])

    def end_streams(self) -> None:
        """End what would never end. Called on the server's event loop."""
        self._console.close()

    def close(self) -> None:
        """Take no more work."""
        self._workers.close()
        self._for_peers.close()
