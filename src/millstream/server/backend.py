"""The interface through which the server accesses the application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.query.streams_metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.views import QueryableStoreType, S
from millstream.state.queries.codec import StoreCodec
from millstream.state.queries.requests.query_results import StateQueryRequest, StateQueryResult


@dataclass(frozen=True)
class Health:
    """The liveness and readiness of an instance.

    Args:
        live: whether the instance works; if not, it should be restarted.
        ready: whether all of its tasks are being processed.
        why: the reason if the instance is not live or not ready, otherwise empty. Only sent to
            authorized clients.
    """

    live: bool
    ready: bool
    state: str
    why: str = ""


class ServerBackend(Protocol):
    """An application instance, as used by the server.

    The methods return documents that can be encoded as JSON. They are called concurrently on the
    server's threads. A `StreamsError` that they raise is returned to the client.
    """

    def health(self) -> Health:
        """Return the liveness and readiness. Must not block."""

    def console_state(self) -> Mapping[str, Any]: ...

    def threads(self) -> Sequence[Mapping[str, Any]]: ...

    def topology(self) -> Mapping[str, Any]: ...

    def properties(self) -> Mapping[str, Any] | None:
        """Return the properties of the subscription; None if this is not a subscription."""

    def change_properties(self, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Change properties and return all of them; None if this is not a subscription.

        Raises:
            ConfigError: a property is unknown or invalid.
        """

    def stores(self) -> Sequence[Mapping[str, Any]]: ...

    def codec_of(self, store: str) -> StoreCodec | None:
        """Return the codec of a store; None if the store does not support queries.

        Raises:
            UnknownStateStoreError: there is no such store.
        """

    def is_global(self, store: str) -> bool: ...

    def partitions_of(self, store: str) -> Sequence[int] | None:
        """Return the partitions of a store; None if the store is not partitioned.

        Raises:
            StateStoreNotAvailableError: the number of partitions is unknown.
        """

    def locate_key(self, store: str, key: Any) -> KeyQueryMetadata | None:
        """Locate a key with Kafka's default partitioner; None if there is no such store."""

    def instances(self) -> Sequence[StreamsMetadata]: ...

    def lags(self) -> Mapping[str, Mapping[int, LagInfo]]: ...

    def answer_peer(self, document: bytes) -> bytes:
        """Respond to a store query of another instance.

        Raises:
            ValueError: the document is not a request of another instance.
        """

    def metrics_text(self) -> str:
        """Return the metrics in Prometheus' text format."""

    def query(self, request: StateQueryRequest) -> StateQueryResult: ...

    def store(
        self,
        name: str,
        kind: QueryableStoreType[S],
        partition: int | None,
        *,
        stale: bool,
        begin: bytes | None = None,
    ) -> S:
        """Return a view as `KafkaStreams.store` does.

        Iterators over windows or sessions start at the serialized key `begin`.
        """


def known_location(backend: ServerBackend, store: str, key: Any) -> KeyQueryMetadata | None:
    """Return the location of a key; None if it is unknown or the store is global."""
    place = backend.locate_key(store, key)
    return None if place is None or place.partition < 0 else place
