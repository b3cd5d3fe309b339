"""State that cannot be trusted is wiped and rebuilt from the changelog, and never used before.

Real files, really broken; a task runs only once its store has everything again.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import Options, Rdict
from support.machine.lock_holder import lock_held
from support.tasks.task_bench import STORE, Cluster, TaskBench, Topic, changelog

from millstream.errors import LockError, StreamsError, TaskCorruptedError
from millstream.record import TaskId
from millstream.runtime.states import TaskState
from millstream.state.directories.state_directory import StateDirectory

TASK = TaskId(0, 0)
KEYS = [f"key-{n:04}" for n in range(1_500)]

Harm = Callable[[Path], object]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[TaskBench]:
    """A task has counted each key once, and was closed in an orderly way."""
    bench = TaskBench(tmp_path)
    bench.cluster.batch = 500
    bench.assign([0])
    bench.run_all()
    bench.feed(*KEYS)
    bench.tasks.close_all(clean=True)
    yield bench
    bench.tasks.close_all(clean=False)


def database(folder: Path) -> Path:
    return folder / "app" / str(TASK) / "rocksdb" / STORE


def file(pattern: str) -> Callable[[Path], Path]:
    """The largest of some files of the database."""
    return lambda folder: max(
        database(folder).glob(pattern), key=lambda path: (path.stat().st_size, path.name)
    )


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def flip(path: Path) -> None:
    """Turn over some bits in the middle."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    path.write_bytes(data)


def of_java(folder: Path) -> None:
    """A database with column families that are not ours."""
    shutil.rmtree(database(folder))
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    theirs = Rdict(str(database(folder)), options)
    theirs.create_column_family("keyValueWithTimestamp", Options(raw_mode=True))
    theirs.close()


AT_ONCE: dict[str, Harm] = {
    "CURRENT garbage": lambda folder: file("CURRENT")(folder).write_text("garbage"),
    "CURRENT empty": lambda folder: file("CURRENT")(folder).write_text(""),
    "CURRENT missing": lambda folder: file("CURRENT")(folder).unlink(),
    "CURRENT elsewhere": lambda folder: file("CURRENT")(folder).write_text("MANIFEST-009999\n"),
    "MANIFEST missing": lambda folder: file("MANIFEST-*")(folder).unlink(),
    "MANIFEST empty": lambda folder: file("MANIFEST-*")(folder).write_bytes(b""),
    "MANIFEST garbage": lambda folder: file("MANIFEST-*")(folder).write_bytes(b"garbage" * 40),
    "MANIFEST torn": lambda folder: cut(file("MANIFEST-*")(folder), 500),
    "SST missing": lambda folder: file("*.sst")(folder).unlink(),
    "SST empty": lambda folder: file("*.sst")(folder).write_bytes(b""),
    "SST torn": lambda folder: cut(file("*.sst")(folder), 10),
    "column families of Java": of_java,
    "checkpoint garbage": lambda folder: checkpoint(folder).write_text("garbage"),
    "checkpoint torn": lambda folder: checkpoint(folder).write_text("0\n2\napp-x-changelog 0 1"),
    "checkpoint of another version": lambda folder: checkpoint(folder).write_text("7\n0\n"),
    "checkpoint no text": lambda folder: checkpoint(folder).write_bytes(b"0\n\xff\xfe\n"),
    "checkpoint a directory": lambda folder: checkpoint(folder).mkdir(),
}


def checkpoint(folder: Path) -> Path:
    return folder / "app" / str(TASK) / ".checkpoint"


def recover(bench: TaskBench) -> None:
    """What the thread does: rebuild, and look that nothing runs before it is whole."""
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance(3)
    assert raised.value.task_ids == {TASK}
    assert raised.value.message, "it is logged"
    bench.tasks.revive(raised.value)
    restored = []
    while not bench.tasks.all_running:
        assert bench.main.assigned == {}
        bench.advance()
        restored.append(len(bench.counts()))
    assert restored[0] == 500
    assert bench.tasks.rebuilt_total == 1


@pytest.mark.parametrize("harm", AT_ONCE.values(), ids=AT_ONCE)
def test_what_cannot_be_opened_is_rebuilt(bench: TaskBench, tmp_path: Path, harm: Harm) -> None:
    harm(tmp_path)
    bench.assign([0])
    recover(bench)
    assert bench.counts() == dict.fromkeys(KEYS, 1)
    bench.feed(KEYS[0])
    bench.tasks.close_all(clean=True)
    bench.assign([0])
    bench.run_all()
    assert bench.tasks.rebuilt_total == 1
    assert bench.counts()[KEYS[0]] == 2


def test_what_cannot_be_read_is_rebuilt(bench: TaskBench, tmp_path: Path) -> None:
    """Bits that turned over are noticed when they are read, as an error and not as no value."""
    flip(file("*.sst")(tmp_path))
    bench.assign([0])
    bench.run_all()
    with pytest.raises(TaskCorruptedError, match="checksum") as raised:
        bench.feed(*KEYS)
    assert raised.value.task_ids == {TASK}
    bench.tasks.revive(raised.value)
    assert bench.main.assigned == {}
    bench.run_all()
    logged = {key: value for _, key, value, _ in bench.cluster.topic(changelog()).records}
    assert {key.encode(): n.to_bytes(8, "big") for key, n in bench.counts().items()} == logged
    assert list(bench.main.assigned.values()) == [len(KEYS)], "it goes on from its last commit"


@pytest.mark.parametrize("torn", [1, 20, 60, 120, 200])
def test_a_torn_list_of_files_is_noticed_or_a_state_of_before(
    bench: TaskBench, tmp_path: Path, torn: int
) -> None:
    """Some of them name fewer files; never that of the offset without that of its data."""
    cut(file("MANIFEST-*")(tmp_path), torn)
    bench.assign([0])
    try:
        bench.run_all()
    except TaskCorruptedError as error:
        bench.tasks.revive(error)
        bench.run_all()
    assert bench.counts() == dict.fromkeys(KEYS, 1)


def test_a_lost_write_ahead_log_costs_the_tail_only(tmp_path: Path) -> None:
    """What the operating system had not written yet when the power went."""
    bench = TaskBench(tmp_path / "running")
    bench.assign([0])
    bench.run_all()
    bench.feed("a", "b")
    bench.tasks.close_all(clean=True)
    bench.assign([0])
    bench.run_all()
    bench.feed("a", "c")
    for cut_by, reached in ((0, 3), (3, 1), (10_000, 1)):
        folder = tmp_path / f"after {cut_by}"
        shutil.copytree(tmp_path / "running", folder)
        (log,) = (path for path in database(folder).glob("*.log") if path.stat().st_size)
        cut(log, min(cut_by, log.stat().st_size) or -log.stat().st_size)
        after = TaskBench(folder, bench.cluster)
        after.main.group = bench.main.group
        after.assign(standby=[0])
        after.tasks._open(after.task(), after.tasks._opening[TASK])
        assert after.reached() == reached
        after.assign([0])
        after.run_all()
        assert after.counts() == {"a": 2, "b": 1, "c": 1}
        assert after.tasks.rebuilt_total == 0
        after.tasks.close_all(clean=False)
    bench.tasks.close_all(clean=False)


@pytest.mark.parametrize("mark", [None, "millstream 999\n"], ids=["of Java", "of the future"])
def test_a_directory_in_another_format_is_rebuilt(
    bench: TaskBench, tmp_path: Path, mark: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    marker = tmp_path / "app" / str(TASK) / ".format"
    if mark is None:
        marker.unlink()
    else:
        marker.write_text(mark)
    bench.assign([0])
    with caplog.at_level(logging.INFO):
        bench.advance()
    assert "has state in another format" in caplog.text
    assert len(bench.counts()) == 500
    bench.run_all()
    assert bench.counts() == dict.fromkeys(KEYS, 1)


def test_a_changelog_that_was_truncated_is_read_from_its_beginning(bench: TaskBench) -> None:
    """An active task stands at an offset that is gone; another one restores beside it."""
    topic = bench.cluster.topic(changelog())
    other = bench.cluster.topic(changelog(1))
    for n in range(500):
        topic.append(KEYS[n].encode(), (2).to_bytes(8, "big"), 5_000)
        other.append(b"x", n.to_bytes(8, "big"), n)
    bench.cluster.batch = 100
    topic.truncate(1_600)
    bench.assign([0, 1])
    with pytest.raises(TaskCorruptedError, match="no longer have") as raised:
        bench.advance()
    assert raised.value.task_ids == {TASK}
    before = bench.task(1)
    bench.tasks.revive(raised.value)
    bench.run_all()
    assert bench.task(1) is before
    assert bench.counts(1) == {"x": 499}
    assert bench.counts() == dict.fromkeys(KEYS[100:500], 2), "the topic is all there is"
    assert bench.tasks.rebuilt_total == 1


@pytest.mark.parametrize("standby", [False, True], ids=["active", "standby"])
def test_a_changelog_that_was_made_anew_wipes_the_store(
    bench: TaskBench, tmp_path: Path, standby: bool
) -> None:
    """It ends before the store stands: what is in the store has nothing to do with it."""
    topic = bench.cluster.topics[changelog()] = type(bench.cluster.topic(changelog()))()
    topic.append(b"new", (7).to_bytes(8, "big"), 1)
    bench.assign(*(([], [0]) if standby else ([0], [])))
    with pytest.raises(TaskCorruptedError, match="deleted and created anew") as raised:
        bench.advance()
    bench.tasks.revive(raised.value)
    bench.advance(2)
    assert bench.counts() == {"new": 7}
    assert bench.tasks.rebuilt_total == 1
    assert bench.tasks.standby == ({TASK} if standby else set())


def test_a_changelog_that_is_made_anew_under_a_standby_wipes_its_store(bench: TaskBench) -> None:
    bench.assign(standby=[0])
    bench.advance(4)
    topic = bench.cluster.topics[changelog()] = type(bench.cluster.topic(changelog()))()
    topic.append(b"new", (7).to_bytes(8, "big"), 1)
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance()
    bench.tasks.revive(raised.value)
    bench.advance(2)
    assert bench.counts() == {"new": 7}


def test_a_lock_of_another_process_is_waited_for_and_never_stolen(tmp_path: Path) -> None:
    """Once it is free, the task goes on within half a second."""
    bench = TaskBench(tmp_path)
    with lock_held(tmp_path, str(TASK)) as holder:
        bench.assign([0])
        for _ in range(50):
            bench.advance()
            assert bench.task().state is TaskState.CREATED
            with pytest.raises(LockError, match=f"process {holder.pid}"):
                StateDirectory(tmp_path, "app").lock_task(TASK)
            bench.clock.advance(500)
        holder.signal(signal.SIGSTOP)
        bench.advance()
        assert bench.task().state is TaskState.CREATED, "a process that stands still is not dead"
        bench.clock.advance(500)
        holder.kill()
        bench.advance()
    assert bench.tasks.all_running
    bench.tasks.close_all(clean=True)


def test_a_lock_that_is_never_given_back_ends_the_thread_with_its_holder_named(
    tmp_path: Path,
) -> None:
    bench = TaskBench(tmp_path)
    with lock_held(tmp_path, str(TASK)) as holder:
        bench.assign([0])
        bench.advance()
        bench.clock.advance(30_000)
        said = rf"Gave up opening .* 0_0 after 30 s\. .*app/0_0/\.lock is .* process {holder.pid} "
        with pytest.raises(LockError, match=said + "since 20.* UTC"):
            bench.advance()
    bench.tasks.close_all(clean=False)


@pytest.mark.parametrize("when", ["opening", "restoring"])
def test_state_that_cannot_be_trusted_is_not_used_by_whoever_comes_next(
    bench: TaskBench, tmp_path: Path, when: str
) -> None:
    """Method: find it corrupt, give the task up before it is opened again, open it elsewhere."""
    if when == "opening":
        current = file("CURRENT")(tmp_path)
        whole = current.read_text()
        current.write_text("garbage")
    else:
        topic = bench.cluster.topics[changelog()]
        bench.cluster.topics[changelog()] = Topic()
    bench.assign([0])
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance()
    bench.tasks.revive(raised.value)
    bench.assign([])
    if when == "opening":
        current.write_text(whole)
    else:
        bench.cluster.topics[changelog()] = topic
    assert bench.directory.reached() == {}, "no leader counts on it"
    again = TaskBench(tmp_path, bench.cluster)
    again.main.group = bench.main.group
    again.assign([0])
    again.run_all()
    assert [event.offset for event in again.events if event.step.value == "start"] == [0]
    assert again.counts() == dict.fromkeys(KEYS, 1)
    again.tasks.close_all(clean=True)
    assert bench.directory.reached() == {TASK: len(KEYS)}


def test_state_is_not_wiped_under_another_process(tmp_path: Path) -> None:
    """Who took the lock between closing and wiping keeps what he found."""
    bench = TaskBench(tmp_path)
    bench.assign([0])
    bench.run_all()
    bench.feed("a")
    bench.tasks.close_all(clean=True)
    file("CURRENT")(tmp_path).write_text("garbage")
    bench.assign([0])
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance()
    with lock_held(tmp_path, str(TASK)):
        there = sorted(os.listdir(database(tmp_path)))
        bench.tasks.revive(raised.value)
        bench.advance(2)
        assert bench.task().state is TaskState.CREATED
        assert sorted(os.listdir(database(tmp_path))) == there
    bench.run_all()
    assert bench.counts() == {"a": 1}
    bench.tasks.close_all(clean=True)


def test_a_rebuild_that_is_given_up_under_way_is_no_state(bench: TaskBench, tmp_path: Path) -> None:
    """What was restored of it is taken for what it is when the task comes back."""
    file("CURRENT")(tmp_path).write_text("garbage")
    bench.assign([0])
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance()
    bench.tasks.revive(raised.value)
    bench.advance()
    assert len(bench.counts()) == 500
    bench.tasks.close_all(clean=False)
    again = TaskBench(tmp_path, bench.cluster)
    again.main.group = bench.main.group
    again.assign([0])
    again.run_all()
    starts = [event.offset for event in again.events if event.step.value == "start"]
    assert starts == [500]
    assert again.counts() == dict.fromkeys(KEYS, 1)
    again.tasks.close_all(clean=True)


def test_an_unanswered_question_for_the_end_is_asked_again(bench: TaskBench) -> None:
    cluster: Cluster = bench.cluster
    cluster.is_down = True
    bench.assign([0])
    bench.advance(3)
    assert not bench.tasks.all_running
    cluster.is_down = False
    bench.run_all()
    assert bench.counts() == dict.fromkeys(KEYS, 1)


def test_a_corrupt_task_whose_store_cannot_be_closed_is_rebuilt(
    bench: TaskBench, tmp_path: Path
) -> None:
    """Its files are gone, so RocksDB cannot flush what it has in memory.

    Detects a task that is left half closed: neither could it be revived, nor could anybody else
    lock its directory.
    """
    bench.assign([0])
    bench.run_all()
    bench.feed("one more")
    shutil.rmtree(database(tmp_path))
    bench.tasks.revive(TaskCorruptedError("files are missing", task_ids=[TASK]))
    assert bench.task().state is TaskState.CREATED
    with StateDirectoryLock(tmp_path):
        pass
    bench.run_all()
    assert bench.counts() == {**dict.fromkeys(KEYS, 1), "one more": 1}


@pytest.mark.parametrize("role", ["active", "standby", "restoring"])
def test_a_task_is_closed_though_its_clients_fail(
    bench: TaskBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """Detects tasks that keep their directory locked because something before failed."""
    bench.assign([0] if role != "standby" else [], [0] if role == "standby" else [])
    if role == "active":
        bench.run_all()
    else:
        bench.advance(2)

    def fail(*_: object) -> None:
        raise StreamsError("the consumer is broken")

    monkeypatch.setattr(bench.cluster, "unassign", fail)
    monkeypatch.setattr(bench.main, "unassign", fail)
    task = bench.task()
    bench.tasks.revive(TaskCorruptedError("unknown block", task_ids=[TASK]))
    assert task.state is TaskState.CREATED
    with StateDirectoryLock(tmp_path):
        pass
    monkeypatch.undo()


class StateDirectoryLock:
    """Locks the task's directory as another owner does.

    Args:
        folder: of the state.
    """

    def __init__(self, folder: Path) -> None:
        self._directory = StateDirectory(folder, "app")

    def __enter__(self) -> None:
        self._directory.lock_task(TASK)

    def __exit__(self, *_: object) -> None:
        self._directory.unlock_task(TASK)
