"""The requests and results of queries, for one partition and for several."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.errors import IllegalStateError, repr_of
from millstream.html_tables import html_table, mime_bundle
from millstream.state.queries.requests.position import Position, PositionBound
from millstream.state.queries.requests.queries import Query


class FailureReason(enum.Enum):
    """The reason why a query of a partition failed. Kafka Streams' `FailureReason`.

    Example:
        >>> QueryResult(failure_reason=FailureReason.NOT_PRESENT).is_success
        False
    """

    #: The store does not support this kind of query, or is a global store.
    UNKNOWN_QUERY_TYPE = "unknown query type"
    #: An active task was required, but the task is a standby task or is being restored.
    NOT_ACTIVE = "not active"
    #: The store has not reached the position bound.
    NOT_UP_TO_BOUND = "not up to bound"
    #: The partition is not on the queried instance.
    NOT_PRESENT = "not present"
    #: The partition does not exist.
    DOES_NOT_EXIST = "does not exist"
    #: The store raised an error.
    STORE_EXCEPTION = "store exception"


@dataclass(frozen=True)
class QueryResult:
    """The result or failure of a query for one partition.

    Kafka Streams' `QueryResult`.

    Args:
        value: the result, if `failure_reason` is None.
        failure_message: the message of the failure, with advice.
        position: the input position that the result reflects; empty if unknown.
        execution_info: the stores and execution times, if requested.

    Example:
        >>> QueryResult(3, position=Position({"clicks": {0: 41}})).result
        3
    """

    value: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str | None = None
    position: Position = field(default_factory=Position)
    execution_info: tuple[str, ...] = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return a table of the result, for notebooks."""
        rows = [("Result" if self.is_success else "Failure", self._outcome())]
        rows += [("Position", repr(self.position))] if self.position else []
        rows += [("Execution", line) for line in self.execution_info]
        return mime_bundle(repr(self), html_table("Query result", (), rows))

    def _outcome(self) -> str:
        if self.failure_reason is not None:
            return f"{self.failure_reason.name}: {self.failure_message}"
        # An iterator can be read only once.
        return "iterator" if isinstance(self.value, Iterator) else repr_of(self.value)

    @property
    def is_success(self) -> bool:
        """Whether the query succeeded."""
        return self.failure_reason is None

    @property
    def result(self) -> Any:
        """The result.

        Raises:
            IllegalStateError: the query failed.
        """
        if self.failure_reason is not None:
            raise IllegalStateError(
                f"The query failed ({self.failure_reason.name}): {self.failure_message} "
                "Check `is_success` before `result`."
            )
        return self.value


@dataclass(frozen=True)
class StateQueryResult:
    """The results of all queried partitions.

    Kafka Streams' `StateQueryResult` (KIP-796).

    Args:
        global_result: the result of a global store; None for other stores.

    Example:
        >>> StateQueryResult({0: QueryResult(None), 1: QueryResult(3)}).only_partition_result.result
        3
    """

    partition_results: Mapping[int, QueryResult]
    global_result: QueryResult | None = None

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return a table of the results by partition, for notebooks."""
        results = {str(number): each for number, each in self.partition_results.items()}
        if self.global_result is not None:
            results["global"] = self.global_result
        rows = ((name, each._outcome(), repr(each.position)) for name, each in results.items())
        heads = ["Partition", "Result", "Position"]
        return mime_bundle(repr(self), html_table("Query results", heads, rows))

    @property
    def position(self) -> Position:
        """The combined input position of all results."""
        merged = Position()
        for result in self.partition_results.values():
            merged = merged.merge(result.position)
        return merged

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The result of the only partition with a value; None if there is none.

        Raises:
            IllegalStateError: several partitions have a value.
        """
        found = {
            partition: result
            for partition, result in self.partition_results.items()
            if result.is_success and result.value is not None
        }
        if len(found) > 1:
            raise IllegalStateError(
                f"The partitions {sorted(found)} all have a result. Use `partition_results`, or "
                "query one partition."
            )
        return next(iter(found.values()), None)


@dataclass(frozen=True)
class StateQueryRequest:
    """A query with its store, partitions and bound.

    Create it with `in_store(name).with_query(query)`; all other methods return a modified copy.
    Kafka Streams' `StateQueryRequest` (KIP-796).

    Args:
        position_bound: the position that the store must have reached.
        partitions: the partitions to query; None for all.
        active_only: whether only active, running tasks are queried.
        with_execution_info: whether results include the queried stores and execution times.

    Example:
        >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("alice"))
        >>> request.require_active().active_only
        True
    """

    store: str
    query: Query
    position_bound: PositionBound = field(default_factory=PositionBound.unbounded)
    partitions: frozenset[int] | None = None
    active_only: bool = False
    with_execution_info: bool = False

    @staticmethod
    def in_store(name: str) -> InStore:
        """Select the store to query.

        Example:
            >>> StateQueryRequest.in_store("counts").store
            'counts'
        """
        return InStore(name)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest:
        """Return a copy that requires each partition to have reached a position.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> seen = PositionBound.at(Position({"clicks": {0: 41}}))
            >>> request.with_position_bound(seen).position_bound == seen
            True
        """
        return replace(self, position_bound=bound)

    def with_partitions(self, partitions: Collection[int]) -> StateQueryRequest:
        """Return a copy that queries these partitions.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.with_partitions({0}).partitions
            frozenset({0})
        """
        return replace(self, partitions=frozenset(partitions))

    def with_all_partitions(self) -> StateQueryRequest:
        """Return a copy that queries all partitions, which is the default.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.with_partitions({0}).with_all_partitions() == request
            True
        """
        return replace(self, partitions=None)

    def enable_execution_info(self) -> StateQueryRequest:
        """Return a copy whose results include execution info.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.enable_execution_info().with_execution_info
            True
        """
        return replace(self, with_execution_info=True)

    def require_active(self) -> StateQueryRequest:
        """Return a copy that queries only active, running tasks, regardless of the bound.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.require_active().active_only
            True
        """
        return replace(self, active_only=True)


@dataclass(frozen=True)
class InStore:
    """The store of a query that is being built.

    Created by `StateQueryRequest.in_store`.

    Example:
        >>> InStore("counts").with_query(RangeQuery()).store
        'counts'
    """

    store: str

    def with_query(self, query: Query) -> StateQueryRequest:
        """Create a request for all partitions, including standbys, without a bound.

        Example:
            >>> StateQueryRequest.in_store("counts").with_query(KeyQuery("ann")).query.key
            'ann'
        """
        return StateQueryRequest(self.store, query)
