"""Everything that an application is asked of its state, put together."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from millstream.assignment.wire.assignment_info import HostInfo
from millstream.config import StreamsConfig
from millstream.query.asking import AskThread, OwnThreads, Threads
from millstream.query.cluster import Cluster
from millstream.query.metadata import Hosts, LagInfo
from millstream.query.peers import Instances, answering
from millstream.query.routing import Routing, lags_of
from millstream.query.state_queries import StateQueries
from millstream.query.stores import KnownStores
from millstream.runtime.control import HostsChanged
from millstream.runtime.states import ClientState
from millstream.topology.physical.topology import Topology


class Asked:
    """What answers for an application instance.

    Args:
        topology: what it computes.
        config: settings.
        threads: its stream threads.
        ask: asks one of them.
        state: of the instance.

    Attributes:
        stores: those of the topology.
        queries: asks stores.
        routing: tells who has what.
        instances: the other instances, as far as they were asked.
        answer: answers the documents of other instances; see `peers.answering`.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        threads: Threads,
        ask: AskThread,
        state: Callable[[], ClientState],
    ) -> None:
        self._own = OwnThreads(threads, ask)
        self._cluster = Cluster(config)
        self.stores = KnownStores(topology, config)
        self.instances = Instances()
        self.routing = Routing(
            self.stores, self._cluster, state, HostInfo.parse(config.application_server)
        )
        self.queries = StateQueries(self.stores, self._own, self.routing, self.instances, state)
        self.answer = answering(self._own, self.stores)

    def is_reached_at(self, address: str, token: str, tls: ssl.SSLContext | None) -> None:
        """The instance serves, and so do the others, with the same token and certificates.

        Args:
            address: where they reach it, as `host:port`; empty if they do not.
            token: what each of them wants to be shown.
            tls: with what connections to them are encrypted; None for plain ones.
        """
        self.routing.own = HostInfo.parse(address)
        self.instances.use(token, tls)

    def partitions_of(self, store: str) -> int | None:
        """How many partitions a store has; None for a global one, or if it is not known."""
        return self.routing.partitions_of(self.stores.find(store))

    def learn(self, told: HostsChanged) -> None:
        """The leader has told who has what."""
        active = {host: frozenset(places) for host, places in told.active.items()}
        standby = {host: frozenset(places) for host, places in told.standby.items()}
        hosts = Hosts(active, standby)
        self.routing.learn(hosts)
        self.instances.keep(hosts.all)
        self.queries.keep(hosts.all)

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """How far the stores here are behind their changelogs.

        Raises:
            BrokerUnavailableError: no broker tells where they end.
        """
        offsets = self._own.offsets()
        places = frozenset(each.changelog for each in offsets)
        return lags_of(offsets, self._cluster.ends(places) if places else {})

    def close(self) -> None:
        """Let go of connections."""
        self.queries.close()
        self.instances.close()
        self._cluster.close()
