"""Queries of an application's stores across all partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, Final

from msgspec.structs import replace

from millstream.assignment.wire_format import HostInfo
from millstream.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsError,
)
from millstream.kafka.partitioner import partition_for
from millstream.query.fan_out import FanOutResult, PartitionAnswer, QueryFanOut
from millstream.query.key_routing import StoreRouting, check_is_live, check_takes_requests
from millstream.query.local_threads import QuerySource
from millstream.query.page_iterator import PagedPairs, StoreIterator
from millstream.query.remote_instances import RemoteInstances
from millstream.query.store_catalog import CatalogStore, StoreCatalog
from millstream.query.views import QueryableStoreType, S
from millstream.runtime.queries.query_messages import ANSWER_TIMEOUT_MS, QueryStore, TaskQueryResult
from millstream.runtime.states.thread_states import ClientState
from millstream.state.queries.codec import Pairs, QueryPlan, plan_query
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.state.queries.requests.position import Position
from millstream.state.queries.requests.queries import query_name
from millstream.state.queries.requests.query_results import (
    FailureReason,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)
from millstream.state.queries.store_reads import describe_execution

_SINGLE_KEY_READS: Final = frozenset({ReadKind.WINDOWS, ReadKind.SESSIONS})


class StateQueries:
    """Queries the local threads and remote instances, and combines their results."""

    def __init__(
        self,
        stores: StoreCatalog,
        own: QuerySource,
        routing: StoreRouting,
        instances: RemoteInstances,
        state: Callable[[], ClientState],
        within_ms: int = ANSWER_TIMEOUT_MS,
    ) -> None:
        self._stores = stores
        self._own = own
        self._fan_out = QueryFanOut(own, routing, instances, within_ms)
        self._counts = routing.partitions_of
        self._state = state

    # --- requests --------------------------------------------------------------------------------

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        store = self._stores.find(request.store)
        check_takes_requests(self._state())
        if store.is_global:
            return StateQueryResult({}, global_result=_unsupported_global_query(store))
        codec = store.codec
        planned = None if codec is None else plan_query(request.query, codec)
        bound = Position() if request.active_only else request.position_bound.position
        store_query = QueryStore(
            store.name,
            None if planned is None else planned.read,
            query_name(request.query),
            request.partitions,
            request.active_only,
            bound.as_dict(),
        )
        expected = self._expected(store, request.partitions)
        gathered = self._fan_out.gather(store, store_query, expected)
        results = {
            partition: _result(answer, planned, request)
            for partition, answer in sorted(gathered.answers.items())
        }
        for partition in expected - results.keys():
            error = gathered.failed.get(partition)
            results[partition] = self._not_present(store, partition, error)
        return StateQueryResult(dict(sorted(results.items())))

    def _expected(self, store: CatalogStore, requested: frozenset[int] | None) -> frozenset[int]:
        if requested is not None:
            return requested
        count = self._counts(store)
        if count is None:
            raise _not_available(
                store,
                "its number of partitions is unknown because no broker responded or its topics "
                "do not exist yet",
            )
        return frozenset(range(count))

    def _not_present(
        self, store: CatalogStore, partition: int, error: StreamsError | None
    ) -> QueryResult:
        count = self._counts(store)
        reason = FailureReason.NOT_PRESENT
        if count is not None and partition >= count:
            reason = FailureReason.DOES_NOT_EXIST
            message = f"Store {store.name} has {count} partitions, but no partition {partition}."
        elif error is not None:
            message = (
                f"No instance responded for partition {partition} of store {store.name}: "
                f"{error} Try again in a moment."
            )
        else:
            message = (
                f"Partition {partition} of store {store.name} was not found: it is migrating, or "
                "it is on an instance that cannot be queried. Try again in a moment. To query "
                "other instances, set application_server and enable the server on each of them."
            )
        return QueryResult(failure_reason=reason, failure_message=message)

    # --- views -----------------------------------------------------------------------------------

    def store(
        self,
        name: str,
        kind: QueryableStoreType[S],
        partition: int | None,
        *,
        stale: bool,
        begin: bytes | None = None,
    ) -> S:
        """Return a view; see `KafkaStreams.store`.

        `begin` is the stored key of the window or session at which iterators start; see
        `ReadRequest.begin`.
        """
        check_is_live(self._state())
        store = self._stores.find(name)
        codec = store.codec
        if codec is None or not kind.accepts(codec):
            shape = "a custom store" if codec is None else f"a {codec.shape} store"
            raise InvalidStateStoreError(
                f"Store {name} cannot be queried as a {kind.name}: it is {shape}"
                f"{' with' if codec is not None and codec.timestamped else ' without'} timestamps. "
                "Use a matching store type, or query()."
            )
        only = None if store.is_global else partition
        reader = _AllPartitionsReader(self, store, only, stale=stale, begin=begin)
        reader.check()
        return kind.view(codec, reader, timestamped=kind.timestamped)

    def read(
        self,
        store: CatalogStore,
        read: ReadRequest,
        partitions: frozenset[int] | None,
        *,
        stale: bool,
    ) -> list[PartitionAnswer]:
        """Read the given partitions (None for all) of a store for a view.

        Raises an `InvalidStateStoreError` if a partition cannot be read.
        """
        check_is_live(self._state())
        store_query = _view_request(store, read, partitions, stale=stale)
        if store.is_global:
            answers = self._read_global(store, store_query)
            if not answers:
                raise _not_available(store, "no stream thread has opened it yet")
        else:
            expected = self._expected(store, partitions)
            found = self._fan_out.gather(store, store_query, expected)
            self._check_complete(store, found, expected, partitions)
            answers = [found.answers[partition] for partition in sorted(found.answers)]
        for _, answer in answers:
            if answer.reason is not None:
                PagedPairs(answers).close()
                raise _answer_error(store, answer)
        return answers

    def read_key(
        self,
        store: CatalogStore,
        read: ReadRequest,
        partitions: frozenset[int] | None,
        *,
        stale: bool,
    ) -> list[PartitionAnswer]:
        """Read a key from its partition, or else from all partitions.

        All partitions are read if the key's partition does not have the key. As in Kafka Streams,
        the first partition that contains the key is used.
        """
        likely = self._partition_of_key(store, read, partitions)
        if likely is not None:
            check_is_live(self._state())
            only = frozenset({likely})
            store_query = _view_request(store, read, only, stale=stale)
            gathered = self._fan_out.gather(store, store_query, only)
            # If this partition is missing, the result of all the others is incomplete.
            self._check_complete(store, gathered, only, None)
            found = list(gathered.answers.values())
            if found[0][1].page:
                return found
        return self.read(store, read, partitions, stale=stale)

    def _partition_of_key(
        self, store: CatalogStore, read: ReadRequest, partitions: frozenset[int] | None
    ) -> int | None:
        """Return the partition of a key according to Kafka's default partitioner."""
        count = None if store.is_global or partitions is not None else self._counts(store)
        return None if count is None or read.key is None else partition_for(read.key, count)

    def _read_global(self, store: CatalogStore, store_query: QueryStore) -> list[PartitionAnswer]:
        try:
            return [(self._own, each) for each in self._own.query(store_query, None)]
        except InvalidStateStoreError:
            raise
        except StreamsError as error:
            raise _not_available(store, str(error)) from error

    def _check_complete(
        self,
        store: CatalogStore,
        found: FanOutResult,
        expected: frozenset[int],
        requested: frozenset[int] | None,
    ) -> None:
        missing = sorted(expected - found.answers.keys())
        if expected and not missing:
            return
        found.close()
        for partition in missing:
            error = found.failed.get(partition)
            if error is not None:
                raise _not_available(
                    store, f"its partition {partition} did not respond: {error}"
                ) from error
        count = self._counts(store)
        if requested is not None and count is not None and any(each >= count for each in missing):
            raise InvalidStateStorePartitionError(
                f"Store {store.name} has {count} partitions, but no partition {missing}."
            )
        which = f"partitions {missing}" if missing else "its partitions"
        if self._state() is ClientState.REBALANCING:
            raise _not_available(store, f"{which} are not assigned yet")
        raise StateStoreMigratedError(
            f"Store {store.name} cannot be read: {which} were not found. They may have migrated to "
            "an instance that cannot be queried. Try again in a moment. To query other instances, "
            "set application_server and enable the server on each of them."
        )

    def retain(self, hosts: Set[HostInfo]) -> None:
        """Shut down the thread pools of all remote instances that are not on `hosts`."""
        self._fan_out.retain(hosts)

    def close(self) -> None:
        self._fan_out.retain(frozenset())


class _AllPartitionsReader:
    """Reads one or all partitions of a store for a view; implements `ViewReader`."""

    def __init__(
        self,
        queries: StateQueries,
        store: CatalogStore,
        partition: int | None,
        *,
        stale: bool,
        begin: bytes | None,
    ) -> None:
        self._queries = queries
        self._store = store
        self._partitions = None if partition is None else frozenset({partition})
        self._stale = stale
        self._begin = begin

    def check(self) -> None:
        """Raise an error if the store cannot be read."""
        self._read(ReadRequest(ReadKind.NOTHING))

    def first(self, read: ReadRequest, finish: Callable[[Pairs], Any]) -> Any:
        for _, answer in self._read_key(read):
            value = finish(answer.page)
            if value is not None:
                return value
        return None

    def iterate(self, read: ReadRequest, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        if self._begin is not None:
            read = replace(read, begin=self._begin)
        answers = self._read_key(read) if read.kind in _SINGLE_KEY_READS else self._read(read)
        return PagedPairs(answers).iterate(finish)

    def _read_key(self, read: ReadRequest) -> Sequence[PartitionAnswer]:
        return self._queries.read_key(self._store, read, self._partitions, stale=self._stale)

    def _read(self, read: ReadRequest) -> Sequence[PartitionAnswer]:
        return self._queries.read(self._store, read, self._partitions, stale=self._stale)


def _view_request(
    store: CatalogStore, read: ReadRequest, partitions: frozenset[int] | None, *, stale: bool
) -> QueryStore:
    return QueryStore(
        store.name,
        read,
        read.kind.value,
        partitions,
        active_only=not stale,
        with_position=False,
    )


def _result(
    source_answer: PartitionAnswer, planned: QueryPlan | None, request: StateQueryRequest
) -> QueryResult:
    answer = source_answer[1]
    position = Position(answer.position)
    info = describe_execution(request.store, answer.took_ns) if request.with_execution_info else ()
    if answer.reason is not None or planned is None:
        return QueryResult(
            failure_reason=answer.reason or FailureReason.UNKNOWN_QUERY_TYPE,
            failure_message=answer.message,
            position=position,
            execution_info=info,
        )
    if planned.is_iterated:
        value = PagedPairs([source_answer]).iterate(planned.finish)
    else:
        value = planned.finish(answer.page)
    return QueryResult(value, position=position, execution_info=info)


def _unsupported_global_query(store: CatalogStore) -> QueryResult:
    return QueryResult(
        failure_reason=FailureReason.UNKNOWN_QUERY_TYPE,
        failure_message=(
            f"{store.name} is a global store, which query() does not support. Use store()."
        ),
    )


def _answer_error(store: CatalogStore, answer: TaskQueryResult) -> InvalidStateStoreError:
    if answer.reason is FailureReason.NOT_ACTIVE:
        return _not_available(store, f"its partition {answer.partition} is not active")
    kind = StateStoreNotAvailableError if answer.retriable else InvalidStateStoreError
    return kind(
        f"Partition {answer.partition} of store {store.name} did not respond: {answer.message}"
    )


def _not_available(store: CatalogStore, why: str) -> StateStoreNotAvailableError:
    reason = why.removesuffix(".")
    return StateStoreNotAvailableError(
        f"Store {store.name} cannot be read at the moment: {reason}. Try again in a moment."
    )
