"""Goal: how many partitions a store has is known of all its topics or not at all, what was missing
is asked again, and nobody waits long for a cluster that is silent."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from support.waiting import wait_for

from millstream import BrokerUnavailableError, StreamsBuilder, StreamsConfig, TopicPartition
from millstream.query.cluster import Cluster
from millstream.query.stores import KnownStore, KnownStores
from millstream.serdes import STRING

_CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")


class FakeAdmin:
    """Topics as told; it can be silent, or hold an answer back until it is let go."""

    def __init__(self, **topics: int) -> None:
        self.topics = dict(topics)
        self.asked = 0
        self.is_silent = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.reached = threading.Event()

    def topics_matching(self, pattern: re.Pattern[str], timeout_ms: int) -> list[str]:
        return sorted(filter(pattern.fullmatch, self.topics))

    def partition_counts(self, topics: Iterable[str], timeout_ms: int) -> dict[str, int]:
        self.asked += 1
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
def cluster(admin: FakeAdmin) -> Iterator[Cluster]:
    made: Any = admin
    cluster = Cluster(_CONFIG, lambda _: made)
    yield cluster
    cluster.close()


def known_by_name(*topics: str) -> KnownStore:
    builder = StreamsBuilder()
    builder.stream(topics, key=STRING, value=STRING).group_by_key().count(store="-".join(topics))
    return KnownStores(builder.build(), _CONFIG).find("-".join(topics))


def known_by_pattern(pattern: str) -> KnownStore:
    """A store that a pattern feeds, beside a topic of the application's own."""
    builder = StreamsBuilder()
    matching = builder.stream(re.compile(pattern), key=STRING, value=STRING)
    matching.group_by_key().count(store="counts")
    other = builder.stream("other", key=STRING, value=STRING).repartition(name="own")
    other.to("out", key=STRING, value=STRING)
    return KnownStores(builder.build(), _CONFIG).find("counts")


def test_the_topics_that_match_a_pattern_count(cluster: Cluster, admin: FakeAdmin) -> None:
    """But for those that another source reads by name, as the assignment has it."""
    own = "app-own-repartition"
    admin.topics[own] = 40
    store = known_by_pattern("(in|app)-.*")
    assert cluster.partitions_by_topic(store) == {"in-a": 2, "in-b": 4}
    assert cluster.partitions_of(store) == 4
    assert [store.reads(topic) for topic in ("in-a", own, "out")] == [True, False, False]
    admin.topics.clear()
    cluster.look_anew()
    assert cluster.partitions_of(store) == 4


def test_what_is_not_known_of_all_topics_is_not_known(cluster: Cluster, admin: FakeAdmin) -> None:
    """A topic that was not there is asked for again, without a rebalance."""
    store = known_by_name("in-a", "made-later")
    assert cluster.partitions_of(store) is None
    assert cluster.partitions_of(store) is None
    assert admin.asked == 1
    admin.topics["made-later"] = 3
    wait_for(lambda: cluster.partitions_of(store) == 3, 10, "it is seen")
    assert cluster.partitions_by_topic(store) == {"in-a": 2, "made-later": 3}


def test_what_was_asked_before_a_rebalance_is_not_taken_for_new(
    cluster: Cluster, admin: FakeAdmin
) -> None:
    """An answer that was under way at that time is replaced by the next one."""
    store = known_by_name("in-a")
    admin.may_answer.clear()
    asking = threading.Thread(target=cluster.partitions_of, args=(store,))
    asking.start()
    assert admin.reached.wait(10)
    admin.topics["in-a"] = 5
    cluster.look_anew()
    admin.may_answer.set()
    asking.join()
    wait_for(lambda: cluster.partitions_of(store) == 5, 10, "the newer answer counts")


def test_a_silent_cluster_holds_up_nobody(cluster: Cluster, admin: FakeAdmin) -> None:
    """What was known does at once; who asks for more does not keep others from it."""
    store = known_by_name("in-a")
    assert cluster.partitions_of(store) == 2
    admin.may_answer.clear()
    admin.is_silent = True
    cluster.look_anew()
    began_s = time.monotonic()
    assert [cluster.partitions_of(store) for _ in range(20)] == [2] * 20
    assert time.monotonic() - began_s < 2
    assert admin.asked == 2
    place = TopicPartition("log", 0)
    assert cluster.ends(frozenset({place})) == {place: 7}
    admin.may_answer.set()
    other = known_by_name("in-b")
    began_s = time.monotonic()
    assert [cluster.partitions_of(other) for _ in range(20)] == [None] * 20
    assert time.monotonic() - began_s < 2
    assert admin.asked == 3
