"""What is known of the stores of a topology where they are asked from."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.config import StreamsConfig
from millstream.config_fields import did_you_mean
from millstream.errors import UnknownStateStoreError
from millstream.runtime.queries.reach import NO_UPSTREAM, Upstream, upstream_of_stores
from millstream.state.queries.codec import StoreCodec, codec_of
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology


@dataclass(frozen=True)
class KnownStore:
    """A store of the topology.

    Args:
        name: its name.
        codec: how it is asked; None if it takes no queries.
        part: the sub-topology whose tasks have it; None for a global store.
        upstream: what lies in front of it; of no importance for a global store.
    """

    name: str
    codec: StoreCodec | None
    part: SubTopology | None
    upstream: Upstream = NO_UPSTREAM

    def reads(self, topic: str) -> bool:
        """Whether records of a topic reach the store."""
        return self.upstream.reads(topic)

    @property
    def is_global(self) -> bool:
        """Whether each thread has all of it."""
        return self.part is None


class KnownStores:
    """The stores of a topology.

    Args:
        topology: the topology.
        config: settings, for serdes that were left open.
    """

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        application_id = config.application_id
        self._stores: dict[str, KnownStore] = {}
        parts = topology._subtopologies()
        upstream = upstream_of_stores(parts, application_id)
        for part in parts:
            for name, builder in part.stores.items():
                topic = f"{application_id}-{name}-changelog"
                if name in part.changelogs:
                    topic = part.decorate(part.changelogs[name], application_id)
                codec = codec_of(builder.resolved(config), topic)
                self._stores[name] = KnownStore(name, codec, part, upstream[part.id][name])
        for nodes in topology.global_stores.values():
            codec = codec_of(nodes.store_builder.resolved(config), nodes.topic)
            self._stores[nodes.store] = KnownStore(nodes.store, codec, None)

    @property
    def names(self) -> list[str]:
        """The names of all stores, sorted."""
        return sorted(self._stores)

    @property
    def global_names(self) -> frozenset[str]:
        """The names of the global ones."""
        return frozenset(name for name, store in self._stores.items() if store.is_global)

    def known(self, name: str) -> KnownStore | None:
        """The store of that name; None if there is none."""
        return self._stores.get(name)

    def find(self, name: str) -> KnownStore:
        """The store of that name.

        Raises:
            UnknownStateStoreError: there is none.
        """
        found = self._stores.get(name)
        if found is None:
            raise UnknownStateStoreError(
                f"There is no state store {name} in the topology; it has "
                f"{', '.join(self.names) or 'none'}.{did_you_mean(name, self.names)}"
            )
        return found
