"""Start offsets of partitions: committed offsets, and reset policies without valid ones."""

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
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TaskId, TopicPartition
from millstream.runtime.retry import RetrySchedule
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.runtime.task_management.start_offsets import (
    ResetPolicy,
    StartOffsets,
    TopicIncarnations,
)
from millstream.runtime.task_management.task_inputs import TaskInputs
from millstream.topology.physical.nodes import OffsetReset

HOUR = timedelta(hours=1)


def place(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


class FakeTopicIds:
    """The ids of topics, which change when a topic is recreated."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def topic_ids(self, topics: Iterable[str], timeout_ms: int) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


class FakeOffsets:
    """Topics with the offsets 40 to 100, whose last timestamp is that of offset 70, an hour ago."""

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
        return {
            p: 70 if time_ms <= 10_000_000 - 3_600_000 else None for p, time_ms in times_ms.items()
        }


POLICIES: dict[str, ResetPolicy] = {
    "default": ResetPolicy("earliest", explicit=False),
    "first": ResetPolicy("earliest", explicit=True),
    "last": ResetPolicy("latest", explicit=True),
    "never": ResetPolicy("none", explicit=True),
    "hour": ResetPolicy(HOUR, explicit=True),
    "minute": ResetPolicy(timedelta(minutes=1), explicit=True),
}


@pytest.fixture
def index() -> FakeOffsets:
    return FakeOffsets()


class Group:
    """The committed offsets of the group, which tests change."""

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
def ids() -> FakeTopicIds:
    return FakeTopicIds()


@pytest.fixture
def starts(index: FakeOffsets, group: Group, ids: FakeTopicIds) -> StartOffsets:
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
def test_start_offsets_of_a_new_group(starts: StartOffsets, topic: str, expected: int) -> None:
    """Committed offsets take precedence over policies; without them, the default is sufficient."""
    partition, other_partition = place(topic), TopicPartition(topic, 1)
    committed = {partition: None, other_partition: CommitOffset(55)}
    assert starts.starts([partition, other_partition], committed, {}) == {
        partition: expected,
        other_partition: 55,
    }


def test_policy_none_raises_without_committed_offsets(starts: StartOffsets) -> None:
    with pytest.raises(StreamsError, match="no committed offset") as raised:
        starts.starts([place("never")], {}, {})
    assert (raised.value.topic, raised.value.partition) == ("never", 0)


def test_records_that_arrive_during_restoration_are_not_skipped(starts: StartOffsets) -> None:
    starts.note_end_offsets([place("last"), place("first")])
    assert starts.starts([place("last"), place("first")], {}, {}) == {
        place("last"): 100,
        place("first"): OFFSET_BEGINNING,
    }


def test_explicit_policy_resets_offsets_out_of_range(
    starts: StartOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """The end offsets at the start of the task do not count later."""
    starts.note_end_offsets([place("last")])
    found = starts.out_of_range({place(topic): 17 for topic in ("first", "last", "hour")})
    assert found == {
        place("first"): OFFSET_BEGINNING,
        place("last"): OFFSET_END,
        place("hour"): 70,
    }
    assert "offset 17 of first-0" in caplog.text
    assert "23 records were deleted" in caplog.text


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (17, "whose first offset is 40: 23 records were deleted"),
        (120, "lies 20 beyond the end of the topic, which is 100"),
        (60, "now has a different record"),
    ],
)
@pytest.mark.parametrize("topic", ["default", "never"])
def test_default_policy_does_not_skip_lost_records(
    starts: StartOffsets, topic: str, offset: int, message: str
) -> None:
    gone = {place("first"): offset, place(topic): offset}
    with pytest.raises(OffsetOutOfRangeError, match=message) as raised:
        starts.out_of_range(gone)
    assert raised.value.offsets == {place(topic): offset}
    assert "set offset_reset=" in raised.value.message


def test_records_processed_by_another_member_are_not_lost(
    starts: StartOffsets, group: Group
) -> None:
    """The other member has also deleted them from repartition topics: this thread was away for
    long."""
    partition = place("default")
    group.offsets = {partition: CommitOffset(18)}
    with pytest.raises(TaskMigratedError):
        starts.out_of_range({partition: 17})
    group.offsets = {partition: CommitOffset(17)}
    with pytest.raises(OffsetOutOfRangeError):
        starts.out_of_range({partition: 17})


def committed_of(topic_id: str, offset: int = 50) -> CommitOffset:
    """Return the committed offset of a topic that had this id."""
    return CommitOffset(offset, CommitMetadata(7, {}, frozenset({topic_id})).encode())


def test_offset_of_a_recreated_topic_is_not_used(
    starts: StartOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if the new topic has that offset: the records before it would be skipped."""
    partition, other_partition = place("first"), place("default")
    ids = {"first": "new", "default": "new"}
    outdated, current, unknown = committed_of("old"), committed_of("new"), CommitOffset(50)
    assert starts.starts([partition], {partition: outdated}, ids) == {partition: OFFSET_BEGINNING}
    assert "belongs to a deleted topic" in caplog.text
    for offset in (current, unknown):
        assert starts.starts([other_partition], {other_partition: offset}, ids) == {
            other_partition: 50
        }
    assert starts.starts([other_partition], {other_partition: outdated}, {}) == {
        other_partition: 50
    }
    with pytest.raises(OffsetOutOfRangeError, match="belongs to a deleted topic") as raised:
        starts.starts(
            [partition, other_partition], {partition: outdated, other_partition: outdated}, ids
        )
    assert raised.value.offsets == {other_partition: 50}


def test_position_in_a_deleted_topic_is_an_error_without_committed_offsets(
    starts: StartOffsets,
) -> None:
    """Brokers delete committed offsets with their topic, before or after the thread looks."""
    partition, other_partition = place("first"), place("default")
    starts.starts(
        [partition, other_partition],
        {other_partition: committed_of("old")},
        {"first": "old", "default": "old"},
    )
    ids = {"first": "new", "default": "new"}
    assert starts.starts([partition], {}, ids) == {partition: OFFSET_BEGINNING}
    assert starts.starts([other_partition], {}, {}) == {other_partition: OFFSET_BEGINNING}
    with pytest.raises(OffsetOutOfRangeError, match="belongs to a deleted topic") as raised:
        starts.starts([partition, other_partition], {}, ids)
    assert raised.value.offsets == {other_partition: 50}


@pytest.mark.parametrize("has_offset", [True, False], ids=["with offset", "without offset"])
def test_out_of_range_position_of_a_deleted_topic_is_recognized(
    starts: StartOffsets, group: Group, ids: FakeTopicIds, has_offset: bool
) -> None:
    """The consumer reports it before the ids are compared, with or without a committed offset."""
    partition = place("default")
    starts.starts([partition], {partition: committed_of("old")}, {"default": "old"})
    group.offsets = {partition: committed_of("old")} if has_offset else {}
    ids.ids = {"default": "new"}
    with pytest.raises(OffsetOutOfRangeError, match="belongs to a deleted topic"):
        starts.out_of_range({partition: 117})
    ids.ids = {"default": "old"}
    with pytest.raises(OffsetOutOfRangeError, match="lies 17 beyond the end of the topic"):
        starts.out_of_range({partition: 117})


def test_tasks_of_recreated_topics_are_outdated() -> None:
    """Within the interval, and only if the previous id is known."""
    index, clock = FakeTopicIds(), ManualClock(0)
    incarnations = TopicIncarnations(index, clock, 1_000)
    index.ids = {"a": "1", "b": "1"}
    task_a, task_b, unknown = (
        Mock(topic_ids=ids) for ids in (incarnations.ids(["a"]), incarnations.ids(["b"]), {})
    )
    index.ids = {"a": "2", "b": "1"}
    assert incarnations.outdated([task_a, task_b, unknown]) == []
    clock.advance(1_000)
    assert incarnations.outdated([task_a, task_b, unknown]) == [task_a]
    index.ids = {"b": "1"}
    clock.advance(1_000)
    assert incarnations.outdated([task_a, task_b]) == []


def test_reset_is_retried_while_brokers_are_unavailable(
    starts: StartOffsets, index: FakeOffsets
) -> None:
    """The consumer reports an invalid position only once: it must not be lost."""
    consumer, task, clock = Mock(), Mock(), ManualClock(0)
    consumer.assign.side_effect = [None, BrokerUnavailableError("no answer"), None]
    task.partitions, task.task_id = frozenset({place("first")}), TaskId(0, 0)
    retry = RetrySchedule("resetting", clock, 10_000)
    inputs = TaskInputs(consumer, starts, retry, max_buffered=10)
    inputs.fetch([task], {place("first"): 17}, {})
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


def test_failed_reset_loses_no_polled_records(starts: StartOffsets, index: FakeOffsets) -> None:
    """The consumer returns them once, and the loop continues if brokers are unavailable again."""
    consumer, task, clock = Mock(), Mock(), ManualClock(0)
    gone, read = place("default"), place("last")
    task.partitions, task.task_id = frozenset({gone, read}), TaskId(0, 0)
    task.buffered_in.return_value = 0
    inputs = TaskInputs(
        consumer, starts, RetrySchedule("resetting", clock, 10_000), max_buffered=10
    )
    inputs.fetch([task], {gone: 17, read: 0}, {})
    index.down = True
    inputs.reset_position({gone: 17})
    clock.advance(1_000)
    index.down = False
    polled = columns_of(3)
    with pytest.raises(OffsetOutOfRangeError):
        inputs.add_records({read: polled})
    task.add_records.assert_called_once_with(read, polled)


def columns_of(count: int) -> RecordColumns:
    return RecordColumns([None] * count, [b"v"] * count, [0] * count, range(count), None, None)


def test_partition_that_was_released_while_paused_is_paused_again(starts: StartOffsets) -> None:
    """The consumer drops a pause with the assignment. If the pause were still tracked here, the
    partition would never be paused again, and all of its records would be fetched into memory."""
    consumer, task, clock = Mock(), Mock(), ManualClock(0)
    partition = place("default")
    task.partitions, task.task_id = frozenset({partition}), TaskId(0, 0)
    task.buffered_in.return_value = 11
    inputs = TaskInputs(
        consumer, starts, RetrySchedule("resetting", clock, 10_000), max_buffered=10
    )
    for times in (1, 2):
        inputs.fetch([task], {partition: 0}, {})
        assert inputs.remaining_capacity == 0
        inputs.add_records({partition: columns_of(11)})
        assert consumer.pause.call_count == times
        inputs.stop(task)
    assert inputs.processable(0) == []


def test_reset_of_released_partitions_is_not_retried(
    starts: StartOffsets, index: FakeOffsets
) -> None:
    consumer, task, clock = Mock(), Mock(), ManualClock(0)
    task.partitions, task.task_id = frozenset({place("default")}), TaskId(0, 0)
    inputs = TaskInputs(
        consumer, starts, RetrySchedule("resetting", clock, 10_000), max_buffered=10
    )
    inputs.fetch([task], {place("default"): 17}, {})
    index.down = True
    inputs.reset_position({place("default"): 17})
    index.down = False
    inputs.stop(task)
    clock.advance(1_000)
    inputs.add_records({})


def test_policies_cover_all_options_of_a_source() -> None:
    """A new kind of policy must be tested here as well."""
    kinds: set[OffsetReset] = {"earliest", "latest", "none", HOUR}
    assert kinds <= {policy.start for policy in POLICIES.values()}
