"""A commit with all its real parts but the cluster: what is where at each of its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream import Processor, ProcessorContext, Record, Stores
from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.errors import (
    IllegalStateError,
    RebalanceInProgressError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
)
from millstream.kafka.data.producer_errors import Changelog
from millstream.kafka.member.events import CommitOffset
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.commits import Commits
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.collector import KafkaCollector
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import STRING
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.storage.uncommitted_budget import UncommittedBudget
from millstream.state.storage.write_check import WriteCheck
from millstream.testing.driver_topics import RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology

STORES = ("ids", "copies")
INPUTS = ("in", "other")
EPOCH = 7


class Log:
    """A producer whose records are in their topics once it was flushed."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = lambda: None
        self.held_back = 0
        self.sent: list[tuple[TopicPartition, bytes | None, bytes | None]] = []
        self.written: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]]
        self.written = defaultdict(list)
        self._tracked: set[str] = set()

    def track(self, topic: str, changelog: Changelog | None = None) -> None:
        self._tracked.add(topic)

    def acked_offsets(self) -> dict[TopicPartition, int]:
        return {
            place: len(records) - 1
            for place, records in self.written.items()
            if place.topic in self._tracked
        }

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        given = partitions if isinstance(partitions, Sequence) else [partitions] * len(keys)
        self.sent += [
            (TopicPartition(topic, number or 0), key, value)
            for number, key, value in zip(given, keys, values, strict=True)
        ]

    def send_watched(self, *columns: Any) -> None:
        """Nothing that is written here fails: like `send_many`, without who watches."""
        self.send_many(*columns[:-1])

    def send_at_once(self) -> None: ...

    def flush(self, timeout_ms: int) -> None:
        for place, key, value in self.sent:
            self.written[place].append((key, value))
        self.sent.clear()

    def purge(self) -> None:
        self.sent.clear()

    def close(self) -> None: ...

    def last(self, place: TopicPartition) -> dict[bytes | None, bytes | None]:
        """The last value of each key in a partition."""
        return dict(self.written[place])


class Group:
    """Takes offsets, and looks at the rest at that moment."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommitOffset] = {}
        self.times = 0
        self.look: Callable[[], None] = lambda: None
        self.failure: Exception | None = None
        self.answer: Answer | None = None

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        self.times += 1
        self.look()
        if self.failure is not None:
            raise self.failure
        self.committed |= offsets

    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> Answer:
        self.answer = Answer(lambda: self.commit(offsets, timeout_ms))
        return self.answer

    def progress(self) -> None: ...


class Answer:
    """What a group says to offsets; whoever does not want to wait hears of it when told."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.is_there = False
        self.waited_ms: int | None = None

    def take(self, within_ms: int | None = None) -> None:
        self.waited_ms = within_ms
        self._ask()


class Bench:
    """Two tasks of one thread; each collects its key's values in two stores, from two topics.

    Args:
        folder: an empty one.
        logged: whether the stores have changelogs.
        topology: makes another topology.
        uncommitted: limits the writes that wait.
    """

    def __init__(
        self,
        folder: Path,
        *,
        logged: bool = True,
        topology: Callable[..., Topology] | None = None,
        uncommitted: UncommittedBudget | None = None,
    ) -> None:
        self._topology = (topology or _topology)(logged=logged)
        check = WriteCheck()
        self.clock = ManualClock(1_000)
        self.log = Log()
        self.group = Group()
        admin: Any = _Admin()
        config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
        collector = KafkaCollector(self.log, admin, self.clock, 60_000, 0)
        self._services = TaskServices(
            config=config,
            clock=self.clock,
            collector=collector,
            changelog_writer=collector.changelog_writer,
            directory=StateDirectory(folder, "app"),
            budget=CacheBudget(1 << 20),
            uncommitted=uncommitted or UncommittedBudget(),
            write_check=check,
        )
        self.commits = Commits(
            AtLeastOnce(self.log, self.group, self.clock, 0, 10_000, check.flushed),
            self.log,
            self.clock,
        )
        self._ends: dict[TopicPartition, int] = defaultdict(int)
        self.tasks = [self.start(number) for number in (0, 1)]

    def start(self, number: int) -> StreamTask:
        """A task that runs, with what is on disk."""
        (part,) = self._topology._subtopologies()
        places = frozenset(TopicPartition(topic, number) for topic in INPUTS)
        task = build_task(part, TaskId(0, number), places, self._services)
        task.open_stores()
        task.start({}, {topic: f"id of {topic}" for topic in INPUTS})
        return task

    def feed(self, task: StreamTask, topic: str, *values: str) -> None:
        """Let a task take records of one key."""
        place = TopicPartition(topic, task.task_id.partition)
        start = self._ends[place]
        self._ends[place] += len(values)
        offsets = list(range(start, start + len(values)))
        columns = RawColumns(
            [_key(task.task_id.partition)] * len(values),
            [value.encode() for value in values],
            [1_000 + offset for offset in offsets],
            offsets,
            None,
            EPOCH,
        )
        task.add_records(place, columns)
        while task.buffered:
            task.step(1_000)

    def commit(self) -> dict[TopicPartition, CommitOffset]:
        return self.commits.commit(self.tasks)

    def commit_soon(self) -> None:
        """Commit without the group's answer."""
        self.commits.commit(self.tasks, soon=True)

    def answer(self) -> None:
        """Let the group answer, and the thread hear of it."""
        assert self.group.answer is not None
        self.group.answer.is_there = True
        self.commits.hear()

    def written(self, number: int) -> list[bytes | None]:
        """What was last written of a task's key: the output and the changelog of each store."""
        key = _key(number)
        outputs = [self.log.last(TopicPartition(store, 0)).get(key) for store in STORES]
        return outputs + [self.log.last(changelog(store, number)).get(key) for store in STORES]

    def on_disk(self, number: int) -> list[tuple[str | None, int | None]]:
        """What a process finds that comes after this one: each store's value and offset."""
        self.tasks[number].close(clean=False)
        again = self.tasks[number] = self.start(number)
        reached = again.stores.changelog_offsets()
        found: list[tuple[str | None, int | None]] = []
        for store in STORES:
            kept = again.stores.store(store).get(_key(number).decode())
            place = changelog(store, number)
            found.append((None if kept is None else kept.value, reached.get(place)))
        return found

    def close(self) -> None:
        for task in self.tasks:
            task.close(clean=False)


class _Admin:
    def partition_counts(self, topics: Iterable[str], timeout_ms: int) -> Mapping[str, int]:
        return dict.fromkeys(topics, 1)


def changelog(store: str, number: int) -> TopicPartition:
    """Where a task logs the changes of a store."""
    return TopicPartition(f"app-{store}-changelog", number)


def _key(number: int) -> bytes:
    return f"k{number}".encode()


def _collected(_: str, value: str, known: str) -> Any:
    if value == "poison":
        raise ValueError("never")
    return None if value == "forget" else known + value


def _topology(*, logged: bool) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(list(INPUTS), key=STRING, value=STRING).group_by_key()
    for store in STORES:
        (
            grouped.aggregate(
                str,
                _collected,
                store=Materialized(store, kind="rocksdb", key=STRING, value=STRING, logging=logged),
            )
            .to_stream()
            .to(store, key=STRING, value=STRING)
        )
    return builder.build()


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
