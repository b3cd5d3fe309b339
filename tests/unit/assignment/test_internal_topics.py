"""Partition counts of internal topics, co-partitioning, and which topics are created."""

from __future__ import annotations

import re

import pytest

from millstream.assignment.internal_topics import (
    changelog_counts,
    missing_source_topics,
    repartition_counts,
    topics_to_create,
)
from millstream.assignment.partitions import tasks_of
from millstream.assignment.topics import (
    ChangelogSpec,
    NewTopic,
    RepartitionSpec,
    TopicGroup,
    TopologyTopics,
)
from millstream.errors import CopartitionError, TaskAssignmentError, TopologyError
from millstream.record import TaskId, TopicPartition


def _reads(
    subtopology: int, *sources: str, to: tuple[str, ...] = (), **counts: int | None
) -> TopicGroup:
    """A sub-topology; topics whose names begin with `r` are repartition topics."""
    return TopicGroup(
        subtopology,
        source_topics=sources,
        sink_topics=to,
        repartition_source_topics={
            topic: RepartitionSpec(counts.get(topic)) for topic in sources if topic[0] == "r"
        },
    )


def test_repartition_topic_takes_the_largest_count_of_its_writers_sources() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", "b", to=("r1", "out")), _reads(1, "c", to=("r1",)), _reads(2, "r1"))
    )
    assert repartition_counts(topics, {"a": 2, "b": 5, "c": 3}) == {"r1": 5}


@pytest.mark.parametrize("backwards", [False, True])
def test_counts_pass_through_chains(backwards: bool) -> None:
    """Aim: a chain resolves in whatever order the sub-topologies are listed."""
    chain = [
        _reads(0, "a", to=("r1",)),
        _reads(1, "r1", to=("r2",)),
        _reads(2, "r2", "b", to=("r3",)),
        _reads(3, "r3"),
    ]
    topics = TopologyTopics(tuple(reversed(chain) if backwards else chain))
    assert repartition_counts(topics, {"a": 4, "b": 6}) == {"r1": 4, "r2": 4, "r3": 6}


def test_a_count_the_user_gave_is_kept_and_passed_on() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "r1", to=("r2",), r1=7), _reads(2, "r2"))
    )
    assert repartition_counts(topics, {"a": 4}) == {"r1": 7, "r2": 7}


def test_a_cycle_takes_what_is_known_of_it() -> None:
    """Aim: sub-topologies that feed each other are resolved and do not loop for ever."""
    topics = TopologyTopics((_reads(0, "a", "r2", to=("r1",)), _reads(1, "r1", to=("r2",))))
    assert repartition_counts(topics, {"a": 3}) == {"r1": 3, "r2": 3}


@pytest.mark.parametrize(
    "groups",
    [
        (_reads(0, "r1", to=("r1",)),),
        (_reads(0, to=("r1",)), _reads(1, "r1")),
        (_reads(0, "r1"),),
    ],
)
def test_a_count_that_follows_from_nothing_is_an_error(groups: tuple[TopicGroup, ...]) -> None:
    with pytest.raises(TaskAssignmentError, match=r"\['r1'\] is not set"):
        repartition_counts(TopologyTopics(groups), {})


def test_a_repartition_topic_takes_the_count_of_what_it_is_joined_with() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "r1", "b", to=("r2",)), _reads(2, "r2")),
        (frozenset({"r1", "b"}),),
    )
    assert repartition_counts(topics, {"a": 8, "b": 3}) == {"r1": 3, "r2": 8}


def test_joined_repartition_topics_take_the_largest_of_their_counts() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "b", to=("r2",)), _reads(2, "r1", "r2")),
        (frozenset({"r1", "r2"}),),
    )
    assert repartition_counts(topics, {"a": 2, "b": 6}) == {"r1": 6, "r2": 6}


def test_joined_repartition_topics_take_the_count_given_to_one() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "b", to=("r2",)), _reads(2, "r1", "r2", r1=3)),
        (frozenset({"r1", "r2"}),),
    )
    assert repartition_counts(topics, {"a": 2, "b": 6}) == {"r1": 3, "r2": 3}


@pytest.mark.parametrize(
    ("group", "counts", "why"),
    [
        (
            _reads(0, "a", "b"),
            {"a": 12, "b": 8},
            "'a' has 12, 'b' has 8 partitions.*repartition(partitions=12)",
        ),
        (
            _reads(0, "a", "r1", r1=5),
            {"a": 4},
            "'a' has 4, repartition topic 'r1' 5 partitions.*Leave the partitions=",
        ),
        (
            _reads(0, "r1", "r2", r1=5, r2=6),
            {},
            "'r1' 5, repartition topic 'r2' 6 partitions.*same number",
        ),
    ],
)
def test_topics_that_are_not_copartitioned_are_refused(
    group: TopicGroup, counts: dict[str, int], why: str
) -> None:
    """Aim: the error tells the count of each topic and what to do."""
    topics = TopologyTopics((group,), (frozenset(group.source_topics),))
    pattern = re.compile(why.replace("(", r"\(").replace(")", r"\)"))
    with pytest.raises(CopartitionError) as caught:
        repartition_counts(topics, counts)
    assert pattern.search(str(caught.value))


def test_external_topics_must_be_there() -> None:
    topics = TopologyTopics((_reads(0, "b", "a", to=("r1",)), _reads(1, "r1", "c")))
    assert missing_source_topics(topics, {"a": 1}) == ["b", "c"]


def test_tasks_read_their_partition_of_every_topic_that_has_it() -> None:
    """Aim: without a join, topics of one sub-topology may differ in their counts (merge)."""
    tasks = tasks_of((_reads(1, "x"), _reads(0, "a", "b"), _reads(2)), {"a": 2, "b": 1, "x": 1})
    assert tasks == {
        TaskId(0, 0): {TopicPartition("a", 0), TopicPartition("b", 0)},
        TaskId(0, 1): {TopicPartition("a", 1)},
        TaskId(1, 0): {TopicPartition("x", 0)},
    }
    assert list(tasks) == sorted(tasks)


def test_a_topic_read_twice_or_gone_makes_no_tasks() -> None:
    with pytest.raises(TaskAssignmentError, match="sub-topologies 0 and 1"):
        tasks_of((_reads(0, "a"), _reads(1, "a")), {"a": 1})
    with pytest.raises(TaskAssignmentError, match="'a' is not known"):
        tasks_of((_reads(0, "a"),), {})


def test_a_changelog_has_a_partition_for_each_task() -> None:
    config = {"cleanup.policy": "compact"}
    group = TopicGroup(
        0,
        source_topics=("a", "b"),
        changelog_topics={
            "s-changelog": ChangelogSpec(config),
            "a": ChangelogSpec(is_source_topic=True),
        },
    )
    idle = TopicGroup(1, changelog_topics={"idle-changelog": ChangelogSpec()})
    tasks = tasks_of((group, idle), {"a": 2, "b": 4})
    assert changelog_counts((group, idle), tasks) == {"s-changelog": (4, config)}


def test_only_topics_that_are_not_there_are_created() -> None:
    expected = {"r2": (3, {"x": "y"}), "r1": (2, {}), "c": (1, {})}
    assert topics_to_create(expected, {"r1": 2}) == [
        NewTopic("c", 1, {}),
        NewTopic("r2", 3, {"x": "y"}),
    ]


def test_an_internal_topic_with_another_count_is_refused() -> None:
    with pytest.raises(TopologyError, match="expected 3, actual 2") as caught:
        topics_to_create({"r1": (3, {})}, {"r1": 2})
    assert caught.value.topic == "r1"


def test_patterns_take_the_topics_that_match_whole() -> None:
    topics = TopologyTopics(
        (
            TopicGroup(0, ("log-a",), source_patterns=(re.compile("log-.*"),)),
            TopicGroup(1, source_patterns=(re.compile("metric"),)),
        )
    )
    found = topics.with_matches(["log-b", "log-a", "metrics", "metric", "xlog-c"])
    assert [group.source_topics for group in found.groups] == [("log-a", "log-b"), ("metric",)]


def test_a_topic_that_matches_two_patterns_is_refused() -> None:
    topics = TopologyTopics(
        (
            TopicGroup(0, source_patterns=(re.compile("a.*"),)),
            TopicGroup(1, source_patterns=(re.compile(".*b"),)),
        )
    )
    with pytest.raises(TopologyError, match="'ab' matches the patterns of two"):
        topics.with_matches(["ab"])
