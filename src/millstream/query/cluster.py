"""How many partitions stores have: as many as there are tasks of their sub-topologies."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.query.stores import KnownStore
from millstream.record import TopicPartition

logger = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 3_000
#: How long is waited for a first answer, and for a newer one, in seconds.
_FIRST_S: Final = 3.0
_NEWER_S: Final = 0.25
#: How long nobody asks again if topics were not there, or if no broker has answered, in seconds.
_MISSING_PAUSE_S: Final = 0.5
_FAILED_PAUSE_S: Final = 3.0


@dataclass(frozen=True)
class _Told:
    """What the cluster has told of a store: of all its topics.

    Args:
        counts: of partitions by topic.
        generation: how often somebody had asked to look anew when it was asked.
    """

    counts: Mapping[str, int]
    generation: int


@dataclass(frozen=True)
class _Asking:
    """A question that is under way."""

    generation: int
    began_s: float
    is_done: threading.Event = field(default_factory=threading.Event)


class Cluster:
    """What queries want to know of the cluster. A client is opened when it is asked first.

    What was told once is at hand; after a rebalance it is asked again, beside, and what was told
    before will do until then, or for as long as no broker answers. What is not known of all topics
    of a store is not known.

    Usable from several threads.

    Args:
        config: settings.
        open_admin: opens a client with such settings.
    """

    def __init__(
        self,
        config: StreamsConfig,
        open_admin: Callable[[Mapping[str, Any]], ClusterAdmin] = ClusterAdmin,
    ) -> None:
        self._config = config
        self._open_admin = open_admin
        self._opening = threading.Lock()
        self._admin: ClusterAdmin | None = None
        # Guards what follows, and is never held while somebody waits.
        self._lock = threading.Lock()
        self._generation = 0
        self._told: dict[str, _Told] = {}
        self._asking: dict[str, _Asking] = {}
        self._not_before_s: dict[str, float] = {}

    def partitions_of(self, store: KnownStore) -> int | None:
        """How many partitions a store has; None if the cluster does not tell."""
        return max(self.partitions_by_topic(store).values(), default=None)

    def partitions_by_topic(self, store: KnownStore) -> Mapping[str, int]:
        """How many partitions each topic has whose records reach a store; nothing if the cluster
        does not tell that of all of them."""
        if store.is_global:
            return {}
        with self._lock:
            told = self._told.get(store.name)
            if told is not None and told.generation == self._generation:
                return told.counts
            asking = self._ask_beside(store)
        if asking is not None:
            limit_s = asking.began_s + (_FIRST_S if told is None else _NEWER_S)
            asking.is_done.wait(max(0.0, limit_s - time.monotonic()))
        with self._lock:
            told = self._told.get(store.name)
        return {} if told is None else told.counts

    def ends(self, places: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions end.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        return self._client().end_offsets(places, _TIMEOUT_MS)

    def look_anew(self) -> None:
        """There was a rebalance: topics may have grown, or been made."""
        with self._lock:
            self._generation += 1
            self._asking.clear()
            self._not_before_s.clear()

    def close(self) -> None:
        """Close the client."""
        with self._opening:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _ask_beside(self, store: KnownStore) -> _Asking | None:
        """The question that is under way; None shortly after one without an answer."""
        asking = self._asking.get(store.name)
        now_s = time.monotonic()
        if asking is None and now_s >= self._not_before_s.get(store.name, now_s):
            asking = self._asking[store.name] = _Asking(self._generation, now_s)
            threading.Thread(
                target=self._ask, args=(store, asking), name="millstream-counts", daemon=True
            ).start()
        return asking

    def _ask(self, store: KnownStore, asking: _Asking) -> None:
        counts: Mapping[str, int] | None = None
        try:
            counts = self._counts_of(store)
        except Exception as error:
            # Whatever it is, queries say that the count is not known, and ask again.
            level = logging.DEBUG if isinstance(error, StreamsError) else logging.WARNING
            logger.log(level, "the cluster does not tell the counts of partitions: %s", error)
        pause_s = _FAILED_PAUSE_S if counts is None else _MISSING_PAUSE_S
        with self._lock:
            if counts and store.upstream.topics <= counts.keys():
                before = self._told.get(store.name)
                if before is None or before.generation <= asking.generation:
                    self._told[store.name] = _Told(counts, asking.generation)
            elif asking.generation == self._generation:
                self._not_before_s[store.name] = time.monotonic() + pause_s
            if self._asking.get(store.name) is asking:
                del self._asking[store.name]
        asking.is_done.set()

    def _counts_of(self, store: KnownStore) -> Mapping[str, int]:
        client = self._client()
        topics = set(store.upstream.topics)
        for pattern in store.upstream.patterns:
            topics.update(filter(store.reads, client.topics_matching(pattern, _TIMEOUT_MS)))
        return client.partition_counts(topics, _TIMEOUT_MS)

    def _client(self) -> ClusterAdmin:
        with self._opening:
            if self._admin is None:
                name = f"{self._config.application_id}-queries"
                settings = librdkafka_settings(self._config, "admin", name)
                if not logger.isEnabledFor(logging.DEBUG):
                    settings["log_level"] = 0
                self._admin = self._open_admin(settings)
            return self._admin
