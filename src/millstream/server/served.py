"""What the server needs of the application that it serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.requests.answers import StateQueryRequest, StateQueryResult
from millstream.query.store_types import QueryableStoreType, S
from millstream.state.queries.codec import StoreCodec


@dataclass(frozen=True)
class Health:
    """Whether an instance is alive, and whether it is ready.

    Args:
        live: whether it does what it is there for; one that is not is to be started anew.
        ready: whether all its tasks are processed.
        state: of the instance, as `KafkaStreams.state`.
        why: what is in the way, for whoever showed the token; empty if nothing is.
    """

    live: bool
    ready: bool
    state: str
    why: str = ""


class Served(Protocol):
    """An application instance, as plain documents: whatever comes out can be written as JSON.

    Called on the server's threads, several at a time. `StreamsError`s are told to who asked.
    """

    def health(self) -> Health:
        """Whether it is alive and ready. Must not wait for anything."""

    def console_state(self) -> Mapping[str, Any]:
        """All that the console shows."""

    def threads(self) -> Sequence[Mapping[str, Any]]:
        """The stream threads of this instance, and their tasks."""

    def topology(self) -> Mapping[str, Any]:
        """What is computed."""

    def properties(self) -> Mapping[str, Any] | None:
        """Those of the subscription; None if it is none."""

    def change_properties(self, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Change some; all of them then, or None if it is no subscription.

        Raises:
            ConfigError: a property is unknown, or cannot be that.
        """

    def stores(self) -> Sequence[Mapping[str, Any]]:
        """The stores of the topology."""

    def codec_of(self, store: str) -> StoreCodec | None:
        """How a store is asked; None if it takes no queries.

        Raises:
            UnknownStateStoreError: there is none of that name.
        """

    def is_global(self, store: str) -> bool:
        """Whether each thread has all of a store."""

    def partitions_of(self, store: str) -> Sequence[int] | None:
        """The partitions of a store; None if it has none.

        Raises:
            StateStoreNotAvailableError: it is not known now how many there are.
        """

    def place_of(self, store: str, key: Any) -> KeyQueryMetadata | None:
        """Where a key should be, by Kafka's default partitioner; None if there is no such store."""

    def instances(self) -> Sequence[StreamsMetadata]:
        """What each instance of the application has."""

    def lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """How far the stores here are behind their changelogs, by store and partition."""

    def answer_peer(self, document: bytes) -> bytes:
        """What another instance is told that asks for what is in stores here.

        Raises:
            ValueError: it is no question of another instance.
        """

    def metrics_text(self) -> str:
        """What is counted and measured, as Prometheus reads it."""

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """See `KafkaStreams.query`."""

    def store(
        self,
        name: str,
        kind: QueryableStoreType[S],
        partition: int | None,
        *,
        stale: bool,
        begin: bytes | None = None,
    ) -> S:
        """See `KafkaStreams.store`; iterators over windows or sessions begin at a stored key."""


def known_place(served: Served, store: str, key: Any) -> KeyQueryMetadata | None:
    """Where a key should be; None while that is not known, and for global stores."""
    place = served.place_of(store, key)
    return None if place is None or place.partition < 0 else place
