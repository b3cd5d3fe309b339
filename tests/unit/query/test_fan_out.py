"""Goal: a result covers all partitions of a store, or reports the missing ones.

Method: this instance and others are plain data behind the query interface.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from support.waiting import NEVER_S, hang_guard, wait_for

from millstream import (
    ClientState,
    FailureReason,
    HostInfo,
    InvalidStateStoreError,
    KeyQuery,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    StateQueryResult,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TopicPartition,
)
from millstream.kafka.partitioner import partition_for
from millstream.query.key_routing import StoreRouting
from millstream.query.state_queries import StateQueries
from millstream.query.store_catalog import CatalogStore, StoreCatalog
from millstream.query.streams_metadata import PartitionOwners
from millstream.runtime.queries.query_messages import NextPage, QueryStore, TaskQueryResult
from millstream.serdes import STRING

ONE, OTHER, THIRD = HostInfo("one", 1), HostInfo("other", 2), HostInfo("third", 3)
_KEY_VALUE = QueryableStoreTypes.key_value()
_ALL = StateQueryRequest.in_store("counts").with_query(RangeQuery())


class FakeSource:
    """A source of partitions of a store: keys and counts, a page for each.

    Args:
        stored: by partition.
        role: of its tasks.
    """

    def __init__(
        self, stored: Mapping[int, Mapping[str, int]] | None = None, role: str = "RUNNING"
    ) -> None:
        self.stored = dict(stored or {})
        self.role = role
        self.queries_received: list[QueryStore] = []
        self.closed: list[str] = []
        #: Called with each query; can raise an error.
        self.before: Callable[[], object] = lambda: None
        self.cursor: str | None = None
        self.host = OTHER

    def query(self, question: QueryStore, subtopology: int | None) -> Sequence[TaskQueryResult]:
        self.queries_received.append(question)
        self.before()
        requested = question.partitions
        return [
            self._answer(partition, pairs, question)
            for partition, pairs in self.stored.items()
            if requested is None or partition in requested
        ]

    def _answer(
        self, partition: int, pairs: Mapping[str, int], question: QueryStore
    ) -> TaskQueryResult:
        assert question.read is not None
        key = question.read.key
        if question.active_only and self.role != "RUNNING":
            reason = FailureReason.NOT_ACTIVE
            return TaskQueryResult(partition, self.role, reason=reason, message="A copy.")
        page = tuple(
            (each.encode(), struct.pack(">qq", 0, count))
            for each, count in sorted(pairs.items())
            if key is None or key == each.encode()
        )
        return TaskQueryResult(partition, self.role, page, self.cursor)

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        return NextPage((), None)

    def close_cursor(self, cursor: str) -> None:
        self.closed.append(cursor)


class FakeCluster:
    """The partition counts of topics, if they are known."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)

    def partitions_by_topic(self, store: CatalogStore) -> Mapping[str, int]:
        return {topic: count for topic, count in self.counts.items() if store.reads(topic)}

    def partitions_of(self, store: CatalogStore) -> int | None:
        return max(self.partitions_by_topic(store).values(), default=None)

    def invalidate(self) -> None: ...


class Bench:
    """The queries of instance ONE.

    Args:
        topics: the input: names, or a pattern.
        counts: the partition counts of known topics.
        others: the other instances.
        within_ms: the timeout of a query.
    """

    def __init__(
        self,
        topics: Any = "in",
        counts: Mapping[str, int] | None = None,
        others: Mapping[HostInfo, FakeSource] | None = None,
        within_ms: int = 20_000,
    ) -> None:
        builder = StreamsBuilder()
        builder.stream(topics, key=STRING, value=STRING).group_by_key().count(store="counts")
        config = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
        stores = StoreCatalog(builder.build(), config)
        self.state = ClientState.RUNNING
        self.own = FakeSource()
        self.remote_partitions = dict(others or {})
        cluster: Any = FakeCluster({"in": 3} if counts is None else counts)
        self.cluster = cluster
        self.routing = StoreRouting(stores, cluster, lambda: self.state, ONE)
        instances: Any = self
        self.queries = StateQueries(
            stores, self.own, self.routing, instances, lambda: self.state, within_ms
        )

    def get(self, host: HostInfo) -> FakeSource:
        """The interface to other instances."""
        return self.remote_partitions[host]

    def apply_assignment(
        self,
        active: Mapping[HostInfo, frozenset[TopicPartition]],
        standby: Mapping[HostInfo, frozenset[TopicPartition]] | None = None,
    ) -> None:
        self.routing.apply_assignment(PartitionOwners(active, standby or {}))

    def view(self, **options: Any) -> Any:
        return self.queries.store(
            "counts", _KEY_VALUE, options.pop("partition", None), stale=options.pop("stale", False)
        )


def places(topic: str, *partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


def pairs_of(result: StateQueryResult) -> Iterator[tuple[str, int]]:
    for each in result.partition_results.values():
        yield from each.result


def key_in(partition: int, count: int = 3) -> str:
    return next(k for k in map(str, range(1_000)) if partition_for(k.encode(), count) == partition)


def test_other_instances_are_queried_for_a_store_with_a_pattern() -> None:
    """Partitions of other instances are found; without those instances no result passes as
    complete."""
    bench = Bench(re.compile("in-.*"), {"in-a": 2, "in-b": 3, "out": 9}, {OTHER: FakeSource()})
    bench.own.stored = {0: {key_in(0): 5}, 1: {}}
    bench.remote_partitions[OTHER].stored = {2: {key_in(2): 7}}
    with pytest.raises(StateStoreMigratedError, match=r"\[2\]"):
        bench.view()
    assigned = {ONE: places("in-a", 0, 1) | places("in-b", 0, 1), OTHER: places("in-b", 2)}
    bench.apply_assignment(assigned)
    assert dict(bench.view().all()) == {key_in(0): 5, key_in(2): 7}
    assert bench.view().get(key_in(2)) == 7
    assert set(bench.queries.query(_ALL).partition_results) == {0, 1, 2}
    assert [each.host_info for each in bench.routing.clients_with_store("counts")] == [ONE, OTHER]
    found = bench.routing.key_metadata("counts", key_in(2), STRING, None)
    assert found is not None
    assert (found.active_host, found.partition) == (OTHER, 2)


def test_no_result_while_the_number_of_partitions_is_unknown() -> None:
    """A partial answer must not pass as complete; partitions requested by number are answered."""
    bench = Bench(counts={})
    bench.own.stored = {1: {"k": 5}}
    for query in (
        lambda: bench.queries.query(_ALL),
        lambda: bench.queries.query(StateQueryRequest.in_store("counts").with_query(KeyQuery("x"))),
        bench.view,
    ):
        with pytest.raises(StateStoreNotAvailableError, match="number of partitions"):
            query()
    result = bench.queries.query(_ALL.with_partitions({1, 2}))
    assert {number: each.is_success for number, each in result.partition_results.items()} == {
        1: True,
        2: False,
    }
    assert bench.view(partition=1).get("k") == 5


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [
        InvalidStateStoreError("It refuses (404)."),
        StreamsError("It answered with something too large."),
    ],
    ids=["refuses", "fails"],
)
def test_a_failing_instance_is_skipped(error: StreamsError) -> None:
    """A standby on another instance answers; without one, its partitions are reported with a
    retriable reason."""
    bench = Bench(others={OTHER: FakeSource(), THIRD: FakeSource({2: {"c": 3}}, "STANDBY")})
    bench.own.stored = {0: {"a": 1}, 1: {"b": 2}}
    bench.own.cursor = "own/rest"
    bench.remote_partitions[OTHER].before = failing(error)
    active = {ONE: places("in", 0, 1), OTHER: places("in", 2)}
    bench.apply_assignment(active, {THIRD: places("in", 2)})
    result = bench.queries.query(_ALL)
    assert [each.is_success for each in result.partition_results.values()] == [True] * 3
    assert dict(bench.view(stale=True).all()) == {"a": 1, "b": 2, "c": 3}
    bench.apply_assignment(active)
    failed = bench.queries.query(_ALL).partition_results[2]
    assert failed.failure_reason is FailureReason.NOT_PRESENT
    assert str(error) in (failed.failure_message or "")
    bench.own.closed.clear()
    with pytest.raises(StateStoreNotAvailableError, match=re.escape(str(error))) as caught:
        bench.view()
    assert caught.value.__cause__ is error
    wait_for(lambda: len(bench.own.closed) == 2, 10, "the cursors are closed")


def test_failing_local_threads_are_skipped() -> None:
    """A standby on another instance answers."""
    bench = Bench(others={OTHER: FakeSource({0: {"a": 1}, 1: {"b": 2}, 2: {"c": 3}}, "STANDBY")})
    bench.own.before = failing(StreamsError("A thread has failed."))
    bench.apply_assignment({ONE: places("in", 0, 1, 2)}, {OTHER: places("in", 0, 1, 2)})
    assert dict(bench.view(stale=True).all()) == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(StateStoreNotAvailableError, match="A thread has failed"):
        bench.view().get("a")


def test_other_instances_are_queried_in_parallel() -> None:
    """Also in parallel to this instance; each once, and only for missing partitions."""
    both = threading.Barrier(3, timeout=20)
    others = {OTHER: FakeSource({1: {"b": 2}}), THIRD: FakeSource({2: {"c": 3}})}
    bench = Bench(others=others)
    bench.own.stored = {0: {"a": 1}}
    bench.apply_assignment({ONE: places("in", 0), OTHER: places("in", 1), THIRD: places("in", 2)})
    for place in (bench.own, *others.values()):
        place.before = both.wait
    assert dict(pairs_of(bench.queries.query(_ALL))) == {"a": 1, "b": 2, "c": 3}
    for place in (bench.own, *others.values()):
        place.before = lambda: None
    assert [place.queries_received[-1].partitions for place in others.values()] == [
        frozenset({1}),
        frozenset({2}),
    ]
    counts = [len(place.queries_received) for place in others.values()]
    assert bench.view(partition=0).get("a") == 1
    assert [len(place.queries_received) for place in others.values()] == counts


def test_a_hung_instance_is_waited_for_once() -> None:
    """Within the timeout of the query; then a standby answers if there is time, or the reason is
    reported.

    A late answer is discarded.
    """
    may_answer = threading.Event()
    hanging = [FakeSource({1: {}}), FakeSource({2: {}})]
    bench = Bench(others=dict(zip((OTHER, THIRD), hanging, strict=True)), within_ms=300)
    bench.own.stored = {0: {"a": 1}}
    for place in hanging:
        place.before = lambda: may_answer.wait(NEVER_S)
        place.cursor = "rest"
    bench.apply_assignment({ONE: places("in", 0), OTHER: places("in", 1), THIRD: places("in", 2)})
    with hang_guard("the query"):
        results = bench.queries.query(_ALL).partition_results
    assert [each.is_success for each in results.values()] == [True, False, False]
    assert "did not respond within" in (results[1].failure_message or "")
    may_answer.set()
    wait_for(
        lambda: all(place.closed for place in hanging),
        10,
        "the cursors of late answers are closed",
    )


def test_a_hung_instance_does_not_delay_queries_of_others() -> None:
    """Regardless of the number of waiting queries."""
    may_answer = threading.Event()
    bench = Bench(
        others={OTHER: FakeSource({1: {}}), THIRD: FakeSource({2: {key_in(2): 3}})},
        within_ms=int(NEVER_S * 1_000),
    )
    bench.apply_assignment({ONE: places("in", 0), OTHER: places("in", 1), THIRD: places("in", 2)})
    bench.remote_partitions[OTHER].before = lambda: may_answer.wait(NEVER_S)
    hanging = _ALL.with_partitions({1})
    queriers = [threading.Thread(target=bench.queries.query, args=(hanging,)) for _ in range(100)]
    try:
        for querier in queriers:
            querier.start()
        wait_for(
            lambda: len(bench.remote_partitions[OTHER].queries_received) >= 8,
            10,
            "many queries wait",
        )
        assert bench.view(partition=2).get(key_in(2)) == 3
        assert all(querier.is_alive() for querier in queriers), "they still wait"
    finally:
        may_answer.set()
        for querier in queriers:
            querier.join()
    bench.queries.close()


def test_a_restoring_task_answers_only_as_a_last_resort() -> None:
    """It may have no data yet: a standby, or the task that is active on another instance, is
    queried as well."""
    bench = Bench(others={OTHER: FakeSource({0: {"a": 1}}, "STANDBY")}, counts={"in": 1})
    bench.own.stored, bench.own.role = {0: {}}, "RESTORING"
    bench.apply_assignment({ONE: places("in", 0)}, {OTHER: places("in", 0)})
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery("a"))
    found = bench.queries.query(request).only_partition_result
    assert found is not None
    assert found.result == 1
    assert bench.view(stale=True).get("a") == 1
    bench.remote_partitions[OTHER].stored.clear()
    assert bench.queries.query(request).partition_results[0].is_success


def test_the_assignment_may_contain_more_partitions() -> None:
    """There may be more than in the last metadata: they are missing until they are found."""
    bench = Bench(counts={"in": 2}, others={OTHER: FakeSource()})
    bench.own.stored = {0: {}, 1: {}}
    bench.apply_assignment({ONE: places("in", 0, 1), OTHER: places("in", 2)})
    with pytest.raises(StateStoreMigratedError, match=r"\[2\]"):
        bench.view()
