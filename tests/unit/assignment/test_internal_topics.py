"""Partition counts of internal topics, copartitioning, and topics to create."""

from __future__ import annotations

import re

import pytest

from millstream.assignment.internal_topics import (
    changelog_counts,
    missing_source_topics,
    repartition_counts,
    tasks_of,
    topics_to_create,
)
from millstream.assignment.topic_metadata import (
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


def test_a_repartition_topic_has_the_largest_count_of_the_sources_of_its_writers() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", "b", to=("r1", "out")), _reads(1, "c", to=("r1",)), _reads(2, "r1"))
    )
    assert repartition_counts(topics, {"a": 2, "b": 5, "c": 3}) == {"r1": 5}


@pytest.mark.parametrize("backwards", [False, True])
def test_counts_are_propagated_through_chains(backwards: bool) -> None:
    """In any order of the sub-topologies."""
    chain = [
        _reads(0, "a", to=("r1",)),
        _reads(1, "r1", to=("r2",)),
        _reads(2, "r2", "b", to=("r3",)),
        _reads(3, "r3"),
    ]
    topics = TopologyTopics(tuple(reversed(chain) if backwards else chain))
    assert repartition_counts(topics, {"a": 4, "b": 6}) == {"r1": 4, "r2": 4, "r3": 6}


def test_an_explicit_count_is_kept_and_propagated() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "r1", to=("r2",), r1=7), _reads(2, "r2"))
    )
    assert repartition_counts(topics, {"a": 4}) == {"r1": 7, "r2": 7}


def test_a_cycle_uses_the_known_counts() -> None:
    """Sub-topologies that feed each other are resolved without an endless loop."""
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
def test_an_undefined_count_is_an_error(groups: tuple[TopicGroup, ...]) -> None:
    with pytest.raises(TaskAssignmentError, match=r"\['r1'\] is not set"):
        repartition_counts(TopologyTopics(groups), {})


def test_a_repartition_topic_has_the_count_of_the_topic_that_it_is_joined_with() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "r1", "b", to=("r2",)), _reads(2, "r2")),
        (frozenset({"r1", "b"}),),
    )
    assert repartition_counts(topics, {"a": 8, "b": 3}) == {"r1": 3, "r2": 8}


def test_joined_repartition_topics_have_the_largest_of_their_counts() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "b", to=("r2",)), _reads(2, "r1", "r2")),
        (frozenset({"r1", "r2"}),),
    )
    assert repartition_counts(topics, {"a": 2, "b": 6}) == {"r1": 6, "r2": 6}


def test_joined_repartition_topics_have_the_explicit_count_of_one() -> None:
    topics = TopologyTopics(
        (_reads(0, "a", to=("r1",)), _reads(1, "b", to=("r2",)), _reads(2, "r1", "r2", r1=3)),
        (frozenset({"r1", "r2"}),),
    )
    assert repartition_counts(topics, {"a": 2, "b": 6}) == {"r1": 3, "r2": 3}


@pytest.mark.parametrize(
    ("group", "counts", "message"),
    [
        (
            _reads(0, "a", "b"),
            {"a": 12, "b": 8},
            "'a' has 12, 'b' has 8 partitions.*repartition(partitions=12)",
        ),
        (
            _reads(0, "a", "r1", r1=5),
            {"a": 4},
            "'a' has 4, repartition topic 'r1' 5 partitions.*Omit partitions=",
        ),
        (
            _reads(0, "r1", "r2", r1=5, r2=6),
            {},
            "'r1' 5, repartition topic 'r2' 6 partitions.*same number",
        ),
    ],
)
def test_topics_that_are_not_copartitioned_are_rejected(
    group: TopicGroup, counts: dict[str, int], message: str
) -> None:
    """The error contains the count of each topic and advice."""
    topics = TopologyTopics((group,), (frozenset(group.source_topics),))
    pattern = re.compile(message.replace("(", r"\(").replace(")", r"\)"))
    with pytest.raises(CopartitionError) as caught:
        repartition_counts(topics, counts)
    assert pattern.search(str(caught.value))


def test_external_topics_must_exist() -> None:
    topics = TopologyTopics((_reads(0, "b", "a", to=("r1",)), _reads(1, "r1", "c")))
    assert missing_source_topics(topics, {"a": 1}) == ["b", "c"]


def test_a_task_reads_its_partition_of_every_topic_that_has_it() -> None:
    """Without a join, topics of a sub-topology may have different counts (merge)."""
    tasks = tasks_of((_reads(1, "x"), _reads(0, "a", "b"), _reads(2)), {"a": 2, "b": 1, "x": 1})
    assert tasks == {
        TaskId(0, 0): {TopicPartition("a", 0), TopicPartition("b", 0)},
        TaskId(0, 1): {TopicPartition("a", 1)},
        TaskId(1, 0): {TopicPartition("x", 0)},
    }
    assert list(tasks) == sorted(tasks)


def test_a_topic_that_is_read_twice_or_missing_is_an_error() -> None:
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


def test_only_missing_topics_are_created() -> None:
    expected = {"r2": (3, {"x": "y"}), "r1": (2, {}), "c": (1, {})}
    assert topics_to_create(expected, {"r1": 2}) == [
        NewTopic("c", 1, {}),
        NewTopic("r2", 3, {"x": "y"}),
    ]


def test_an_internal_topic_with_another_count_is_rejected() -> None:
    with pytest.raises(TopologyError, match="expected 3, actual 2") as caught:
        topics_to_create({"r1": (3, {})}, {"r1": 2})
    assert caught.value.topic == "r1"


def test_patterns_match_whole_topic_names() -> None:
    topics = TopologyTopics(
        (
            TopicGroup(0, ("log-a",), source_patterns=(re.compile("log-.*"),)),
            TopicGroup(1, source_patterns=(re.compile("metric"),)),
        )
    )
    found = topics.with_matches(["log-b", "log-a", "metrics", "metric", "xlog-c"])
    assert [group.source_topics for group in found.groups] == [("log-a", "log-b"), ("metric",)]


def test_a_topic_that_matches_two_patterns_is_rejected() -> None:
    topics = TopologyTopics(
        (
            TopicGroup(0, source_patterns=(re.compile("a.*"),)),
            TopicGroup(1, source_patterns=(re.compile(".*b"),)),
        )
    )
    with pytest.raises(TopologyError, match="'ab' matches the patterns of two"):
        topics.with_matches(["ab"])
