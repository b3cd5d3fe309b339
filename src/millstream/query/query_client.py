"""The entry point for all queries that an application instance makes or receives."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from millstream.assignment.wire_format import HostInfo
from millstream.config.streams_config import StreamsConfig
from millstream.query.key_routing import StoreRouting, compute_lags
from millstream.query.local_threads import LocalThreads, SendToThread, Threads
from millstream.query.partition_counts import ClusterInfo
from millstream.query.remote_instances import RemoteInstances, query_responder
from millstream.query.state_queries import StateQueries
from millstream.query.store_catalog import StoreCatalog
from millstream.query.streams_metadata import LagInfo, PartitionOwners
from millstream.runtime.states.thread_states import ClientState
from millstream.runtime.thread_control import HostsChanged
from millstream.topology.physical.topology import Topology


class QueryClient:
    """Queries the stores, metadata and lags of an application.

    `answer` responds to queries from other instances; see `query_responder`.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        threads: Threads,
        send: SendToThread,
        state: Callable[[], ClientState],
    ) -> None:
        self._own = LocalThreads(threads, send)
        self._cluster = ClusterInfo(config)
        self.stores = StoreCatalog(topology, config)
        self.instances = RemoteInstances()
        self.routing = StoreRouting(
            self.stores, self._cluster, state, HostInfo.parse(config.application_server)
        )
        self.queries = StateQueries(self.stores, self._own, self.routing, self.instances, state)
        self.answer = query_responder(self._own, self.stores)

    def set_own_address(self, address: str, token: str, tls: ssl.SSLContext | None) -> None:
        """Set this instance's address and the credentials for other instances.

        The address has the form `host:port`, and is empty if other instances cannot reach this one.
        Without `tls`, other instances are queried over HTTP instead of HTTPS.
        """
        self.routing.own = HostInfo.parse(address)
        self.instances.set_credentials(token, tls)

    def partitions_of(self, store: str) -> int | None:
        return self.routing.partitions_of(self.stores.find(store))

    def apply_assignment(self, change: HostsChanged) -> None:
        active = {
            host: frozenset(topic_partitions) for host, topic_partitions in change.active.items()
        }
        standby = {
            host: frozenset(topic_partitions) for host, topic_partitions in change.standby.items()
        }
        hosts = PartitionOwners(active, standby)
        self.routing.apply_assignment(hosts)
        self.instances.retain(hosts.all)
        self.queries.retain(hosts.all)

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return the changelog lags of local stores, by store and partition."""
        offsets = self._own.offsets()
        topic_partitions = frozenset(each.changelog for each in offsets)
        return compute_lags(
            offsets, self._cluster.ends(topic_partitions) if topic_partitions else {}
        )

    def close(self) -> None:
        self.queries.close()
        self.instances.close()
        self._cluster.close()
