"""What a query of several partitions is answered with."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.errors import IllegalStateError
from millstream.query.requests.position import Position, PositionBound
from millstream.query.requests.queries import Query


class FailureReason(enum.Enum):
    """Why a partition has not answered. Kafka Streams' `FailureReason`.

    Example:
        >>> QueryResult(failure_reason=FailureReason.NOT_PRESENT).is_success
        False
    """

    #: This kind of store does not know this kind of query; or it is a global store.
    UNKNOWN_QUERY_TYPE = "unknown query type"
    #: An active task was asked for, and this is a standby, or one that is being restored.
    NOT_ACTIVE = "not active"
    #: The store has not got as far as the bound.
    NOT_UP_TO_BOUND = "not up to bound"
    #: The partition is not where it was asked for.
    NOT_PRESENT = "not present"
    #: There is no such partition.
    DOES_NOT_EXIST = "does not exist"
    #: The store has failed.
    STORE_EXCEPTION = "store exception"


@dataclass(frozen=True)
class QueryResult:
    """What one partition says: a result, or why there is none. Kafka Streams' `QueryResult`.

    Args:
        value: the result, if `failure_reason` is None.
        failure_reason: why there is none.
        failure_message: the same in words, and what to do.
        position: the input that the answer stands for; empty where that is not known.
        execution_info: who has done what, and how long it took, if it was asked for.

    Example:
        >>> QueryResult(3, position=Position({"clicks": {0: 41}})).result
        3
    """

    value: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str | None = None
    position: Position = field(default_factory=Position)
    execution_info: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        """Whether there is a result."""
        return self.failure_reason is None

    @property
    def result(self) -> Any:
        """The result.

        Raises:
            IllegalStateError: there is none.
        """
        if self.failure_reason is not None:
            raise IllegalStateError(
                f"The query was not answered ({self.failure_reason.name}): {self.failure_message} "
                "Look at `is_success` before `result`."
            )
        return self.value


@dataclass(frozen=True)
class StateQueryResult:
    """What all partitions that were asked say. Kafka Streams' `StateQueryResult` (KIP-796).

    Args:
        partition_results: by partition.
        global_result: what a global store says; None for all others.

    Example:
        >>> StateQueryResult({0: QueryResult(None), 1: QueryResult(3)}).only_partition_result.result
        3
    """

    partition_results: Mapping[int, QueryResult]
    global_result: QueryResult | None = None

    @property
    def position(self) -> Position:
        """The input that all answers together stand for."""
        merged = Position()
        for result in self.partition_results.values():
            merged = merged.merge(result.position)
        return merged

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The answer of the one partition that has found something; None if none has.

        Raises:
            IllegalStateError: several have.
        """
        found = {
            partition: result
            for partition, result in self.partition_results.items()
            if result.is_success and result.value is not None
        }
        if len(found) > 1:
            raise IllegalStateError(
                f"The partitions {sorted(found)} have each found something. Look at "
                "`partition_results`, or ask one partition."
            )
        return next(iter(found.values()), None)


@dataclass(frozen=True)
class StateQueryRequest:
    """A query, and of which store, where and how far. Kafka Streams' `StateQueryRequest` (KIP-796).

    Made by `in_store(name).with_query(query)`; each further word gives a changed copy.

    Args:
        store: the store's name.
        query: what is asked.
        position_bound: how far the store must have got.
        partitions: which ones are asked; None for all.
        active_only: whether only active, running tasks may answer.
        with_execution_info: whether answers tell who has done what.

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
        """Ask this store.

        Example:
            >>> StateQueryRequest.in_store("counts").store
            'counts'
        """
        return InStore(name)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest:
        """The same, of partitions that have got so far.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> seen = PositionBound.at(Position({"clicks": {0: 41}}))
            >>> request.with_position_bound(seen).position_bound == seen
            True
        """
        return replace(self, position_bound=bound)

    def with_partitions(self, partitions: Collection[int]) -> StateQueryRequest:
        """The same, of these partitions.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.with_partitions({0}).partitions
            frozenset({0})
        """
        return replace(self, partitions=frozenset(partitions))

    def with_all_partitions(self) -> StateQueryRequest:
        """The same, of all partitions, as it is by default.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.with_partitions({0}).with_all_partitions() == request
            True
        """
        return replace(self, partitions=None)

    def enable_execution_info(self) -> StateQueryRequest:
        """The same, with answers that tell who has done what.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.enable_execution_info().with_execution_info
            True
        """
        return replace(self, with_execution_info=True)

    def require_active(self) -> StateQueryRequest:
        """The same, answered by active, running tasks only. No bound counts for these.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> request.require_active().active_only
            True
        """
        return replace(self, active_only=True)


@dataclass(frozen=True)
class InStore:
    """A store that is about to be asked. Made by `StateQueryRequest.in_store`.

    Args:
        store: its name.

    Example:
        >>> InStore("counts").with_query(RangeQuery()).store
        'counts'
    """

    store: str

    def with_query(self, query: Query) -> StateQueryRequest:
        """Ask it this, of all partitions, however far they are, standbys included.

        Example:
            >>> StateQueryRequest.in_store("counts").with_query(KeyQuery("ann")).query.key
            'ann'
        """
        return StateQueryRequest(self.store, query)
