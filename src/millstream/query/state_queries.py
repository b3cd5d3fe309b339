"""Queries of an application's stores, gathered over all their partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, Final

from msgspec.structs import replace

from millstream.assignment.wire.assignment_info import HostInfo
from millstream.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsError,
)
from millstream.kafka.partitioner import partition_for
from millstream.query.asking import Answering
from millstream.query.gathering import Gathered, Gathering, Said
from millstream.query.liveness import check_is_live, check_takes_requests
from millstream.query.pages import PagedPairs, StoreIterator
from millstream.query.peers import Instances
from millstream.query.requests.answers import (
    FailureReason,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)
from millstream.query.requests.position import Position
from millstream.query.requests.queries import described
from millstream.query.routing import Routing
from millstream.query.store_types import QueryableStoreType, S
from millstream.query.stores import KnownStore, KnownStores
from millstream.runtime.queries.questions import ANSWER_MS, AskStore, TaskAnswer
from millstream.runtime.states import ClientState
from millstream.state.queries.codec import Pairs, Plan, plan
from millstream.state.queries.reads import Read, ReadKind
from millstream.state.queries.run import executed

_OF_A_KEY: Final = frozenset({ReadKind.WINDOWS, ReadKind.SESSIONS})


class StateQueries:
    """Asks whoever has the partitions of a store, and puts the answers together.

    Args:
        stores: those of the topology.
        own: the threads of this instance.
        routing: tells which other instances have which partitions, and how many there are.
        instances: those instances.
        state: of the application.
        within_ms: how long an answer may take altogether.
    """

    def __init__(
        self,
        stores: KnownStores,
        own: Answering,
        routing: Routing,
        instances: Instances,
        state: Callable[[], ClientState],
        within_ms: int = ANSWER_MS,
    ) -> None:
        self._stores = stores
        self._own = own
        self._gathering = Gathering(own, routing, instances, within_ms)
        self._counts = routing.partitions_of
        self._state = state

    # --- requests --------------------------------------------------------------------------------

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """What all partitions say; see `KafkaStreams.query`."""
        store = self._stores.find(request.store)
        check_takes_requests(self._state())
        if store.is_global:
            return StateQueryResult({}, global_result=_unknown_of_global(store))
        codec = store.codec
        planned = None if codec is None else plan(request.query, codec)
        bound = Position() if request.active_only else request.position_bound.position
        question = AskStore(
            store.name,
            None if planned is None else planned.read,
            described(request.query),
            request.partitions,
            request.active_only,
            bound.as_dict(),
        )
        expected = self._expected(store, request.partitions)
        gathered = self._gathering.gather(store, question, expected)
        results = {
            partition: _result(answer, planned, request)
            for partition, answer in sorted(gathered.said.items())
        }
        for partition in expected - results.keys():
            error = gathered.failed.get(partition)
            results[partition] = self._not_present(store, partition, error)
        return StateQueryResult(dict(sorted(results.items())))

    def _expected(self, store: KnownStore, asked: frozenset[int] | None) -> frozenset[int]:
        """The partitions of which something must be said.

        Raises:
            StateStoreNotAvailableError: it is not known how many there are.
        """
        if asked is not None:
            return asked
        count = self._counts(store)
        if count is None:
            raise _not_available(
                store,
                "no broker has told how many partitions it has, or topics that it is made of are "
                "not there yet",
            )
        return frozenset(range(count))

    def _not_present(
        self, store: KnownStore, partition: int, error: StreamsError | None
    ) -> QueryResult:
        count = self._counts(store)
        if count is not None and partition >= count:
            return QueryResult(
                failure_reason=FailureReason.DOES_NOT_EXIST,
                failure_message=f"Store {store.name} has {count} partitions, no {partition}.",
            )
        if error is not None:
            return QueryResult(
                failure_reason=FailureReason.NOT_PRESENT,
                failure_message=(
                    f"Who should have partition {partition} of store {store.name} did not answer, "
                    f"nor has anybody else: {error} Ask again in a moment."
                ),
            )
        return QueryResult(
            failure_reason=FailureReason.NOT_PRESENT,
            failure_message=(
                f"Partition {partition} of store {store.name} was not found: it is moving, or on "
                "an instance that cannot be asked. Ask again in a moment; instances are asked if "
                "each has application_server set and serves."
            ),
        )

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
        """A view; see `KafkaStreams.store`.

        Args:
            name: of the store.
            kind: of the view.
            partition: the only one to be asked; None for all.
            stale: whether copies may answer.
            begin: a stored key of a window or session, at which iterators begin; see `Read.begin`.
        """
        check_is_live(self._state())
        store = self._stores.find(name)
        codec = store.codec
        if codec is None or not kind.accepts(codec):
            shape = "one of its own kind" if codec is None else f"a {codec.shape} store"
            raise InvalidStateStoreError(
                f"Cannot get store {name} as a {kind.name}: it is {shape}"
                f"{' with' if codec is not None and codec.timestamped else ' without'} timestamps. "
                "Ask for it with the type that it has, or with query()."
            )
        only = None if store.is_global else partition
        reading = _Composite(self, store, only, stale=stale, begin=begin)
        reading.check()
        return kind.view(codec, reading, timestamped=kind.timestamped)

    def read(
        self, store: KnownStore, read: Read, partitions: frozenset[int] | None, *, stale: bool
    ) -> list[Said]:
        """What all partitions have; for views.

        Raises:
            InvalidStateStoreError: not all of them answer.
        """
        check_is_live(self._state())
        question = _of_view(store, read, partitions, stale=stale)
        if store.is_global:
            said = self._read_global(store, question)
            if not said:
                raise _not_available(store, "no stream thread has it open yet")
        else:
            expected = self._expected(store, partitions)
            found = self._gathering.gather(store, question, expected)
            self._check_complete(store, found, expected, partitions)
            said = [found.said[partition] for partition in sorted(found.said)]
        for _, answer in said:
            if answer.reason is not None:
                PagedPairs(said).close()
                raise _error_of(store, answer)
        return said

    def read_key(
        self, store: KnownStore, read: Read, partitions: frozenset[int] | None, *, stale: bool
    ) -> list[Said]:
        """What there is of a key: of the partition where it belongs, if it is there, else of all.

        Follows Kafka Streams, where the first store that has a key answers.
        """
        likely = self._likely(store, read, partitions)
        if likely is not None:
            check_is_live(self._state())
            only = frozenset({likely})
            question = _of_view(store, read, only, stale=stale)
            gathered = self._gathering.gather(store, question, only)
            # While it is not there, what all others have is not all.
            self._check_complete(store, gathered, only, None)
            found = list(gathered.said.values())
            if found[0][1].page:
                return found
        return self.read(store, read, partitions, stale=stale)

    def _likely(
        self, store: KnownStore, read: Read, partitions: frozenset[int] | None
    ) -> int | None:
        """Where a key belongs, by the partitioner of producers."""
        count = None if store.is_global or partitions is not None else self._counts(store)
        return None if count is None or read.key is None else partition_for(read.key, count)

    def _read_global(self, store: KnownStore, question: AskStore) -> list[Said]:
        try:
            return [(self._own, each) for each in self._own.ask(question, None)]
        except InvalidStateStoreError:
            raise
        except StreamsError as error:
            raise _not_available(store, str(error)) from error

    def _check_complete(
        self,
        store: KnownStore,
        found: Gathered,
        expected: frozenset[int],
        asked: frozenset[int] | None,
    ) -> None:
        missing = sorted(expected - found.said.keys())
        if expected and not missing:
            return
        found.close()
        for partition in missing:
            error = found.failed.get(partition)
            if error is not None:
                raise _not_available(
                    store, f"its partition {partition} did not answer: {error}"
                ) from error
        count = self._counts(store)
        if asked is not None and count is not None and any(each >= count for each in missing):
            raise InvalidStateStorePartitionError(
                f"Store {store.name} has {count} partitions, no {missing}."
            )
        if self._state() is ClientState.REBALANCING:
            raise _not_available(store, f"partitions {missing or 'of it'} are not assigned yet")
        raise StateStoreMigratedError(
            f"Partitions {missing or 'of it'} of store {store.name} were not found: they may have "
            "moved to an instance that cannot be asked. Ask again in a moment; instances are asked "
            "if each has application_server set and serves."
        )

    def keep(self, hosts: Set[HostInfo]) -> None:
        """Let go of the threads that have waited for all other instances but these."""
        self._gathering.keep(hosts)

    def close(self) -> None:
        """Let go of the threads that have waited for other instances."""
        self._gathering.keep(frozenset())


class _Composite:
    """Reads all partitions of a store for a view."""

    def __init__(
        self,
        queries: StateQueries,
        store: KnownStore,
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
        """See whether the store can be read now.

        Raises:
            InvalidStateStoreError: it cannot.
        """
        self._read(Read(ReadKind.NOTHING))

    def first(self, read: Read, finish: Callable[[Pairs], Any]) -> Any:
        """The one value; see `Reading`."""
        for _, answer in self._read_key(read):
            value = finish(answer.page)
            if value is not None:
                return value
        return None

    def every(self, read: Read, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        """What there is; see `Reading`."""
        if self._begin is not None:
            read = replace(read, begin=self._begin)
        said = self._read_key(read) if read.kind in _OF_A_KEY else self._read(read)
        return PagedPairs(said).iterate(finish)

    def _read_key(self, read: Read) -> Sequence[Said]:
        return self._queries.read_key(self._store, read, self._partitions, stale=self._stale)

    def _read(self, read: Read) -> Sequence[Said]:
        return self._queries.read(self._store, read, self._partitions, stale=self._stale)


def _of_view(
    store: KnownStore, read: Read, partitions: frozenset[int] | None, *, stale: bool
) -> AskStore:
    return AskStore(
        store.name,
        read,
        read.kind.value,
        partitions,
        active_only=not stale,
        with_position=False,
    )


def _result(said: Said, planned: Plan | None, request: StateQueryRequest) -> QueryResult:
    answer = said[1]
    position = Position(answer.position)
    info = executed(request.store, answer.took_ns) if request.with_execution_info else ()
    if answer.reason is not None or planned is None:
        return QueryResult(
            failure_reason=answer.reason or FailureReason.UNKNOWN_QUERY_TYPE,
            failure_message=answer.message,
            position=position,
            execution_info=info,
        )
    if planned.is_iterated:
        value = PagedPairs([said]).iterate(planned.finish)
    else:
        value = planned.finish(answer.page)
    return QueryResult(value, position=position, execution_info=info)


def _unknown_of_global(store: KnownStore) -> QueryResult:
    return QueryResult(
        failure_reason=FailureReason.UNKNOWN_QUERY_TYPE,
        failure_message=(
            f"{store.name} is a global store, which takes no such queries. Ask it with store()."
        ),
    )


def _error_of(store: KnownStore, answer: TaskAnswer) -> InvalidStateStoreError:
    if answer.reason is FailureReason.NOT_ACTIVE:
        return _not_available(store, f"its partition {answer.partition} is not active here")
    kind = StateStoreNotAvailableError if answer.retriable else InvalidStateStoreError
    return kind(
        f"Partition {answer.partition} of store {store.name} did not answer: {answer.message}"
    )


def _not_available(store: KnownStore, why: str) -> StateStoreNotAvailableError:
    reason = why.removesuffix(".")
    return StateStoreNotAvailableError(
        f"Store {store.name} cannot be read just now: {reason}. Ask again in a moment."
    )
