"""A commit with all its real parts but the cluster: what is where at each of its steps."""

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
from millstream.state.storage.uncommitted_budget import UncommittedBudget
from millstream.testing.driver_topics import RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_offsets_are_committed_when_all_that_they_stand_for_is_written(bench: Bench) -> None:
    """Hunts for offsets that go ahead of caches, of the producer, or of some of the tasks."""
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
    """Of each partition that was read its own, of all tasks, with what belongs to them."""
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
    """Every store of every task, each time; hunts for a state on disk that stands for more or less
    than the offset beside it says."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    # Each commit logs one change, whatever the cache has merged.
    bench.feed(one, "in", "b", "c")
    bench.feed(other, "in", "d")
    bench.commit()
    bench.feed(one, "other", "e")
    bench.commit()
    assert bench.on_disk(0) == [("abce", 2)] * 2
    assert bench.on_disk(1) == [("d", 0)] * 2


@pytest.mark.parametrize("failure", [RebalanceInProgressError("soon"), TaskMigratedError("gone")])
def test_what_is_not_committed_is_not_on_disk(bench: Bench, failure: Exception) -> None:
    """Goal: with offsets refused, stores stand where the last commit left them, and work that is
    not committed stays to be committed."""
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


def test_a_commit_that_was_refused_is_made_later(bench: Bench) -> None:
    """Goal: nothing of the first try is missing, and nothing is written twice."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.group.failure = RebalanceInProgressError("soon")
    with pytest.raises(RebalanceInProgressError):
        bench.commit()
    bench.group.failure = None
    bench.feed(one, "in", "b")
    assert bench.commit()[TopicPartition("in", 0)].offset == 2
    assert bench.written(0) == [b"ab"] * 4
    # The first try has logged "a".
    assert bench.on_disk(0) == [("ab", 1)] * 2


def test_what_has_nothing_to_commit_is_left_alone(bench: Bench) -> None:
    """Hunts for commits again and again of the same, which keep a cluster busy for nothing."""
    one, _ = bench.tasks
    assert bench.commit() == {}
    bench.feed(one, "in", "a")
    assert set(bench.commit()) == {TopicPartition("in", 0)}
    assert bench.commit() == {}
    assert bench.group.times == 1
    assert bench.commits.total == 1


def test_what_was_acknowledged_long_ago_moves_no_store_back(bench: Bench) -> None:
    """The thread may have written a changelog before another one had the task."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit()
    for store in STORES:
        # Somebody else has written, and this task has restored it.
        one.stores.restorers()[changelog(store, 0)].reached = 8
    one.commit_needed = True
    bench.commit()
    assert set(one.stores.changelog_offsets().values()) == {8}
    assert set(other.stores.changelog_offsets().values()) == {0}


def test_a_commit_that_a_processor_asked_for_is_asked_for_once(bench: Bench) -> None:
    """Hunts for a thread that commits after each batch from then on."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    assert not one.commit_requested
    one.processing.engine_task.request_commit()
    assert one.commit_requested
    bench.commit()
    bench.feed(one, "in", "b")
    assert not one.commit_requested


def test_a_batch_that_failed_is_not_committed(bench: Bench) -> None:
    """Hunts for offsets that are done when they are taken, not when their records are."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    with pytest.raises(StreamsError):
        bench.feed(one, "in", "b", "poison")
    assert one.offsets_to_commit()[TopicPartition("in", 0)].offset == 1


def test_what_tasks_have_sent_that_are_given_up_is_dropped(bench: Bench) -> None:
    """Their next owners send it again; it must not come after what these write."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    one.prepare_commit()
    assert bench.log.sent
    bench.commits.forget_sent()
    bench.log.flush(0)
    assert not bench.log.written


def test_stores_without_changelogs_are_written_with_each_commit(tmp_path: Path) -> None:
    """Nothing else could bring back what they hold."""
    bench = Bench(tmp_path, logged=False)
    bench.feed(bench.tasks[0], "in", "a")
    bench.commit()
    bench.feed(bench.tasks[0], "in", "b")
    assert bench.on_disk(0) == [("a", None)] * 2
    bench.close()


def test_tasks_go_on_while_the_group_has_not_answered(bench: Bench) -> None:
    """Goal: what a commit is for is written before it is asked for; stores wait for the answer, and
    what is done meanwhile is for the next commit."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit_soon()
    assert bench.written(0) == [b"a"] * 4
    assert not one.commit_needed
    assert one.committed == {}
    assert bench.commits.is_open
    bench.feed(one, "in", "c")
    bench.commits.hear()
    assert bench.commits.total == 0
    bench.answer()
    assert bench.commits.total == 1
    assert not bench.commits.is_open
    assert one.committed == {TopicPartition("in", 0): 1}
    assert (one.commit_needed, other.commit_needed) == (True, False)
    assert bench.commit()[TopicPartition("in", 0)].offset == 2
    assert bench.on_disk(0) == [("ac", 1)] * 2
    assert bench.on_disk(1) == [("b", 0)] * 2


def test_a_store_holds_what_the_group_has_answered_to(bench: Bench) -> None:
    """Hunts for state on disk of records that may be worked on again, and whose results may not
    have left: a processor that lets each key through once would never let it through."""
    one, _ = bench.tasks
    for values in (["a"], ["b"]):
        bench.feed(one, "in", *values)
        bench.commit_soon()
        bench.feed(one, "in", "x")
        one.prepare_commit()
        bench.answer()
    # Each time something was logged that is not committed yet.
    assert bench.on_disk(0) == [("axb", 2)] * 2


def test_what_was_deleted_since_a_commit_has_begun_is_on_disk(bench: Bench) -> None:
    """What a store held back until its time had come, and was forwarded then: what came of it may
    not have left, and nobody else has it."""
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
def test_what_the_group_refuses_later_is_not_on_disk(bench: Bench, failure: Exception) -> None:
    """Hunts for state that claims to hold what another member has written to the changelog, since
    this one had lost the task; and for work that nobody commits any more."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit()
    bench.feed(one, "in", "b")
    bench.commit_soon()
    bench.group.failure = failure
    with pytest.raises(type(failure)):
        bench.answer()
    assert one.commit_needed
    assert not bench.commits.is_open
    assert one.committed == {TopicPartition("in", 0): 1}
    assert bench.on_disk(0) == [("a", 0)] * 2


def test_a_commit_waits_for_the_one_before(bench: Bench) -> None:
    """Hunts for an older answer that comes last: it would set a task back."""
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


def test_a_commit_that_may_not_take_long_does_not_wait_long_for_the_one_before(
    bench: Bench,
) -> None:
    """Hunts for a thread that is told to end, and is killed before it has left the group."""
    one, _ = bench.tasks
    for within_ms in (1_000, None):
        bench.feed(one, "in", "a")
        bench.commit_soon()
        assert bench.group.answer is not None
        waiting = bench.group.answer
        bench.feed(one, "in", "b")
        bench.commits.commit(bench.tasks, within_ms)
        assert waiting.waited_ms == within_ms


def test_a_task_that_was_closed_meanwhile_is_left_alone(bench: Bench) -> None:
    """It may have been opened again, to restore what its state is said to hold already."""
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
def test_a_crash_forgets_the_state_of_records_whose_results_are_not_delivered(
    tmp_path: Path, logged: bool, commits: int
) -> None:
    """However many writes wait: deduplication would never forward what it has on disk already.

    Detects stores that make room by writing to the disk in the middle of a batch.
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


def test_a_task_takes_no_records_while_too_many_writes_wait(tmp_path: Path) -> None:
    """A group that rebalances takes no commits; memory must not grow until it is over. With
    nothing to commit the task goes on, whatever others have waiting."""
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


def test_a_commit_in_disorder_is_found(bench: Bench) -> None:
    """The check of the bench works: stores are not written before the producer is flushed."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    one.prepare_commit()
    one.commit_begun()
    with pytest.raises(IllegalStateError, match="delivered"):
        one.post_commit({}, {})


def test_work_that_is_dropped_takes_its_commit_with_it(bench: Bench) -> None:
    """Whoever has lost the tasks asks nobody how that ended."""
    bench.feed(bench.tasks[0], "in", "a")
    bench.commit_soon()
    bench.commits.forget_sent()
    assert not bench.commits.is_open
    bench.answer()
    assert bench.group.times == 0


def have_no_disk(task: StreamTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on its stores cannot be written."""

    def fail(*_: object) -> None:
        raise TaskCorruptedError("a disk has died", task_ids=[task.task_id])

    monkeypatch.setattr(task.stores, "commit", fail)


def test_a_state_that_cannot_be_written_keeps_no_other_from_being_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their offsets are committed: without a record more they would have no other commit."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit_soon()
    have_no_disk(one, monkeypatch)
    with pytest.raises(TaskCorruptedError):
        bench.answer()
    assert other.committed == {TopicPartition("in", 1): 1}
    assert bench.on_disk(1) == [("b", 0)] * 2


def test_a_state_that_is_thrown_away_is_not_written_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fail again, and the thread with it, instead of being built anew."""
    one, other = bench.tasks
    bench.feed(one, "in", "a")
    bench.feed(other, "in", "b")
    bench.commit_soon()
    have_no_disk(one, monkeypatch)
    bench.commits.settle(bench.tasks, [one.task_id])
    assert bench.on_disk(1) == [("b", 0)] * 2


def test_a_commit_that_was_asked_for_and_is_refused_is_still_asked_for(bench: Bench) -> None:
    """Hunts for a processor's request that waits for the commit interval, 30 seconds or so."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    one.processing.engine_task.request_commit()
    bench.commit_soon()
    assert not one.commit_requested
    bench.group.failure = RebalanceInProgressError("soon")
    with pytest.raises(RebalanceInProgressError):
        bench.answer()
    assert one.commit_requested
    bench.group.failure = None
    bench.commit()
    assert not one.commit_requested


def test_tasks_that_are_rebuilt_wait_for_the_answer(bench: Bench) -> None:
    """Otherwise they would begin at the offsets before it; also when the group refuses."""
    one, _ = bench.tasks
    bench.feed(one, "in", "a")
    bench.commit_soon()
    bench.commits.settle(bench.tasks)
    assert one.committed == {TopicPartition("in", 0): 1}
    bench.feed(one, "in", "b")
    bench.commit_soon()
    bench.group.failure = RebalanceInProgressError("soon")
    bench.commits.settle(bench.tasks)
    assert one.commit_needed
