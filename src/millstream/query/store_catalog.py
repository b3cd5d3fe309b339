"""The stores of a topology, for queries."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.config.fields import did_you_mean
from millstream.config.streams_config import StreamsConfig
from millstream.errors import UnknownStateStoreError
from millstream.runtime.queries.store_positions import NO_UPSTREAM, Upstream, upstream_of_stores
from millstream.state.queries.codec import StoreCodec, codec_of
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology


@dataclass(frozen=True)
class CatalogStore:
    """Describes a store for queries.

    A store without a codec cannot be queried. A store without a sub-topology is global.
    """

    name: str
    codec: StoreCodec | None
    part: SubTopology | None
    upstream: Upstream = NO_UPSTREAM

    def reads(self, topic: str) -> bool:
        return self.upstream.reads(topic)

    @property
    def is_global(self) -> bool:
        """Whether this is a global store, of which each thread has all partitions."""
        return self.part is None


class StoreCatalog:
    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        application_id = config.application_id
        self._stores: dict[str, CatalogStore] = {}
        parts = topology._subtopologies()
        upstream = upstream_of_stores(parts, application_id)
        for part in parts:
            for name, builder in part.stores.items():
                topic = f"{application_id}-{name}-changelog"
                if name in part.changelogs:
                    topic = part.decorate(part.changelogs[name], application_id)
                codec = codec_of(builder.resolved(config), topic)
                self._stores[name] = CatalogStore(name, codec, part, upstream[part.id][name])
        for nodes in topology.global_stores.values():
            codec = codec_of(nodes.store_builder.resolved(config), nodes.topic)
            self._stores[nodes.store] = CatalogStore(nodes.store, codec, None)

    @property
    def names(self) -> list[str]:
        return sorted(self._stores)

    @property
    def global_names(self) -> frozenset[str]:
        return frozenset(name for name, store in self._stores.items() if store.is_global)

    def get(self, name: str) -> CatalogStore | None:
        return self._stores.get(name)

    def find(self, name: str) -> CatalogStore:
        """Return the store.

        Raises:
            UnknownStateStoreError: the store does not exist.
        """
        found = self._stores.get(name)
        if found is None:
            raise UnknownStateStoreError(
                f"There is no state store {name} in the topology. The stores of the topology are: "
                f"{', '.join(self.names) or 'none'}.{did_you_mean(name, self.names)}"
            )
        return found
