"""An application as its HTTP server sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, Final

from millstream.application.supervisor import ThreadSupervisor
from millstream.application.view.document import ConsoleDocument, Watched
from millstream.application.view.subscription import WatchedSubscription
from millstream.config import StreamsConfig
from millstream.errors import ConfigError, StateStoreNotAvailableError
from millstream.export.prometheus import prometheus_text
from millstream.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.requests.answers import StateQueryRequest, StateQueryResult
from millstream.query.store_types import QueryableStoreType, S
from millstream.runtime.states import ClientState
from millstream.server.served import Health
from millstream.state.queries.codec import StoreCodec
from millstream.subscriptions.properties.properties import Properties

_DEAD: Final = frozenset({ClientState.PENDING_ERROR, ClientState.ERROR, ClientState.NOT_RUNNING})


class ServedApplication:
    """Implements `server.served.Served`.

    Args:
        streams: the application.
        config: its settings.
        supervisor: its threads.
        subscription: gives the subscription that it is of, None if it is none.
    """

    def __init__(
        self,
        streams: Watched,
        config: StreamsConfig,
        supervisor: ThreadSupervisor,
        subscription: Callable[[], WatchedSubscription | None],
    ) -> None:
        self._streams = streams
        self._config = config
        self._supervisor = supervisor
        self._asked = supervisor.asked
        self._subscription = subscription
        self._drawing = threading.Lock()

    def health(self) -> Health:
        """Alive unless it has failed or a thread hangs; ready when all its threads are RUNNING
        and commit."""
        state = self._streams.state
        threads = self._streams.metadata_for_local_threads()
        hanging = [each.thread_name for each in threads if each.stall is not None]
        uncommitted = [each.thread_name for each in threads if each.uncommitted_ms is not None]
        why = ""
        if state in _DEAD:
            why = f"it is {state.name}: {self._streams.error or 'closed'}"
        elif hanging:
            why = f"{', '.join(hanging)} made no progress for max.poll.interval.ms"
        elif uncommitted:
            why = f"{', '.join(uncommitted)} processed records without a commit for too long"
        elif state is not ClientState.RUNNING:
            why = f"it is {state.name}"
        return Health(
            live=state not in _DEAD and not hanging,
            ready=state is ClientState.RUNNING and not hanging and not uncommitted,
            state=state.name,
            why=why,
        )

    def console_state(self) -> Mapping[str, Any]:
        """All that the console shows."""
        with self._drawing:
            return self._document.now()

    @cached_property
    def _document(self) -> ConsoleDocument:
        # Most applications are never looked at, and a large topology takes a moment.
        return ConsoleDocument(self._streams, self._config, self._supervisor, self._subscription)

    def threads(self) -> list[Mapping[str, Any]]:
        """The stream threads of this instance, and their tasks."""
        return [asdict(each) for each in self._streams.metadata_for_local_threads()]

    def topology(self) -> Mapping[str, Any]:
        """What is computed, as `describe()` has it."""
        description = self._supervisor.topology.describe()
        return {**description.to_dict(), "text": str(description)}

    def stores(self) -> Sequence[Mapping[str, Any]]:
        """The stores of the topology."""
        with self._drawing:
            return self._document.stores

    def codec_of(self, store: str) -> StoreCodec | None:
        """How a store is asked; None if it takes no queries."""
        return self._asked.stores.find(store).codec

    def is_global(self, store: str) -> bool:
        """Whether each thread has all of a store."""
        return self._asked.stores.find(store).is_global

    def partitions_of(self, store: str) -> Sequence[int] | None:
        """The partitions of a store; None if it has none."""
        known = self._asked.stores.find(store)
        if known.part is None:
            return None
        count = self._asked.partitions_of(store)
        if count is not None:
            return range(count)
        # With those that are known here alone, a part would be told as the whole.
        raise StateStoreNotAvailableError(
            f"Store {store} cannot be read just now: the cluster does not tell how many partitions "
            "it has. Ask again in a moment."
        )

    def place_of(self, store: str, key: Any) -> KeyQueryMetadata | None:
        """Where a key should be; None if there is no such store."""
        return self._asked.routing.of_key(store, key, None, None)

    def instances(self) -> Sequence[StreamsMetadata]:
        """What each instance of the application has."""
        return self._asked.routing.all_clients()

    def lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        """How far the stores here are behind their changelogs, by store and partition."""
        return self._asked.lags()

    def answer_peer(self, document: bytes) -> bytes:
        """What another instance is told that asks for what is in stores here."""
        return self._asked.answer(document)

    def metrics_text(self) -> str:
        """What is counted and measured, as Prometheus reads it."""
        return prometheus_text(self._streams.metrics())

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """See `KafkaStreams.query`."""
        return self._asked.queries.query(request)

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
        return self._asked.queries.store(name, kind, partition, stale=stale, begin=begin)

    def properties(self) -> Mapping[str, Any] | None:
        """Those of the subscription; None if it is none."""
        subscription = self._subscription()
        return None if subscription is None else _plain(subscription.properties)

    def change_properties(self, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Change some; all of them then, or None if it is no subscription."""
        subscription = self._subscription()
        if subscription is None:
            return None
        if "properties" in given:
            # The one argument beside them.
            raise ConfigError("There is no property 'properties'.")
        return _plain(subscription.update_properties(**given))


def _plain(properties: Properties) -> dict[str, Any]:
    return {each.name: getattr(properties, each.name) for each in Properties.table()}
