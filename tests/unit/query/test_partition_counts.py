"""Goal: the number of partitions of a store is known for all its topics or not at all, missing
topics are requested again, and a silent cluster blocks no caller for long."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from support.waiting import hang_guard, wait_for

from millstream import BrokerUnavailableError, StreamsBuilder, StreamsConfig, TopicPartition
from millstream.query.partition_counts import ClusterInfo
from millstream.query.store_catalog import CatalogStore, StoreCatalog
from millstream.serdes import STRING

_CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")


class FakeAdmin:
    """Topics set by a test; it can be silent, or delay an answer until it is released."""

    def __init__(self, **topics: int) -> None:
        self.topics = dict(topics)
        self.requests = 0
        self.is_silent = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.reached = threading.Event()

    def topics_matching(self, pattern: re.Pattern[str], timeout_ms: int) -> list[str]:
        return sorted(filter(pattern.fullmatch, self.topics))

    def partition_counts(self, topics: Iterable[str], timeout_ms: int) -> dict[str, int]:
        self.requests += 1
        found = {topic: self.topics[topic] for topic in topics if topic in self.topics}
        self.reached.set()
        assert self.may_answer.wait(30)
        if self.is_silent:
            raise BrokerUnavailableError("No broker answers.")
        return found

    def end_offsets(self, places: Iterable[TopicPartition], timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(places, 7)

    def close(self) -> None: ...


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    admin = FakeAdmin(**{"in-a": 2, "in-b": 4})
    yield admin
    admin.may_answer.set()


@pytest.fixture
def cluster(admin: FakeAdmin) -> Iterator[ClusterInfo]:
    made: Any = admin
    cluster = ClusterInfo(_CONFIG, lambda _: made)
    yield cluster
    cluster.close()


def store_of_topics(*topics: str) -> CatalogStore:
    builder = StreamsBuilder()
    builder.stream(topics, key=STRING, value=STRING).group_by_key().count(store="-".join(topics))
    return StoreCatalog(builder.build(), _CONFIG).find("-".join(topics))


def store_of_pattern(pattern: str) -> CatalogStore:
    """A store with input from a pattern, and one of the application's own topics."""
    builder = StreamsBuilder()
    matching = builder.stream(re.compile(pattern), key=STRING, value=STRING)
    matching.group_by_key().count(store="counts")
    other = builder.stream("other", key=STRING, value=STRING).repartition(name="own")
    other.to("out", key=STRING, value=STRING)
    return StoreCatalog(builder.build(), _CONFIG).find("counts")


def test_topics_that_match_a_pattern_are_counted(cluster: ClusterInfo, admin: FakeAdmin) -> None:
    """Except for topics that another source reads by name, as in the assignment."""
    own = "app-own-repartition"
    admin.topics[own] = 40
    store = store_of_pattern("(in|app)-.*")
    assert cluster.partitions_by_topic(store) == {"in-a": 2, "in-b": 4}
    assert cluster.partitions_of(store) == 4
    assert [store.reads(topic) for topic in ("in-a", own, "out")] == [True, False, False]
    admin.topics.clear()
    cluster.invalidate()
    assert cluster.partitions_of(store) == 4


def test_one_unknown_topic_makes_the_number_unknown(cluster: ClusterInfo, admin: FakeAdmin) -> None:
    """A missing topic is requested again without a rebalance."""
    store = store_of_topics("in-a", "made-later")
    assert cluster.partitions_of(store) is None
    assert cluster.partitions_of(store) is None
    assert admin.requests == 1
    admin.topics["made-later"] = 3
    wait_for(lambda: cluster.partitions_of(store) == 3, 10, "the new topic is found")
    assert cluster.partitions_by_topic(store) == {"in-a": 2, "made-later": 3}


def test_an_answer_from_before_a_rebalance_is_outdated(
    cluster: ClusterInfo, admin: FakeAdmin
) -> None:
    """An answer that was pending at that time is replaced by the next one."""
    store = store_of_topics("in-a")
    admin.may_answer.clear()
    pending = threading.Thread(target=cluster.partitions_of, args=(store,))
    pending.start()
    assert admin.reached.wait(10)
    admin.topics["in-a"] = 5
    cluster.invalidate()
    admin.may_answer.set()
    pending.join()
    wait_for(lambda: cluster.partitions_of(store) == 5, 10, "the newer answer is used")


def test_a_silent_cluster_does_not_block_queries(cluster: ClusterInfo, admin: FakeAdmin) -> None:
    """The previous result is returned immediately, even while other callers wait for a new one."""
    store = store_of_topics("in-a")
    assert cluster.partitions_of(store) == 2
    admin.may_answer.clear()
    admin.is_silent = True
    cluster.invalidate()
    # Waiting for each refresh would take 100 s.
    with hang_guard("the queries"):
        assert [cluster.partitions_of(store) for _ in range(400)] == [2] * 400
    assert admin.requests == 2
    place = TopicPartition("log", 0)
    assert cluster.ends(frozenset({place})) == {place: 7}
    admin.may_answer.set()
    other = store_of_topics("in-b")
    # Waiting for each first lookup would take 1,200 s.
    with hang_guard("the queries"):
        assert [cluster.partitions_of(other) for _ in range(400)] == [None] * 400
    assert admin.requests == 3
