"""The commit path with all real parts except the cluster: where data is after each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tasks.commit_bench import EPOCH, INPUTS, STORES, Bench, changelog

from millstream import Processor, ProcessorContext, Record, Stores
from millstream.errors import (
    IllegalStateError,
    RebalanceInProgressError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
)
from millstream.record import TopicPartition
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import STRING
from millstream.state.storage.overlay import UncommittedBudget
from millstream.testing.driver_topics import RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_offsets_are_committed_after_their_results_are_written(bench: Bench) -> None:
    """Detects offsets that are committed before caches, the producer or other tasks are flushed."""
    seen: list[list[bytes | None]] = []
    bench.group.look = lambda: seen.append([*bench.written(0), *bench.written(1), *unsent()])

    def unsent() -> list[bytes | None]:
        return [key for _, key, _ in bench.log.sent]

    one, other = bench.tasks
    bench.feed(one, "in", "a", "b")
    bench.feed(other, "other", "c")
    bench.commit()
    bench.feed(other, "in", "d")
    bench.commit()
    assert seen == [[b"ab"] * 4 + [b"c"] * 4, [b"ab"] * 4 + [b"cd"] * 4]


def test_offsets_are_those_of_the_next_records(bench: Bench) -> None:
    """For each partition of every task, with its metadata and leader epoch."""
    one, other = bench.tasks
    bench.feed(one, "in", "a", "b", "c")
    bench.feed(one, "other", "d")
    bench.feed(other, "in", "e")
    expected = {
        TopicPartition("in", 0): (3, 1_002),
        TopicPartition("other", 0): (1, 1_000),
        TopicPartition("in", 1): (1, 1_000),
    }
    assert bench.commit() == bench.group.committed
    assert {
        place: (each.offset, CommitMetadata.decode(each.metadata).partition_time)
        for place, each in bench.group.committed.items()
    } == expected
    assert {each.leader_epoch for each in bench.group.committed.values()} == {EPOCH}
    for place, each in bench.group.committed.items():
        assert CommitMetadata.decode(each.metadata).topic_ids == {f"id of {place.topic}"}
    bench.feed(one, "in", "f")
    bench.commit()
    assert bench.group.committed[TopicPartition("in", 0)].offset == 4
    assert one.committed == {TopicPartition("in", 0): 4, TopicPartition("other", 0): 1}
    assert other.committed == {TopicPartition("in", 1): 1}


def test_stores_are_written_with_the_offsets_of_their_changelogs(bench: Bench) -> None:
    """All stores of all tasks, at each commit. Detects state on disk that does not match the offset
    stored with it."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    # Each commit logs one change, however many the cache has merged.
    bench.feed(one, "in", "b", "c")
    bench.feed(other, "in", "d")
    bench.commit()
    bench.feed(one, "other", "e")
    bench.commit()
    assert bench.on_disk(0) == [("abce", 2)] * 2
    assert bench.on_disk(1) == [("d", 0)] * 2


@pytest.mark.parametrize("failure", [RebalanceInProgressError("soon"), TaskMigratedError("gone")])
def test_uncommitted_changes_are_not_on_disk(bench: Bench, failure: Exception) -> None:
    """If the group rejects the offsets, stores keep the state of the last commit and the task still
    needs a commit."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    bench.feed(one, "in", "b")
    bench.group.failure = failure
    with pytest.raises(type(failure)):
        bench.commit()
    assert one.commit_needed
    assert one.committed == {TopicPartition("in", 0): 1}
    assert bench.on_disk(0) == [("a", 0)] * 2
    assert bench.commits.total == 1


def test_rejected_commit_is_repeated_later(bench: Bench) -> None:
    """Nothing of the first attempt is lost or written twice."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.group.failure = RebalanceInProgressError("soon")
    with pytest.raises(RebalanceInProgressError):
        bench.commit()
    bench.group.failure = None
    bench.feed(one, "in", "b")
    assert bench.commit()[TopicPartition("in", 0)].offset == 2
    assert bench.written(0) == [b"ab"] * 4
    # The first attempt has logged "a".
    assert bench.on_disk(0) == [("ab", 1)] * 2


def test_task_without_changes_is_not_committed(bench: Bench) -> None:
    """Detects repeated commits of the same offsets, which load the cluster needlessly."""
    one, _ = bench.tasks
    assert bench.commit() == {}
    bench.feed(one, "in", "a")
    assert set(bench.commit()) == {TopicPartition("in", 0)}
    assert bench.commit() == {}
    assert bench.group.times == 1
    assert bench.commits.total == 1


def test_old_acknowledgements_do_not_move_stores_back(bench: Bench) -> None:
    """The thread may have written to a changelog before another thread owned the task."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit()
    for store in STORES:
        # Another thread has written to the changelog, and this task has restored its records.
        one.stores.restorers()[changelog(store, 0)].reached = 8
    one.commit_needed = True
    bench.commit()
    assert set(one.stores.changelog_offsets().values()) == {8}
    assert set(other.stores.changelog_offsets().values()) == {0}


def test_requested_commit_is_made_once(bench: Bench) -> None:
    """Detects a thread that commits after every batch from then on."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    assert not one.commit_requested
    one.processing.node_context.request_commit()
    assert one.commit_requested
    bench.commit()
    bench.feed(one, "in", "b")
    assert not one.commit_requested


def test_failed_batch_is_not_committed(bench: Bench) -> None:
    """Detects offsets that count as processed when their records are taken."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    with pytest.raises(StreamsError):
        bench.feed(one, "in", "b", "poison")
    assert one.offsets_to_commit()[TopicPartition("in", 0)].offset == 1


def test_discarded_work_drops_its_sent_records(bench: Bench) -> None:
    """The next owners send them again; the old records must not follow the owners' writes."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    one.prepare_commit()
    assert bench.log.sent
    bench.commits.discard_uncommitted()
    bench.log.flush(0)
    assert not bench.log.written


def test_stores_without_changelogs_are_written_with_each_commit(tmp_path: Path) -> None:
    """Without a changelog, only the disk holds their state."""
    bench = Bench(tmp_path, logged=False)
    bench.feed(bench.tasks[0], "in", "a")
    bench.commit()
    bench.feed(bench.tasks[0], "in", "b")
    assert bench.on_disk(0) == [("a", None)] * 2
    bench.close()


def test_tasks_continue_while_the_group_has_not_answered(bench: Bench) -> None:
    """Results are written before the commit is requested. Stores wait for the answer, and later
    work belongs to the next commit."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit_soon()
    assert bench.written(0) == [b"a"] * 4
    assert not one.commit_needed
    assert one.committed == {}
    assert bench.commits.has_pending_work
    bench.feed(one, "in", "c")
    bench.commits.finish_pending()
    assert bench.commits.total == 0
    bench.answer()
    assert bench.commits.total == 1
    assert not bench.commits.has_pending_work
    assert one.committed == {TopicPartition("in", 0): 1}
    assert (one.commit_needed, other.commit_needed) == (True, False)
    assert bench.commit()[TopicPartition("in", 0)].offset == 2
    assert bench.on_disk(0) == [("ac", 1)] * 2
    assert bench.on_disk(1) == [("b", 0)] * 2


def test_stores_on_disk_contain_only_acknowledged_commits(bench: Bench) -> None:
    """Detects state on disk for records that may be processed again, with results that may not have
    been sent: a deduplicating processor would never forward them."""
    one, _ = bench.tasks
    for values in (["a"], ["b"]):
        bench.feed(one, "in", *values)
        bench.commit_soon()
        bench.feed(one, "in", "x")
        one.prepare_commit()
        bench.answer()
    # Each time, a change was logged that is not committed yet.
    assert bench.on_disk(0) == [("axb", 2)] * 2


def test_entries_deleted_after_the_start_of_a_commit_are_still_on_disk(bench: Bench) -> None:
    """For example a suppressed record that is forwarded and deleted: its result may not have been
    sent, and there is no other copy."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    bench.feed(one, "in", "b")
    bench.commit_soon()
    bench.feed(one, "in", "forget")
    one.prepare_commit()
    assert one.stores.store("ids").get("k0") is None
    bench.answer()
    assert one.stores.store("ids").get("k0") is None
    assert bench.on_disk(0) == [("ab", 1)] * 2


@pytest.mark.parametrize("failure", [RebalanceInProgressError("soon"), TaskMigratedError("gone")])
def test_changes_of_a_commit_that_is_rejected_later_are_not_on_disk(
    bench: Bench, failure: Exception
) -> None:
    """Detects state that claims to include the changelog records of another member after the task
    was lost, and work that is never committed."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    bench.feed(one, "in", "b")
    bench.commit_soon()
    bench.group.failure = failure
    with pytest.raises(type(failure)):
        bench.answer()
    assert one.commit_needed
    assert not bench.commits.has_pending_work
    assert one.committed == {TopicPartition("in", 0): 1}
    assert bench.on_disk(0) == [("a", 0)] * 2


def test_commit_waits_for_the_previous_commit(bench: Bench) -> None:
    """Detects an older answer that arrives last and sets a task back."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit_soon()
    bench.feed(one, "in", "b")
    bench.commit_soon()
    assert bench.group.committed[TopicPartition("in", 0)].offset == 1
    assert one.committed == {TopicPartition("in", 0): 1}
    bench.answer()
    assert one.committed == {TopicPartition("in", 0): 2}
    assert bench.on_disk(0) == [("ab", 1)] * 2


def test_timeout_of_a_commit_bounds_the_wait_for_the_previous_commit(
    bench: Bench,
) -> None:
    """Detects a thread that is killed during shutdown before it has left the group."""
    one, _ = bench.tasks
    for within_ms in (1_000, None):
        bench.feed(one, "in", "a")
        bench.commit_soon()
        assert bench.group.answer is not None
        waiting = bench.group.answer
        bench.feed(one, "in", "b")
        bench.commits.commit(bench.tasks, within_ms)
        assert waiting.waited_ms == within_ms


def test_answer_to_a_commit_does_not_affect_a_task_closed_meanwhile(bench: Bench) -> None:
    """The task may have been reopened to restore the state that the commit covers."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit_soon()
    one.close(clean=False)
    one.revive()
    one.open_stores()
    bench.answer()
    assert set(one.stores.changelog_offsets().values()) == {None}
    assert bench.on_disk(0) == [(None, None)] * 2
    assert bench.on_disk(1) == [("b", 0)] * 2


def _deduplicated(*, logged: bool) -> Topology:
    builder = StreamsBuilder()
    store = Stores.key_value_builder(Stores.persistent_key_value("ids"), STRING, STRING)
    builder.add_state_store(store if logged else store.with_logging(False))
    read = builder.stream(list(INPUTS), key=STRING, value=STRING)
    read.process(_Once, stores=["ids"]).to("out", key=STRING, value=STRING)
    return builder.build()


class _Once(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.seen = context.get_state_store("ids")

    def process(self, record: Record[str, str]) -> None:
        if self.seen.get(record.value) is None:
            self.seen.put(record.value, "seen")
            self.context.forward(record)


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("commits", [0, 1])
def test_crash_discards_the_state_of_records_with_undelivered_results(
    tmp_path: Path, logged: bool, commits: int
) -> None:
    """However many writes are uncommitted: deduplication never forwards records that are on disk.

    Detects stores that write to disk in the middle of a batch to free memory.
    """
    bench = Bench(
        tmp_path, logged=logged, topology=_deduplicated, uncommitted=UncommittedBudget(100)
    )
    one, _ = bench.tasks
    ids = [f"id-{number:03}" for number in range(40)]
    bench.feed(one, "in", *ids[:20])
    for _ in range(commits):
        bench.commit()
    assert one.commit_requested != bool(commits)
    bench.feed(one, "in", *ids[20:])
    assert one.commit_requested
    one.close(clean=False)
    bench.log.purge()
    bench.tasks[0] = one = bench.start(0)
    bench.feed(one, "in", *ids[20 * commits :])
    bench.commit()
    out = [value for _, value in bench.log.written[TopicPartition("out", 0)]]
    assert out == [each.encode() for each in ids]
    bench.close()


def test_task_with_too_many_uncommitted_writes_takes_no_records(tmp_path: Path) -> None:
    """A rebalancing group accepts no commits, and memory must not grow meanwhile. A task without
    uncommitted writes continues, regardless of other tasks."""
    budget = UncommittedBudget(100)
    bench = Bench(tmp_path, topology=_deduplicated, uncommitted=budget)
    one, other = bench.tasks
    bench.feed(one, "in", *(f"id-{number:03}" for number in range(40)))
    for task, may_take in ((one, False), (other, True)):
        place = TopicPartition("in", task.task_id.partition)
        offset = 40 if task is one else 0
        task.add_records(place, RawColumns([b"k"], [b"v"], [2_000], [offset], None, EPOCH))
        assert task.is_processable(lambda place: True, 0) is may_take
    bench.commit()
    assert one.is_processable(lambda place: True, 0)
    bench.close()


def test_wrong_order_of_commit_steps_is_detected(bench: Bench) -> None:
    """Checks the bench itself: stores must not be written before the producer is flushed."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    one.prepare_commit()
    one.on_commit_started()
    with pytest.raises(IllegalStateError, match="delivered"):
        one.post_commit({}, {})


def test_discarding_work_cancels_its_commit(bench: Bench) -> None:
    """The result of the commit does not matter once the tasks are lost."""
    bench.feed(bench.tasks[0], "in", "a")
    bench.commit_soon()
    bench.commits.discard_uncommitted()
    assert not bench.commits.has_pending_work
    bench.answer()
    assert bench.group.times == 0


def break_store_commits(task: StreamTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every later commit of the task's stores fail."""

    def fail(*_: object) -> None:
        raise TaskCorruptedError("the disk failed", task_ids=[task.task_id])

    monkeypatch.setattr(task.stores, "commit", fail)


def test_failed_store_commit_does_not_prevent_those_of_other_tasks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets of the other tasks are committed; without new records there would be no other
    commit."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit_soon()
    break_store_commits(one, monkeypatch)
    with pytest.raises(TaskCorruptedError):
        bench.answer()
    assert other.committed == {TopicPartition("in", 1): 1}
    assert bench.on_disk(1) == [("b", 0)] * 2


def test_state_to_be_deleted_is_not_committed_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit would fail again and stop the thread, instead of rebuilding the task."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit_soon()
    break_store_commits(one, monkeypatch)
    bench.commits.await_delivery(bench.tasks, [one.task_id])
    assert bench.on_disk(1) == [("b", 0)] * 2


def test_request_for_a_rejected_commit_stays_pending(bench: Bench) -> None:
    """Detects a request that has to wait for the commit interval, for example 30 seconds."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    one.processing.node_context.request_commit()
    bench.commit_soon()
    assert not one.commit_requested
    bench.group.failure = RebalanceInProgressError("soon")
    with pytest.raises(RebalanceInProgressError):
        bench.answer()
    assert one.commit_requested
    bench.group.failure = None
    bench.commit()
    assert not one.commit_requested


def test_rebuilt_tasks_wait_for_the_pending_commit(bench: Bench) -> None:
    """Otherwise they would start at the older offsets. Also if the group rejects the commit."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit_soon()
    bench.commits.await_delivery(bench.tasks)
    assert one.committed == {TopicPartition("in", 0): 1}
    bench.feed(one, "in", "b")
    bench.commit_soon()
    bench.group.failure = RebalanceInProgressError("soon")
    bench.commits.await_delivery(bench.tasks)
    assert one.commit_needed
