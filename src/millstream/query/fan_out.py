"""Sends a query to all threads and instances that have partitions of a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from millstream.assignment.wire_format import HostInfo
from millstream.errors import StateStoreNotAvailableError, StreamsError
from millstream.query.key_routing import StoreRouting
from millstream.query.local_threads import QuerySource
from millstream.query.page_iterator import PagedPairs
from millstream.query.remote_instances import RemoteInstance, RemoteInstances
from millstream.query.store_catalog import CatalogStore
from millstream.runtime.queries.query_messages import ANSWER_TIMEOUT_MS, QueryStore, TaskQueryResult

#: A source and its result for one partition.
PartitionAnswer = tuple[QuerySource, TaskQueryResult]

#: The maximum number of concurrent requests to one instance.
_MAX_CONCURRENT: Final = 16
#: The approximate maximum total size of the first pages of all partitions, and the minimum size of
#: each of these pages, in bytes.
_MAX_TOTAL_BYTES: Final = 8 << 20
_MIN_PAGE_BYTES: Final = 16 << 10
#: The ranks of task roles; a higher rank is preferred. Restoring tasks have no rank, because they
#: may have no data yet.
_ROLE_RANKS: Final = {"RUNNING": 2, "STANDBY": 1}


@dataclass
class FanOutResult:
    """The best result of each partition, or its error if there is no result."""

    answers: dict[int, PartitionAnswer] = field(default_factory=dict)
    failed: dict[int, StreamsError] = field(default_factory=dict)

    def close(self) -> None:
        PagedPairs(list(self.answers.values())).close()


@dataclass(frozen=True)
class _PendingRequest:
    source: RemoteInstance
    partitions: frozenset[int]
    answers: Future[Sequence[TaskQueryResult]]


class QueryFanOut:
    """Sends a query to the local threads, and concurrently to remote instances.

    The failure of a source is tolerated if another source, such as a standby, responds. The default
    timeout is 10 s in total.
    """

    def __init__(
        self,
        own: QuerySource,
        routing: StoreRouting,
        instances: RemoteInstances,
        within_ms: int = ANSWER_TIMEOUT_MS,
    ) -> None:
        self._own = own
        self._routing = routing
        self._instances = instances
        self._within_s = within_ms / 1_000
        # One pool per instance, so that an unresponsive instance does not delay other requests.
        self._pools: dict[HostInfo, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def gather(
        self, store: CatalogStore, request: QueryStore, wanted: frozenset[int]
    ) -> FanOutResult:
        """Return the best result of each partition.

        Queries further sources until each partition in `wanted` has a result.
        """
        until_s = time.monotonic() + self._within_s
        share = max(_MIN_PAGE_BYTES, _MAX_TOTAL_BYTES // max(1, len(wanted)))
        request = replace(request, page_bytes=min(request.page_bytes, share))
        found = FanOutResult()
        tried: set[tuple[HostInfo, int]] = set()
        try:
            # Partitions that are not local are requested from remote instances concurrently.
            remote = wanted - self._routing.local_partitions(store)
            waiting = self._query_others(store, request, remote, tried, standbys=False)
            self._query_own(store, request, wanted - remote, found)
            self._collect(found, waiting, until_s)
            while missing := wanted - _answered(found):
                copies = not request.active_only
                waiting = self._query_others(store, request, missing, tried, standbys=copies)
                if not waiting:
                    break
                self._collect(found, waiting, until_s)
        except BaseException:
            found.close()
            raise
        return found

    def retain(self, hosts: Set[HostInfo]) -> None:
        """Shut down the pools of all remote instances except `hosts`."""
        with self._lock:
            for host in self._pools.keys() - hosts:
                self._pools.pop(host).shutdown(wait=False)

    def _query_own(
        self, store: CatalogStore, request: QueryStore, local: frozenset[int], found: FanOutResult
    ) -> None:
        try:
            for answer in self._own.query(request, _subtopology_id(store)):
                _keep_better(found.answers, (self._own, answer))
        except StreamsError as error:
            found.failed.update(dict.fromkeys(local, error))

    def _query_others(
        self,
        store: CatalogStore,
        request: QueryStore,
        missing: frozenset[int],
        tried: set[tuple[HostInfo, int]],
        *,
        standbys: bool,
    ) -> list[_PendingRequest]:
        """Request each partition from the next instance that has it.

        Instances that have been tried are skipped.
        """
        waiting = []
        for host, owned in (
            self._routing.remote_partitions(store, standbys=standbys) if missing else ()
        ):
            chosen = frozenset(each for each in owned & missing if (host, each) not in tried)
            if chosen:
                missing -= chosen
                tried.update((host, each) for each in chosen)
                source = self._instances.get(host)
                only = replace(request, partitions=chosen)
                answers = self._submit(host, partial(source.query, only, _subtopology_id(store)))
                waiting.append(_PendingRequest(source, chosen, answers))
        return waiting

    def _collect(
        self, found: FanOutResult, waiting: Sequence[_PendingRequest], until_s: float
    ) -> None:
        wait([each.answers for each in waiting], max(0.0, until_s - time.monotonic()))
        for each in waiting:
            if not each.answers.done():
                if not each.answers.cancel():
                    each.answers.add_done_callback(partial(_close_late_answers, each.source))
                error: StreamsError = StateStoreNotAvailableError(
                    f"{each.source.host} did not respond within {self._within_s:.0f} s."
                )
                found.failed.update(dict.fromkeys(each.partitions, error))
                continue
            try:
                for answer in each.answers.result():
                    _keep_better(found.answers, (each.source, answer))
            except StreamsError as failure:
                found.failed.update(dict.fromkeys(each.partitions, failure))

    def _submit(
        self, host: HostInfo, call: Callable[[], Sequence[TaskQueryResult]]
    ) -> Future[Sequence[TaskQueryResult]]:
        with self._lock:
            pool = self._pools.get(host)
            if pool is None:
                pool = ThreadPoolExecutor(_MAX_CONCURRENT, f"millstream-others-{host}")
                self._pools[host] = pool
            return pool.submit(call)


def _subtopology_id(store: CatalogStore) -> int | None:
    return None if store.part is None else store.part.id


def _answered(found: FanOutResult) -> frozenset[int]:
    return frozenset(
        partition
        for partition, (_, answer) in found.answers.items()
        if answer.reason is None and answer.role in _ROLE_RANKS
    )


def _close_late_answers(source: RemoteInstance, answers: Future[Sequence[TaskQueryResult]]) -> None:
    """Close the cursors of results that arrived after the timeout."""
    if answers.exception() is None:
        PagedPairs([(source, answer) for answer in answers.result()]).close()


def _keep_better(found: dict[int, PartitionAnswer], answer: PartitionAnswer) -> None:
    """Keep the better result of a partition, and close the other one.

    A result without an error is better than one with an error; otherwise, the rank of the role
    determines the better result.
    """
    partition = answer[1].partition
    before = found.setdefault(partition, answer)
    if before is not answer:
        if _rank(answer[1]) > _rank(before[1]):
            found[partition], answer = answer, before
        PagedPairs([answer]).close()


def _rank(answer: TaskQueryResult) -> tuple[bool, int]:
    return answer.reason is None, _ROLE_RANKS.get(answer.role, 0)
