"""From which offset a partition is read: the group's, or what was chosen where that is no use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    BrokerUnavailableError,
    OffsetOutOfRangeError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.data.consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.data.record_columns import RecordColumns
from millstream.kafka.member.events import CommitOffset
from millstream.record import TaskId, TopicPartition
from millstream.runtime.ownership.inputs import Inputs
from millstream.runtime.ownership.start_offsets import ResetPolicy, StartOffsets
from millstream.runtime.ownership.topic_incarnations import TopicIncarnations
from millstream.runtime.retry import Retry
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.topology.physical.nodes import OffsetReset

HOUR = timedelta(hours=1)


def place(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


class Ids:
    """The topics that are read, which are others each time that one is created anew."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def topic_ids(self, topics: Iterable[str], timeout_ms: int) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


class Index:
    """Topics that have the offsets 40 to 100, one an hour ago at 70; those that end at once had no
    record since."""

    down = False

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        if self.down:
            raise BrokerUnavailableError("no answer")
        return dict.fromkeys(partitions, 40)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, int | None]:
        return {p: 70 if at <= 10_000_000 - 3_600_000 else None for p, at in times_ms.items()}


POLICIES: dict[str, ResetPolicy] = {
    "default": ResetPolicy("earliest", chosen=False),
    "first": ResetPolicy("earliest", chosen=True),
    "last": ResetPolicy("latest", chosen=True),
    "never": ResetPolicy("none", chosen=True),
    "hour": ResetPolicy(HOUR, chosen=True),
    "minute": ResetPolicy(timedelta(minutes=1), chosen=True),
}


@pytest.fixture
def index() -> Index:
    return Index()


class Group:
    """What the group has committed, which can be changed."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, CommitOffset | None] = {}

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, CommitOffset | None]:
        return {place: self.offsets.get(place) for place in partitions}


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def ids() -> Ids:
    return Ids()


@pytest.fixture
def starts(index: Index, group: Group, ids: Ids) -> StartOffsets:
    clock = ManualClock(10_000_000)
    incarnations = TopicIncarnations(ids, clock, 1_000)
    return StartOffsets(group, index, POLICIES.__getitem__, incarnations, clock)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("default", OFFSET_BEGINNING),
        ("first", OFFSET_BEGINNING),
        ("last", OFFSET_END),
        ("hour", 70),
        ("minute", OFFSET_END),
    ],
)
def test_where_a_new_group_begins(starts: StartOffsets, topic: str, expected: int) -> None:
    """A committed offset counts more than any policy; a default is good enough without one."""
    here, there = place(topic), TopicPartition(topic, 1)
    committed = {here: None, there: CommitOffset(55)}
    assert starts.starts([here, there], committed, {}) == {here: expected, there: 55}


def test_a_group_that_is_new_has_nothing_to_go_by_under_none(starts: StartOffsets) -> None:
    with pytest.raises(StreamsError, match="no committed offset") as raised:
        starts.starts([place("never")], {}, {})
    assert (raised.value.topic, raised.value.partition) == ("never", 0)


def test_what_comes_while_a_task_is_restored_is_not_skipped(starts: StartOffsets) -> None:
    starts.expect([place("last"), place("first")])
    assert starts.starts([place("last"), place("first")], {}, {}) == {
        place("last"): 100,
        place("first"): OFFSET_BEGINNING,
    }


def test_what_was_chosen_answers_offsets_that_are_gone(
    starts: StartOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """Where partitions ended when their task began is no answer later."""
    starts.expect([place("last")])
    found = starts.out_of_range({place(topic): 17 for topic in ("first", "last", "hour")})
    assert found == {
        place("first"): OFFSET_BEGINNING,
        place("last"): OFFSET_END,
        place("hour"): 70,
    }
    assert "offset 17 of first-0" in caplog.text
    assert "23 records were deleted" in caplog.text


@pytest.mark.parametrize(
    ("offset", "told"),
    [
        (17, "whose first offset is 40: 23 records were deleted"),
        (120, "lies 20 beyond the end of the topic, which is 100"),
        (60, "is not the record that it was"),
    ],
)
@pytest.mark.parametrize("topic", ["default", "never"])
def test_a_default_is_no_answer_to_lost_records(
    starts: StartOffsets, topic: str, offset: int, told: str
) -> None:
    gone = {place("first"): offset, place(topic): offset}
    with pytest.raises(OffsetOutOfRangeError, match=told) as raised:
        starts.out_of_range(gone)
    assert raised.value.offsets == {place(topic): offset}
    assert "choose offset_reset=" in raised.value.message


def test_what_another_member_has_processed_is_not_lost(starts: StartOffsets, group: Group) -> None:
    """It has also deleted it, if it is a repartition topic: this thread has been away for long."""
    here = place("default")
    group.offsets = {here: CommitOffset(18)}
    with pytest.raises(TaskMigratedError):
        starts.out_of_range({here: 17})
    group.offsets = {here: CommitOffset(17)}
    with pytest.raises(OffsetOutOfRangeError):
        starts.out_of_range({here: 17})


def committed_of(topic_id: str, offset: int = 50) -> CommitOffset:
    """An offset of a topic that had this id."""
    return CommitOffset(offset, CommitMetadata(7, {}, frozenset({topic_id})).encode())


def test_an_offset_of_a_topic_that_was_created_anew_is_none(
    starts: StartOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """Even where the new one has that offset: what it has below it would be skipped."""
    here, there = place("first"), place("default")
    ids = {"first": "new", "default": "new"}
    before, now, unknown = committed_of("old"), committed_of("new"), CommitOffset(50)
    assert starts.starts([here], {here: before}, ids) == {here: OFFSET_BEGINNING}
    assert "created under its name" in caplog.text
    for offset in (now, unknown):
        assert starts.starts([there], {there: offset}, ids) == {there: 50}
    assert starts.starts([there], {there: before}, {}) == {there: 50}
    with pytest.raises(OffsetOutOfRangeError, match="is of a topic that was deleted") as raised:
        starts.starts([here, there], {here: before, there: before}, ids)
    assert raised.value.offsets == {there: 50}


def test_what_was_read_of_a_former_topic_is_told_although_the_group_has_forgotten(
    starts: StartOffsets,
) -> None:
    """Brokers delete a topic's committed offsets with it, before or after the thread looks."""
    here, there = place("first"), place("default")
    starts.starts([here, there], {there: committed_of("old")}, {"first": "old", "default": "old"})
    ids = {"first": "new", "default": "new"}
    assert starts.starts([here], {}, ids) == {here: OFFSET_BEGINNING}
    assert starts.starts([there], {}, {}) == {there: OFFSET_BEGINNING}
    with pytest.raises(OffsetOutOfRangeError, match="is of a topic that was deleted") as raised:
        starts.starts([here, there], {}, ids)
    assert raised.value.offsets == {there: 50}


@pytest.mark.parametrize("remembers", [True, False], ids=["remembered", "forgotten"])
def test_the_broker_refuses_an_offset_of_a_former_topic_first(
    starts: StartOffsets, group: Group, ids: Ids, remembers: bool
) -> None:
    """The consumer is told before the ids are looked at, with or without the group's offset."""
    here = place("default")
    starts.starts([here], {here: committed_of("old")}, {"default": "old"})
    group.offsets = {here: committed_of("old")} if remembers else {}
    ids.ids = {"default": "new"}
    with pytest.raises(OffsetOutOfRangeError, match="is of a topic that was deleted"):
        starts.out_of_range({here: 117})
    ids.ids = {"default": "old"}
    with pytest.raises(OffsetOutOfRangeError, match="lies 17 beyond the end of the topic"):
        starts.out_of_range({here: 117})


def test_tasks_learn_that_their_topic_is_another_one() -> None:
    """Within the interval, and not those of which nothing is known."""
    index, clock = Ids(), ManualClock(0)
    incarnations = TopicIncarnations(index, clock, 1_000)
    index.ids = {"a": "1", "b": "1"}
    of_a, of_b, unknown = (
        Mock(topic_ids=ids) for ids in (incarnations.ids(["a"]), incarnations.ids(["b"]), {})
    )
    index.ids = {"a": "2", "b": "1"}
    assert incarnations.outdated([of_a, of_b, unknown]) == []
    clock.advance(1_000)
    assert incarnations.outdated([of_a, of_b, unknown]) == [of_a]
    index.ids = {"b": "1"}
    clock.advance(1_000)
    assert incarnations.outdated([of_a, of_b]) == []


def test_brokers_that_are_away_are_asked_again(starts: StartOffsets, index: Index) -> None:
    """What the consumer has told of once it never tells again: it must not be forgotten."""
    consumer, work, clock = Mock(), Mock(), ManualClock(0)
    consumer.assign.side_effect = [None, BrokerUnavailableError("no answer"), None]
    work.partitions, work.task_id = frozenset({place("first")}), TaskId(0, 0)
    retry = Retry("resetting", clock, 10_000)
    inputs = Inputs(consumer, starts, retry, max_buffered=10)
    inputs.fetch([work], {place("first"): 17}, {})
    index.down = True
    inputs.reset_position({place("first"): 17, place("last"): 5})
    consumer.unassign.assert_not_called()
    index.down = False
    for _ in range(2):
        inputs.add_records({})
        clock.advance(1_000)
        inputs.add_records({})
    assert [call.args[0] for call in consumer.assign.call_args_list[1:]] == [
        {place("first"): OFFSET_BEGINNING}
    ] * 2


def test_a_reset_that_fails_loses_no_polled_records(starts: StartOffsets, index: Index) -> None:
    """The consumer returns them once, and the loop goes on when brokers are away again."""
    consumer, work, clock = Mock(), Mock(), ManualClock(0)
    gone, read = place("default"), place("last")
    work.partitions, work.task_id = frozenset({gone, read}), TaskId(0, 0)
    work.waiting_in.return_value = 0
    inputs = Inputs(consumer, starts, Retry("resetting", clock, 10_000), max_buffered=10)
    inputs.fetch([work], {gone: 17, read: 0}, {})
    index.down = True
    inputs.reset_position({gone: 17})
    clock.advance(1_000)
    index.down = False
    polled = columns_of(3)
    with pytest.raises(OffsetOutOfRangeError):
        inputs.add_records({read: polled})
    work.add_records.assert_called_once_with(read, polled)


def columns_of(count: int) -> RecordColumns:
    return RecordColumns([None] * count, [b"v"] * count, [0] * count, range(count), None, None)


def test_a_partition_given_up_while_paused_is_paused_again(starts: StartOffsets) -> None:
    """The consumer forgets a pause with the assignment: with it remembered here, the partition
    would never be paused again, and all that it has would be fetched into memory."""
    consumer, work, clock = Mock(), Mock(), ManualClock(0)
    here = place("default")
    work.partitions, work.task_id = frozenset({here}), TaskId(0, 0)
    work.waiting_in.return_value = 11
    inputs = Inputs(consumer, starts, Retry("resetting", clock, 10_000), max_buffered=10)
    for times in (1, 2):
        inputs.fetch([work], {here: 0}, {})
        assert inputs.room == 0
        inputs.add_records({here: columns_of(11)})
        assert consumer.pause.call_count == times
        inputs.stop(work)
    assert inputs.processable(0) == []


def test_partitions_that_were_given_up_are_not_asked_for_again(
    starts: StartOffsets, index: Index
) -> None:
    consumer, work, clock = Mock(), Mock(), ManualClock(0)
    work.partitions, work.task_id = frozenset({place("default")}), TaskId(0, 0)
    inputs = Inputs(consumer, starts, Retry("resetting", clock, 10_000), max_buffered=10)
    inputs.fetch([work], {place("default"): 17}, {})
    index.down = True
    inputs.reset_position({place("default"): 17})
    index.down = False
    inputs.stop(work)
    clock.advance(1_000)
    inputs.add_records({})


def test_policies_cover_what_a_source_may_ask_for() -> None:
    """So that a new kind of policy is tried here as well."""
    kinds: set[OffsetReset] = {"earliest", "latest", "none", HOUR}
    assert kinds <= {policy.start for policy in POLICIES.values()}
