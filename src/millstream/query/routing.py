"""Who has which partitions of a store: this instance, others, and those to be asked for a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millstream.assignment.wire.assignment_info import HostInfo
from millstream.kafka.partitioner import partition_for
from millstream.query.cluster import Cluster
from millstream.query.liveness import check_is_live
from millstream.query.metadata import (
    UNAVAILABLE,
    Hosts,
    KeyQueryMetadata,
    LagInfo,
    Owned,
    StreamsMetadata,
)
from millstream.query.stores import KnownStore, KnownStores
from millstream.record import TopicPartition
from millstream.runtime.queries.questions import StoreOffset
from millstream.runtime.states import ClientState
from millstream.serdes import Serde

#: Chooses a partition as the producer did: topic, key, value (None), how many partitions there are.
Partitioner = Callable[[str, Any, Any, int], int | None]


#: The partitions of a store by instance.
_Partitions = Mapping[HostInfo, frozenset[int]]


class _Having:
    """Which partitions of each store instances have: found once, when a store is asked first.

    Args:
        hosts: what the leader has told.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._found: dict[str, tuple[_Partitions, _Partitions]] = {}

    def of(self, store: KnownStore) -> tuple[_Partitions, _Partitions]:
        """Those of active tasks, and those of standby tasks."""
        found = self._found.get(store.name)
        if found is None:
            found = _by_host(self._hosts.active, store), _by_host(self._hosts.standby, store)
            self._found[store.name] = found
        return found


class Routing:
    """Where the partitions of stores are.

    Args:
        stores: those of the topology.
        cluster: tells how many partitions topics have.
        state: of the application.
        own: this instance's `application.server`; None if it has none.
    """

    def __init__(
        self,
        stores: KnownStores,
        cluster: Cluster,
        state: Callable[[], ClientState],
        own: HostInfo | None,
    ) -> None:
        self._stores = stores
        self._cluster = cluster
        self._state = state
        #: Where others reach this instance.
        self.own = own
        self._hosts: Hosts | None = None
        self._having = _Having(Hosts({}, {}))

    def learn(self, hosts: Hosts) -> None:
        """The leader has told who has what."""
        self._hosts, self._having = hosts, _Having(hosts)
        self._cluster.look_anew()

    def others(
        self, store: KnownStore, *, standbys: bool
    ) -> Iterable[tuple[HostInfo, frozenset[int]]]:
        """The other instances that have a store, and which of its partitions.

        Args:
            store: the store.
            standbys: whether to tell of copies, too, after all others.
        """
        active, standby = self._having.of(store)
        for owned in (active, standby) if standbys else (active,):
            for host, partitions in owned.items():
                if host != self.own:
                    yield host, partitions

    def here(self, store: KnownStore) -> frozenset[int]:
        """The partitions of a store that this instance has, or copies of them, by what the leader
        has told."""
        nothing: frozenset[int] = frozenset()
        if self.own is None:
            return nothing
        active, standby = self._having.of(store)
        return active.get(self.own, nothing) | standby.get(self.own, nothing)

    def partitions_of(self, store: KnownStore) -> int | None:
        """How many partitions a store has; None if the cluster does not tell.

        The leader may know of more than the cluster had when it was asked last.
        """
        count = self._cluster.partitions_of(store)
        if count is None:
            return None
        told = [max(partitions) + 1 for partitions in self._having.of(store)[0].values()]
        return max([count, *told])

    # --- metadata --------------------------------------------------------------------------------

    def all_clients(self) -> list[StreamsMetadata]:
        """What each instance has."""
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

    def clients_of(self, name: str) -> list[StreamsMetadata]:
        """The instances that have a store or a copy of it."""
        return [
            client
            for client in self.all_clients()
            if name in client.state_store_names or name in client.standby_state_store_names
        ]

    def of_key(
        self, name: str, key: Any, serde: Serde[Any] | None, partitioner: Partitioner | None
    ) -> KeyQueryMetadata | None:
        """Where a key is; None if there is no such store."""
        check_is_live(self._state())
        store = self._stores.known(name)
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
        active, standby = self._having.of(store)
        return KeyQueryMetadata(
            min(_with(partition, active), default=UNAVAILABLE),
            frozenset(_with(partition, standby)),
            partition,
        )

    def _partition_of(
        self,
        store: KnownStore,
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
                    "a key of a store is in one partition. Give the partitioner by which the topic "
                    "was written."
                )
            return several[0]
        if serde is None and store.codec is not None:
            serde = store.codec.key_serde
        data = None if serde is None else serde.serialize(topic, key)
        if data is None:
            raise ValueError(f"Store {store.name} was asked where the key {key!r} is: give a key.")
        return partition_for(data, count)

    def _stores_on(self, places: Iterable[TopicPartition] | None) -> frozenset[str]:
        topics = {place.topic for place in places or ()}
        return frozenset(
            name
            for name in self._stores.names
            if (store := self._stores.find(name)).part is not None and any(map(store.reads, topics))
        )


def lags_of(
    offsets: Iterable[StoreOffset], ends: Mapping[TopicPartition, int]
) -> dict[str, dict[int, LagInfo]]:
    """The lag of each store by partition.

    Args:
        offsets: how far stores have read.
        ends: where their changelogs end.
    """
    lags: dict[str, dict[int, LagInfo]] = {}
    for each in offsets:
        end = ends.get(each.changelog)
        if end is not None:
            at = end if each.following is None else min(each.following, end)
            lags.setdefault(each.store, {})[each.changelog.partition] = LagInfo(at, end)
    return lags


def _by_host(owned: Owned, store: KnownStore) -> _Partitions:
    found = {
        host: frozenset(place.partition for place in places if store.reads(place.topic))
        for host, places in owned.items()
    }
    return {host: partitions for host, partitions in found.items() if partitions}


def _with(partition: int, having: _Partitions) -> list[HostInfo]:
    return [host for host, partitions in having.items() if partition in partitions]
