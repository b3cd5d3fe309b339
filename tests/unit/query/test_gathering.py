"""Goal: what is gathered of a store is what all its partitions have, or says what is missing.

Method: this instance and others are plain data behind the interface by which they are asked.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from support.waiting import wait_for

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
from millstream.query.metadata import Hosts
from millstream.query.routing import Routing
from millstream.query.state_queries import StateQueries
from millstream.query.stores import KnownStore, KnownStores
from millstream.runtime.queries.questions import AskStore, NextPage, TaskAnswer
from millstream.serdes import STRING

ONE, OTHER, THIRD = HostInfo("one", 1), HostInfo("other", 2), HostInfo("third", 3)
_KEY_VALUE = QueryableStoreTypes.key_value()
_ALL = StateQueryRequest.in_store("counts").with_query(RangeQuery())


class Place:
    """Who has partitions of a store: keys and counts, a page for each.

    Args:
        stored: by partition.
        role: of its tasks.
    """

    def __init__(
        self, stored: Mapping[int, Mapping[str, int]] | None = None, role: str = "RUNNING"
    ) -> None:
        self.stored = dict(stored or {})
        self.role = role
        self.asked: list[AskStore] = []
        self.closed: list[str] = []
        #: Called with each question: may raise.
        self.before: Callable[[], object] = lambda: None
        self.cursor: str | None = None
        self.host = OTHER

    def ask(self, question: AskStore, subtopology: int | None) -> Sequence[TaskAnswer]:
        self.asked.append(question)
        self.before()
        wanted = question.partitions
        return [
            self._answer(partition, pairs, question)
            for partition, pairs in self.stored.items()
            if wanted is None or partition in wanted
        ]

    def _answer(self, partition: int, pairs: Mapping[str, int], question: AskStore) -> TaskAnswer:
        assert question.read is not None
        key = question.read.key
        if question.active_only and self.role != "RUNNING":
            reason = FailureReason.NOT_ACTIVE
            return TaskAnswer(partition, self.role, reason=reason, message="A copy.")
        page = tuple(
            (each.encode(), struct.pack(">qq", 0, count))
            for each, count in sorted(pairs.items())
            if key is None or key == each.encode()
        )
        return TaskAnswer(partition, self.role, page, self.cursor)

    def next_page(self, cursor: str, page_number: int, page_bytes: int) -> NextPage:
        return NextPage((), None)

    def close_cursor(self, cursor: str) -> None:
        self.closed.append(cursor)


class FakeCluster:
    """Knows counts of topics, or not."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)

    def partitions_by_topic(self, store: KnownStore) -> Mapping[str, int]:
        return {topic: count for topic, count in self.counts.items() if store.reads(topic)}

    def partitions_of(self, store: KnownStore) -> int | None:
        return max(self.partitions_by_topic(store).values(), default=None)

    def look_anew(self) -> None: ...


class Bench:
    """The queries of instance ONE.

    Args:
        topics: what is read: names, or a pattern.
        counts: the partitions of topics, as far as they are known.
        others: the other instances.
        within_ms: how long an answer may take.
    """

    def __init__(
        self,
        topics: Any = "in",
        counts: Mapping[str, int] | None = None,
        others: Mapping[HostInfo, Place] | None = None,
        within_ms: int = 20_000,
    ) -> None:
        builder = StreamsBuilder()
        builder.stream(topics, key=STRING, value=STRING).group_by_key().count(store="counts")
        config = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
        stores = KnownStores(builder.build(), config)
        self.state = ClientState.RUNNING
        self.own = Place()
        self.others = dict(others or {})
        cluster: Any = FakeCluster({"in": 3} if counts is None else counts)
        self.cluster = cluster
        self.routing = Routing(stores, cluster, lambda: self.state, ONE)
        instances: Any = self
        self.queries = StateQueries(
            stores, self.own, self.routing, instances, lambda: self.state, within_ms
        )

    def at(self, host: HostInfo) -> Place:
        """As the other instances do."""
        return self.others[host]

    def learn(
        self,
        active: Mapping[HostInfo, frozenset[TopicPartition]],
        standby: Mapping[HostInfo, frozenset[TopicPartition]] | None = None,
    ) -> None:
        self.routing.learn(Hosts(active, standby or {}))

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


def test_others_are_asked_for_a_store_that_a_pattern_feeds() -> None:
    """What they have is found; without them nothing passes for all there is."""
    bench = Bench(re.compile("in-.*"), {"in-a": 2, "in-b": 3, "out": 9}, {OTHER: Place()})
    bench.own.stored = {0: {key_in(0): 5}, 1: {}}
    bench.others[OTHER].stored = {2: {key_in(2): 7}}
    with pytest.raises(StateStoreMigratedError, match=r"\[2\]"):
        bench.view()
    told = {ONE: places("in-a", 0, 1) | places("in-b", 0, 1), OTHER: places("in-b", 2)}
    bench.learn(told)
    assert dict(bench.view().all()) == {key_in(0): 5, key_in(2): 7}
    assert bench.view().get(key_in(2)) == 7
    assert set(bench.queries.query(_ALL).partition_results) == {0, 1, 2}
    assert [each.host_info for each in bench.routing.clients_of("counts")] == [ONE, OTHER]
    found = bench.routing.of_key("counts", key_in(2), STRING, None)
    assert found is not None
    assert (found.active_host, found.partition) == (OTHER, 2)


def test_nothing_is_told_while_the_number_of_partitions_is_not_known() -> None:
    """No part of an answer passes for all of it; partitions that are asked by number answer."""
    bench = Bench(counts={})
    bench.own.stored = {1: {"k": 5}}
    for ask in (
        lambda: bench.queries.query(_ALL),
        lambda: bench.queries.query(StateQueryRequest.in_store("counts").with_query(KeyQuery("x"))),
        bench.view,
    ):
        with pytest.raises(StateStoreNotAvailableError, match="how many partitions"):
            ask()
    asked = bench.queries.query(_ALL.with_partitions({1, 2}))
    assert {number: each.is_success for number, each in asked.partition_results.items()} == {
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
def test_one_that_fails_is_passed_over(error: StreamsError) -> None:
    """A copy elsewhere answers; without one its partitions are told with the reason, retriable."""
    bench = Bench(others={OTHER: Place(), THIRD: Place({2: {"c": 3}}, "STANDBY")})
    bench.own.stored = {0: {"a": 1}, 1: {"b": 2}}
    bench.own.cursor = "own/rest"
    bench.others[OTHER].before = failing(error)
    active = {ONE: places("in", 0, 1), OTHER: places("in", 2)}
    bench.learn(active, {THIRD: places("in", 2)})
    result = bench.queries.query(_ALL)
    assert [each.is_success for each in result.partition_results.values()] == [True] * 3
    assert dict(bench.view(stale=True).all()) == {"a": 1, "b": 2, "c": 3}
    bench.learn(active)
    told = bench.queries.query(_ALL).partition_results[2]
    assert told.failure_reason is FailureReason.NOT_PRESENT
    assert str(error) in (told.failure_message or "")
    bench.own.closed.clear()
    with pytest.raises(StateStoreNotAvailableError, match=re.escape(str(error))) as caught:
        bench.view()
    assert caught.value.__cause__ is error
    wait_for(lambda: len(bench.own.closed) == 2, 10, "what was found is let go of")


def test_own_threads_that_fail_are_passed_over() -> None:
    """A copy on another instance answers."""
    bench = Bench(others={OTHER: Place({0: {"a": 1}, 1: {"b": 2}, 2: {"c": 3}}, "STANDBY")})
    bench.own.before = failing(StreamsError("A thread has failed."))
    bench.learn({ONE: places("in", 0, 1, 2)}, {OTHER: places("in", 0, 1, 2)})
    assert dict(bench.view(stale=True).all()) == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(StateStoreNotAvailableError, match="A thread has failed"):
        bench.view().get("a")


def test_others_are_asked_at_the_same_time() -> None:
    """Also beside this instance; each once, and only for what is missing."""
    both = threading.Barrier(3, timeout=20)
    others = {OTHER: Place({1: {"b": 2}}), THIRD: Place({2: {"c": 3}})}
    bench = Bench(others=others)
    bench.own.stored = {0: {"a": 1}}
    bench.learn({ONE: places("in", 0), OTHER: places("in", 1), THIRD: places("in", 2)})
    for place in (bench.own, *others.values()):
        place.before = both.wait
    assert dict(pairs_of(bench.queries.query(_ALL))) == {"a": 1, "b": 2, "c": 3}
    for place in (bench.own, *others.values()):
        place.before = lambda: None
    assert [place.asked[-1].partitions for place in others.values()] == [
        frozenset({1}),
        frozenset({2}),
    ]
    asked = [len(place.asked) for place in others.values()]
    assert bench.view(partition=0).get("a") == 1
    assert [len(place.asked) for place in others.values()] == asked


def test_who_hangs_is_waited_for_once() -> None:
    """For as long as an answer may take altogether; then a copy, if there is time, or the reason.
    What it says afterwards is let go of."""
    may_answer = threading.Event()
    hanging = [Place({1: {}}), Place({2: {}})]
    bench = Bench(others=dict(zip((OTHER, THIRD), hanging, strict=True)), within_ms=300)
    bench.own.stored = {0: {"a": 1}}
    for place in hanging:
        place.before = lambda: may_answer.wait(30)
        place.cursor = "rest"
    bench.learn({ONE: places("in", 0), OTHER: places("in", 1), THIRD: places("in", 2)})
    began_s = time.monotonic()
    results = bench.queries.query(_ALL).partition_results
    assert time.monotonic() - began_s < 5
    assert [each.is_success for each in results.values()] == [True, False, False]
    assert "has not answered within" in (results[1].failure_message or "")
    may_answer.set()
    wait_for(lambda: all(place.closed for place in hanging), 10, "late answers are let go of")


def test_one_that_hangs_holds_up_no_questions_to_others() -> None:
    """However many wait for it."""
    may_answer = threading.Event()
    bench = Bench(others={OTHER: Place({1: {}}), THIRD: Place({2: {key_in(2): 3}})})
    bench.learn({ONE: places("in", 0), OTHER: places("in", 1), THIRD: places("in", 2)})
    bench.others[OTHER].before = lambda: may_answer.wait(30)
    hanging = _ALL.with_partitions({1})
    askers = [threading.Thread(target=bench.queries.query, args=(hanging,)) for _ in range(100)]
    try:
        for asker in askers:
            asker.start()
        wait_for(lambda: len(bench.others[OTHER].asked) >= 8, 10, "many wait")
        began_s = time.monotonic()
        assert bench.view(partition=2).get(key_in(2)) == 3
        assert time.monotonic() - began_s < 5
    finally:
        may_answer.set()
        for asker in askers:
            asker.join()
    bench.queries.close()


def test_a_restoring_task_answers_only_if_nobody_else_does() -> None:
    """It may have nothing yet: a copy, or the task that is active elsewhere, is asked as well."""
    bench = Bench(others={OTHER: Place({0: {"a": 1}}, "STANDBY")}, counts={"in": 1})
    bench.own.stored, bench.own.role = {0: {}}, "RESTORING"
    bench.learn({ONE: places("in", 0)}, {OTHER: places("in", 0)})
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery("a"))
    found = bench.queries.query(request).only_partition_result
    assert found is not None
    assert found.result == 1
    assert bench.view(stale=True).get("a") == 1
    bench.others[OTHER].stored.clear()
    assert bench.queries.query(request).partition_results[0].is_success


def test_the_leader_may_know_of_more_partitions() -> None:
    """Than the cluster had when it was asked last: those are missed until they are found."""
    bench = Bench(counts={"in": 2}, others={OTHER: Place()})
    bench.own.stored = {0: {}, 1: {}}
    bench.learn({ONE: places("in", 0, 1), OTHER: places("in", 2)})
    with pytest.raises(StateStoreMigratedError, match=r"\[2\]"):
        bench.view()
