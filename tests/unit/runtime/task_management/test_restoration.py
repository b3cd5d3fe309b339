"""Restoration only reads missing records; problems of one task do not affect others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, TaskCorruptedError
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task_management.restoration import StateRestorer
from millstream.runtime.thread_control import RestoreEvent
from millstream.state.changelogs.restore import StoreRestorer

A, B = TopicPartition("app-a-changelog", 0), TopicPartition("app-b-changelog", 1)
TASK_A, TASK_B = TaskId(0, 0), TaskId(0, 1)


class Log:
    """A cluster of changelogs, and a consumer of them."""

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        self.ends = dict(ends)
        self.positions: dict[TopicPartition, int] = {}
        self.unavailable = False
        self.paused: set[TopicPartition] = set()

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        if self.unavailable:
            raise BrokerUnavailableError("no broker answers")
        return {place: self.ends[place] for place in partitions}

    def assign(self, offsets: Mapping[TopicPartition, int], timeout_ms: int = 0) -> None:
        assert not self.positions.keys() & offsets.keys()
        self.positions |= {place: max(offset, 0) for place, offset in offsets.items()}

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self.resume(partitions)
        for place in partitions:
            self.positions.pop(place, None)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def position(self, place: TopicPartition) -> int | None:
        return self.positions[place]

    def poll_columns(self, limit: int, timeout_ms: int) -> dict[TopicPartition, RecordColumns]:
        """Return one record of each partition that is not read to its end."""
        records = {}
        for place, offset in self.positions.items():
            if offset < self.ends[place] and place not in self.paused:
                key = f"key{offset}".encode()
                records[place] = RecordColumns([key], [b"v"], [0], [offset], None, None)
                self.positions[place] = offset + 1
        return records


class Store(StoreRestorer):
    """Keeps the offsets of the changelog records that it applied."""

    def __init__(self, store_name: str, start: int | None) -> None:
        reached = None if start is None else start - 1
        self.expects: list[bool] = []
        super().__init__(store_name, A, lambda *columns: None, self.expects.append, reached)
        self.applied: list[int] = []

    def restore_batch(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        offsets: Sequence[int],
    ) -> int:
        self.applied += offsets
        return super().restore_batch(keys, values, timestamps, offsets)


def restoration(log: Log, events: list[RestoreEvent], clock: ManualClock) -> StateRestorer:
    return StateRestorer(log, log, clock, 10_000, events.append)  # type: ignore[arg-type]


def test_store_is_prepared_for_many_records_until_they_are_restored() -> None:
    """Not for a few records, and not for a standby, since its restoration never ends."""
    log, events = Log({A: 400_000, B: 399_990}), list[RestoreEvent]()
    many, few, standby = Store("a", None), Store("b", 399_980), Store("b", None)
    restoring = restoration(log, events, ManualClock())
    log.ends[A] = 300_000
    many.begin(0, 300_000)
    assert many.expects == [True]
    restoring.add(TASK_A, {A: many}, standby=True)
    assert many.expects == [True, False]
    restoring.remove(TASK_A)
    restoring.add(TASK_B, {B: few})
    while restoring.has_unfinished(TASK_B):
        restoring.step(0)
    assert len(few.applied) == 10
    restoring.add(TASK_A, {A: standby}, standby=True)
    restoring.step(0)
    restoring.remove(TASK_A)
    assert few.expects == standby.expects == []
    last = Store("a", 299_998)
    last.begin(0, 300_000)
    restoring.add(TASK_A, {A: last})
    while restoring.has_unfinished(TASK_A):
        restoring.step(0)
    assert last.expects == [True, False]


def test_restoration_reads_from_the_position_of_each_store_to_the_end() -> None:
    log, events = Log({A: 5, B: 3}), list[RestoreEvent]()
    behind, new = Store("a", 2), Store("b", None)
    restoring = restoration(log, events, ManualClock())
    restoring.add(TASK_A, {A: behind})
    restoring.add(TASK_B, {B: new})
    while restoring.has_unfinished(TASK_A) or restoring.has_unfinished(TASK_B):
        restoring.step(0)
    assert behind.applied == [2, 3, 4]
    assert new.applied == [0, 1, 2]
    assert [(e.step.value, e.store, e.offset) for e in events if e.step.value == "start"] == [
        ("start", "a", 2),
        ("start", "b", 0),
    ]
    assert {(e.store, e.records) for e in events if e.step.value == "end"} == {("a", 3), ("b", 3)}
    assert not log.positions


def test_restoration_uses_its_time_while_there_are_records() -> None:
    """Each poll takes 10 ms: as many polls as fit into the time, at least one, and none beyond the
    end. Standbys get one poll."""
    log, clock = Log({A: 10, B: 10}), ManualClock()
    store, standby = Store("a", None), Store("b", None)
    restoring = restoration(log, [], clock)
    poll, polls = log.poll_columns, []

    def slow_poll(limit: int, timeout_ms: int) -> dict[TopicPartition, RecordColumns]:
        polls.append(timeout_ms)
        clock.advance(10)
        return poll(limit, timeout_ms)

    log.poll_columns = slow_poll  # type: ignore[method-assign]
    restoring.add(TASK_A, {A: store})
    restoring.step(7)
    assert (len(store.applied), polls) == (1, [7])
    restoring.step(7, 40)
    assert (len(store.applied), polls) == (5, [7, 7, 0, 0, 0])
    restoring.step(0, 1_000)
    assert (len(store.applied), len(polls)) == (10, 10)
    restoring.add(TASK_B, {B: standby}, standby=True)
    restoring.step(0, 1_000)
    assert len(standby.applied) == 1


def test_up_to_date_store_is_finished_at_once() -> None:
    log, events = Log({A: 5, B: 0}), list[RestoreEvent]()
    restoring = restoration(log, events, ManualClock())
    restoring.add(TASK_A, {A: Store("a", 5), B: Store("b", None)})
    restoring.step(0)
    assert not restoring.has_unfinished(TASK_A)
    assert not restoring.is_reading
    assert [e.step.value for e in events] == ["start", "end"] * 2


def test_a_corrupted_store_does_not_stop_another_task() -> None:
    log, events = Log({A: 5, B: 3}), list[RestoreEvent]()
    healthy = Store("b", 1)
    restoring = restoration(log, events, ManualClock())
    restoring.add(TASK_A, {A: Store("a", 9)})
    restoring.add(TASK_B, {B: healthy})
    with pytest.raises(TaskCorruptedError, match="is offset 9 of") as raised:
        restoring.step(0)
    assert raised.value.task_ids == {TASK_A}
    restoring.remove(TASK_A)
    while restoring.has_unfinished(TASK_B):
        restoring.step(0)
    assert healthy.applied == [1, 2]


def test_corrupted_store_does_not_lose_records_of_others() -> None:
    """A poll has records of several stores, and the consumer returns them once: all are applied
    before the tasks of the corrupted stores are rebuilt."""

    class Broken(Store):
        def restore_batch(self, *columns: Sequence[object]) -> int:
            raise TaskCorruptedError("bad block", task_ids=[self.task_id])

        def __init__(self, task_id: TaskId) -> None:
            super().__init__("broken", None)
            self.task_id = task_id

    other = TopicPartition("app-c-changelog", 2)
    task_c = TaskId(0, 2)
    log, clock = Log({A: 1, B: 1, other: 1}), ManualClock(0)
    restored = Store("b", None)
    restoring = restoration(log, [], clock)
    restoring.add(TASK_A, {A: Broken(TASK_A)})
    restoring.add(TASK_B, {B: restored})
    restoring.add(task_c, {other: Broken(task_c)})
    with pytest.raises(TaskCorruptedError, match="bad block") as caught:
        restoring.step(0)
    assert caught.value.task_ids == {TASK_A, task_c}
    assert restored.applied == [0]


def test_unavailable_cluster_is_retried_until_the_timeout() -> None:
    log, clock = Log({A: 1}), ManualClock()
    store = Store("a", None)
    restoring = restoration(log, [], clock)
    restoring.add(TASK_A, {A: store})
    log.unavailable = True
    restoring.step(0)
    assert restoring.has_unfinished(TASK_A)
    log.unavailable = False
    clock.advance(100)
    restoring.step(0)
    assert store.applied == [0]
    log.unavailable = True
    restoring.add(TASK_B, {B: store})
    for _ in range(4):
        restoring.step(0)
        clock.advance(2_000)
    clock.advance(10_000)
    with pytest.raises(BrokerUnavailableError):
        restoring.step(0)


def test_standby_follows_its_changelog_without_end() -> None:
    log, events = Log({A: 2}), list[RestoreEvent]()
    store = Store("a", None)
    restoring = restoration(log, events, ManualClock())
    restoring.add(TASK_A, {A: store}, standby=True)
    for _ in range(4):
        restoring.step(0)
    assert store.applied == [0, 1]
    assert not restoring.is_reading
    assert restoring.has_unfinished(TASK_A)
    log.ends[A] = 3
    restoring.step(0)
    assert store.applied == [0, 1, 2]
    restoring.remove(TASK_A)
    assert not log.positions
    kinds = [(event.step.value, event.offset, event.end_offset, event.records) for event in events]
    assert kinds == [
        ("standby start", 0, 2, 0),
        ("standby batch", 0, 2, 1),
        ("standby batch", 1, 2, 1),
        ("standby batch", 2, 3, 1),
        ("standby migrated", 2, 3, 3),
    ]


def test_standbys_wait_while_an_active_task_restores() -> None:
    log, events = Log({A: 5, B: 2}), list[RestoreEvent]()
    standby, active = Store("a", None), Store("b", None)
    restoring = restoration(log, events, ManualClock())
    restoring.add(TASK_A, {A: standby}, standby=True)
    restoring.step(0)
    restoring.add(TASK_B, {B: active})
    restoring.step(0)
    restoring.step(0)
    assert (standby.applied, active.applied) == ([0], [0, 1])
    assert not restoring.has_unfinished(TASK_B)
    restoring.step(0)
    assert standby.applied == [0, 1]


def test_standby_that_is_added_again_waits_as_well() -> None:
    log, events = Log({A: 5, B: 5}), list[RestoreEvent]()
    standby, active = Store("a", None), Store("b", None)
    restoring = restoration(log, events, ManualClock())
    restoring.add(TASK_A, {A: standby}, standby=True)
    restoring.add(TASK_B, {B: active})
    restoring.step(0)
    restoring.remove(TASK_A)
    restoring.add(TASK_A, {A: standby}, standby=True)
    restoring.step(0)
    assert (standby.applied, active.applied) == ([], [0, 1])


def test_promoted_standby_only_reads_the_tail() -> None:
    log, events = Log({A: 3}), list[RestoreEvent]()
    store = Store("a", None)
    restoring = restoration(log, events, ManualClock())
    restoring.add(TASK_A, {A: store}, standby=True)
    for _ in range(3):
        restoring.step(0)
    log.ends[A] = 5
    restoring.add(TASK_A, {A: store})
    for _ in range(3):
        restoring.step(0)
    assert store.applied == [0, 1, 2, 3, 4]
    assert not restoring.has_unfinished(TASK_A)
    last = events[-1]
    assert (last.step.value, last.end_offset, last.records) == ("end", 5, 2)


@pytest.mark.parametrize("compacted", [[], [2, 3, 4]])
def test_topic_of_a_table_is_restored_up_to_the_position_of_the_task(
    compacted: list[int],
) -> None:
    """The task processes the records behind it, even if they are in the same fetch."""

    class Bulk(Log):
        def poll_columns(self, limit: int, timeout_ms: int) -> dict[TopicPartition, RecordColumns]:
            start, end = self.positions[A], self.ends[A]
            self.positions[A] = end
            offsets = [offset for offset in range(start, end) if offset not in compacted]
            keys: list[bytes | None] = [b"k"] * len(offsets)
            return {A: RecordColumns(keys, keys, [0] * len(offsets), offsets, None, None)}

    log, store, events = Bulk({A: 9}), Store("a", 2), list[RestoreEvent]()
    restoring = StateRestorer(
        log,  # type: ignore[arg-type]
        log,
        ManualClock(),
        10_000,
        events.append,
        lambda places: {A: 5},
    )
    restoring.add(TASK_A, {A: store})
    while restoring.has_unfinished(TASK_A):
        restoring.step(0)
    assert store.applied == ([] if compacted else [2, 3, 4])
    assert [(event.step.value, event.end_offset) for event in events][-1] == ("end", 5)
