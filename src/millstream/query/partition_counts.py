"""The partition counts of stores.

They equal the task counts of the stores' sub-topologies.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.errors import StreamsError
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.query.store_catalog import CatalogStore
from millstream.record import TopicPartition

logger = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 3_000
#: The timeouts of the first lookup and of a refresh, in seconds.
_FIRST_TIMEOUT_S: Final = 3.0
_REFRESH_TIMEOUT_S: Final = 0.25
#: The backoff if topics are missing, and if no broker responds, in seconds.
_MISSING_BACKOFF_S: Final = 0.5
_FAILED_BACKOFF_S: Final = 3.0


@dataclass(frozen=True)
class _KnownCounts:
    """Partition counts by topic.

    `generation` is the number of invalidations before the lookup.
    """

    counts: Mapping[str, int]
    generation: int


@dataclass(frozen=True)
class _PendingLookup:
    generation: int
    began_s: float
    is_done: threading.Event = field(default_factory=threading.Event)


class ClusterInfo:
    """Cluster metadata for queries. Thread-safe.

    The admin client is created on first use.

    Results are cached. After a rebalance, they are refreshed in the background; the cached results
    are used until the refresh has finished, or while no broker responds. The counts of a store are
    unknown unless the counts of all its topics are known.
    """

    def __init__(
        self,
        config: StreamsConfig,
        open_admin: Callable[[Mapping[str, Any]], ClusterAdmin] = ClusterAdmin,
    ) -> None:
        self._config = config
        self._open_admin = open_admin
        self._admin_lock = threading.Lock()
        self._admin: ClusterAdmin | None = None
        # Guards the fields below. Never held while waiting.
        self._lock = threading.Lock()
        self._generation = 0
        self._known: dict[str, _KnownCounts] = {}
        self._lookups: dict[str, _PendingLookup] = {}
        self._not_before_s: dict[str, float] = {}

    def partitions_of(self, store: CatalogStore) -> int | None:
        return max(self.partitions_by_topic(store).values(), default=None)

    def partitions_by_topic(self, store: CatalogStore) -> Mapping[str, int]:
        """Return the partition counts of a store's topics.

        The mapping is empty unless all counts are known.
        """
        if store.is_global:
            return {}
        with self._lock:
            known = self._known.get(store.name)
            if known is not None and known.generation == self._generation:
                return known.counts
            lookup = self._start_lookup(store)
        if lookup is not None:
            limit_s = lookup.began_s + (_FIRST_TIMEOUT_S if known is None else _REFRESH_TIMEOUT_S)
            lookup.is_done.wait(max(0.0, limit_s - time.monotonic()))
        with self._lock:
            known = self._known.get(store.name)
        return {} if known is None else known.counts

    def ends(self, topic_partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets of partitions, or raise a `BrokerUnavailableError`."""
        return self._client().end_offsets(topic_partitions, _TIMEOUT_MS)

    def invalidate(self) -> None:
        """Invalidate results after a rebalance.

        A rebalance may create or extend topics.
        """
        with self._lock:
            self._generation += 1
            self._lookups.clear()
            self._not_before_s.clear()

    def close(self) -> None:
        with self._admin_lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _start_lookup(self, store: CatalogStore) -> _PendingLookup | None:
        """Return the lookup in progress, or start one.

        Returns None during the backoff after a failure.
        """
        lookup = self._lookups.get(store.name)
        now_s = time.monotonic()
        if lookup is None and now_s >= self._not_before_s.get(store.name, now_s):
            lookup = self._lookups[store.name] = _PendingLookup(self._generation, now_s)
            threading.Thread(
                target=self._look_up, args=(store, lookup), name="millstream-counts", daemon=True
            ).start()
        return lookup

    def _look_up(self, store: CatalogStore, lookup: _PendingLookup) -> None:
        counts: Mapping[str, int] | None = None
        try:
            counts = self._counts_of(store)
        except Exception as error:
            # After any error, queries report the count as unknown, and look it up again.
            level = logging.DEBUG if isinstance(error, StreamsError) else logging.WARNING
            logger.log(level, "The partition counts could not be looked up: %s", error)
        pause_s = _FAILED_BACKOFF_S if counts is None else _MISSING_BACKOFF_S
        with self._lock:
            if counts and store.upstream.topics <= counts.keys():
                before = self._known.get(store.name)
                if before is None or before.generation <= lookup.generation:
                    self._known[store.name] = _KnownCounts(counts, lookup.generation)
            elif lookup.generation == self._generation:
                self._not_before_s[store.name] = time.monotonic() + pause_s
            if self._lookups.get(store.name) is lookup:
                del self._lookups[store.name]
        lookup.is_done.set()

    def _counts_of(self, store: CatalogStore) -> Mapping[str, int]:
        client = self._client()
        topics = set(store.upstream.topics)
        for pattern in store.upstream.patterns:
            topics.update(filter(store.reads, client.topics_matching(pattern, _TIMEOUT_MS)))
        return client.partition_counts(topics, _TIMEOUT_MS)

    def _client(self) -> ClusterAdmin:
        with self._admin_lock:
            if self._admin is None:
                name = f"{self._config.application_id}-queries"
                settings = librdkafka_settings(self._config, "admin", name)
                if not logger.isEnabledFor(logging.DEBUG):
                    settings["log_level"] = 0
                self._admin = self._open_admin(settings)
            return self._admin
