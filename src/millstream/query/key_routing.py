"""Locates store partitions and keys, on this instance and on others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from millstream.assignment.wire_format import HostInfo
from millstream.errors import IllegalStateError, StreamsNotStartedError, StreamsStoppedError
from millstream.kafka.partitioner import partition_for
from millstream.query.partition_counts import ClusterInfo
from millstream.query.store_catalog import CatalogStore, StoreCatalog
from millstream.query.streams_metadata import (
    UNAVAILABLE,
    KeyQueryMetadata,
    LagInfo,
    PartitionOwners,
    PartitionsByHost,
    StreamsMetadata,
)
from millstream.record import TopicPartition
from millstream.runtime.queries.query_messages import StoreOffset
from millstream.runtime.states.thread_states import ClientState
from millstream.serdes import Serde

#: Chooses a partition as the producer did. The arguments are the topic, the key, None as the value,
#: and the number of partitions.
Partitioner = Callable[[str, Any, Any, int], int | None]
#: The partitions of a store by instance.
_Partitions = Mapping[HostInfo, frozenset[int]]
_LIVE: Final = frozenset({ClientState.RUNNING, ClientState.REBALANCING})


class _HostPartitions:
    """The store partitions of each instance, computed when a store is first queried."""

    def __init__(self, hosts: PartitionOwners) -> None:
        self._hosts = hosts
        self._found: dict[str, tuple[_Partitions, _Partitions]] = {}

    def for_store(self, store: CatalogStore) -> tuple[_Partitions, _Partitions]:
        """Return the partitions of active and of standby tasks."""
        found = self._found.get(store.name)
        if found is None:
            found = (
                _partitions_by_host(self._hosts.active, store),
                _partitions_by_host(self._hosts.standby, store),
            )
            self._found[store.name] = found
        return found


class StoreRouting:
    """Locates store partitions and keys.

    `own` is the `application.server` of this instance.
    """

    def __init__(
        self,
        stores: StoreCatalog,
        cluster: ClusterInfo,
        state: Callable[[], ClientState],
        own: HostInfo | None,
    ) -> None:
        self._stores = stores
        self._cluster = cluster
        self._state = state
        #: The address at which other instances reach this instance.
        self.own = own
        self._hosts: PartitionOwners | None = None
        self._host_partitions = _HostPartitions(PartitionOwners({}, {}))

    def apply_assignment(self, hosts: PartitionOwners) -> None:
        """Apply an assignment that the group leader has announced."""
        self._hosts, self._host_partitions = hosts, _HostPartitions(hosts)
        self._cluster.invalidate()

    def remote_partitions(
        self, store: CatalogStore, *, standbys: bool
    ) -> Iterable[tuple[HostInfo, frozenset[int]]]:
        """Yield the other instances that have a store, with their partitions.

        Standbys are last.
        """
        active, standby = self._host_partitions.for_store(store)
        for owned in (active, standby) if standbys else (active,):
            for host, partitions in owned.items():
                if host != self.own:
                    yield host, partitions

    def local_partitions(self, store: CatalogStore) -> frozenset[int]:
        """Return the active and standby partitions that are assigned to this instance."""
        nothing: frozenset[int] = frozenset()
        if self.own is None:
            return nothing
        active, standby = self._host_partitions.for_store(store)
        return active.get(self.own, nothing) | standby.get(self.own, nothing)

    def partitions_of(self, store: CatalogStore) -> int | None:
        """Return the number of partitions of a store; None if unknown.

        The announced assignment may contain more partitions than the latest metadata of the
        cluster.
        """
        count = self._cluster.partitions_of(store)
        if count is None:
            return None
        announced = [
            max(partitions) + 1 for partitions in self._host_partitions.for_store(store)[0].values()
        ]
        return max([count, *announced])

    # --- metadata --------------------------------------------------------------------------------

    def all_clients(self) -> list[StreamsMetadata]:
        check_is_live(self._state())
        hosts = self._hosts
        if hosts is None:
            return []
        return [
            StreamsMetadata(
                host,
                self._stores_on(hosts.active.get(host)) | self._stores.global_names,
                frozenset(hosts.active.get(host, ())),
                self._stores_on(hosts.standby.get(host)),
                frozenset(hosts.standby.get(host, ())),
            )
            for host in sorted(hosts.all)
        ]

    def clients_with_store(self, name: str) -> list[StreamsMetadata]:
        return [
            client
            for client in self.all_clients()
            if name in client.state_store_names or name in client.standby_state_store_names
        ]

    def key_metadata(
        self, name: str, key: Any, serde: Serde[Any] | None, partitioner: Partitioner | None
    ) -> KeyQueryMetadata | None:
        """Return the location of a key; None if the store does not exist."""
        check_is_live(self._state())
        store = self._stores.get(name)
        if store is None:
            return None
        hosts = self._hosts
        if store.is_global:
            first = min(hosts.active, default=UNAVAILABLE) if hosts is not None else UNAVAILABLE
            return KeyQueryMetadata(self.own or first, frozenset(), -1)
        if hosts is None or self._state() is ClientState.REBALANCING:
            return KeyQueryMetadata.NOT_AVAILABLE
        counts = self._cluster.partitions_by_topic(store)
        if not counts:
            return KeyQueryMetadata.NOT_AVAILABLE
        topic = min(counts)
        partition = self._partition_of(store, topic, key, serde, partitioner, max(counts.values()))
        active, standby = self._host_partitions.for_store(store)
        return KeyQueryMetadata(
            min(_hosts_with(partition, active), default=UNAVAILABLE),
            frozenset(_hosts_with(partition, standby)),
            partition,
        )

    def _partition_of(
        self,
        store: CatalogStore,
        topic: str,
        key: Any,
        serde: Serde[Any] | None,
        partitioner: Partitioner | None,
        count: int,
    ) -> int:
        if partitioner is not None:
            chosen = partitioner(topic, key, None, count)
            several = (chosen,) if isinstance(chosen, int) else tuple(chosen or ())
            if len(several) != 1:
                raise ValueError(
                    f"The partitioner chose {chosen!r} for the key {key!r} of topic {topic!r}, but "
                    "a key of a store belongs to exactly one partition. Pass the partitioner that "
                    "was used to write the topic."
                )
            return several[0]
        if serde is None and store.codec is not None:
            serde = store.codec.key_serde
        data = None if serde is None else serde.serialize(topic, key)
        if data is None:
            raise ValueError(
                f"The key {key!r} cannot be located in store {store.name}. Pass a key that is not "
                "None."
            )
        return partition_for(data, count)

    def _stores_on(self, topic_partitions: Iterable[TopicPartition] | None) -> frozenset[str]:
        topics = {tp.topic for tp in topic_partitions or ()}
        return frozenset(
            name
            for name in self._stores.names
            if (store := self._stores.find(name)).part is not None and any(map(store.reads, topics))
        )


def compute_lags(
    offsets: Iterable[StoreOffset], ends: Mapping[TopicPartition, int]
) -> dict[str, dict[int, LagInfo]]:
    """Return the lag of each store by partition.

    `ends` contains the end offsets of changelogs.
    """
    lags: dict[str, dict[int, LagInfo]] = {}
    for each in offsets:
        end = ends.get(each.changelog)
        if end is not None:
            at = end if each.next_offset is None else min(each.next_offset, end)
            lags.setdefault(each.store, {})[each.changelog.partition] = LagInfo(at, end)
    return lags


def _partitions_by_host(owned: PartitionsByHost, store: CatalogStore) -> _Partitions:
    found = {
        host: frozenset(tp.partition for tp in topic_partitions if store.reads(tp.topic))
        for host, topic_partitions in owned.items()
    }
    return {host: partitions for host, partitions in found.items() if partitions}


def _hosts_with(partition: int, by_host: _Partitions) -> list[HostInfo]:
    return [host for host, partitions in by_host.items() if partition in partitions]


def check_is_live(state: ClientState) -> None:
    """Check that views and metadata are available."""
    _check_started(state)
    if state not in _LIVE:
        raise IllegalStateError(f"KafkaStreams is not running. State is {state.name}.")


def check_takes_requests(state: ClientState) -> None:
    """Check that state queries are available.

    As in Kafka Streams, the error differs from that of `check_is_live`.
    """
    _check_started(state)
    if state not in _LIVE:
        raise StreamsStoppedError(f"The application is {state.name} and no longer serves queries.")


def _check_started(state: ClientState) -> None:
    if state is ClientState.CREATED:
        raise StreamsNotStartedError(
            "The application has not been started. Query it after calling start()."
        )
