"""Corrupted state is deleted and rebuilt from the changelog, and never used before.

The tests damage real files. A task runs only once its store is complete.
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
from millstream.runtime.states.thread_states import TaskState
from millstream.state.directories.state_directory import StateDirectory

TASK = TaskId(0, 0)
KEYS = [f"key-{n:04}" for n in range(1_500)]

Damage = Callable[[Path], object]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[TaskBench]:
    """A bench with a task that has counted each key once, and was closed cleanly."""
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
    """Return a function that finds the largest of some files of the database."""
    return lambda folder: max(
        database(folder).glob(pattern), key=lambda path: (path.stat().st_size, path.name)
    )


def truncate(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def flip(path: Path) -> None:
    """Flip some bits in the middle."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    path.write_bytes(data)


def create_java_database(folder: Path) -> None:
    """Create a database with column families of Kafka Streams."""
    shutil.rmtree(database(folder))
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    created = Rdict(str(database(folder)), options)
    created.create_column_family("keyValueWithTimestamp", Options(raw_mode=True))
    created.close()


DAMAGES: dict[str, Damage] = {
    "CURRENT garbage": lambda folder: file("CURRENT")(folder).write_text("garbage"),
    "CURRENT empty": lambda folder: file("CURRENT")(folder).write_text(""),
    "CURRENT missing": lambda folder: file("CURRENT")(folder).unlink(),
    "CURRENT dangling": lambda folder: file("CURRENT")(folder).write_text("MANIFEST-009999\n"),
    "MANIFEST missing": lambda folder: file("MANIFEST-*")(folder).unlink(),
    "MANIFEST empty": lambda folder: file("MANIFEST-*")(folder).write_bytes(b""),
    "MANIFEST garbage": lambda folder: file("MANIFEST-*")(folder).write_bytes(b"garbage" * 40),
    "MANIFEST torn": lambda folder: truncate(file("MANIFEST-*")(folder), 500),
    "SST missing": lambda folder: file("*.sst")(folder).unlink(),
    "SST empty": lambda folder: file("*.sst")(folder).write_bytes(b""),
    "SST torn": lambda folder: truncate(file("*.sst")(folder), 10),
    "column families of Java": create_java_database,
    "checkpoint garbage": lambda folder: checkpoint(folder).write_text("garbage"),
    "checkpoint torn": lambda folder: checkpoint(folder).write_text("0\n2\napp-x-changelog 0 1"),
    "checkpoint of another version": lambda folder: checkpoint(folder).write_text("7\n0\n"),
    "checkpoint binary": lambda folder: checkpoint(folder).write_bytes(b"0\n\xff\xfe\n"),
    "checkpoint is a directory": lambda folder: checkpoint(folder).mkdir(),
}


def checkpoint(folder: Path) -> Path:
    return folder / "app" / str(TASK) / ".checkpoint"


def recover(bench: TaskBench) -> None:
    """Rebuild the task like the thread does, and check that it does not run before it is
    complete."""
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance(3)
    assert raised.value.task_ids == {TASK}
    assert raised.value.message, "the message is logged"
    bench.tasks.revive(raised.value)
    restored = []
    while not bench.tasks.all_running:
        assert bench.main.assigned == {}
        bench.advance()
        restored.append(len(bench.counts()))
    assert restored[0] == 500
    assert bench.tasks.rebuilt_total == 1


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_state_that_cannot_be_opened_is_rebuilt(
    bench: TaskBench, tmp_path: Path, damage: Damage
) -> None:
    damage(tmp_path)
    bench.assign([0])
    recover(bench)
    assert bench.counts() == dict.fromkeys(KEYS, 1)
    bench.feed(KEYS[0])
    bench.tasks.close_all(clean=True)
    bench.assign([0])
    bench.run_all()
    assert bench.tasks.rebuilt_total == 1
    assert bench.counts()[KEYS[0]] == 2


def test_state_that_cannot_be_read_is_rebuilt(bench: TaskBench, tmp_path: Path) -> None:
    """Flipped bits are detected on reading, as an error and not as a missing value."""
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
    assert list(bench.main.assigned.values()) == [len(KEYS)], "it continues from its last commit"


@pytest.mark.parametrize("torn", [1, 20, 60, 120, 200])
def test_torn_manifest_is_detected_or_is_an_earlier_state(
    bench: TaskBench, tmp_path: Path, torn: int
) -> None:
    """A torn manifest may list fewer files, but never the file with an offset without the file with
    its data."""
    truncate(file("MANIFEST-*")(tmp_path), torn)
    bench.assign([0])
    try:
        bench.run_all()
    except TaskCorruptedError as error:
        bench.tasks.revive(error)
        bench.run_all()
    assert bench.counts() == dict.fromkeys(KEYS, 1)


def test_lost_write_ahead_log_only_loses_the_tail(tmp_path: Path) -> None:
    """The part that the operating system had not written when the power failed."""
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
        truncate(log, min(cut_by, log.stat().st_size) or -log.stat().st_size)
        after = TaskBench(folder, bench.cluster)
        after.main.group = bench.main.group
        after.assign(standby=[0])
        after.tasks._open(after.task(), after.tasks._pending_opens[TASK])
        assert after.reached() == reached
        after.assign([0])
        after.run_all()
        assert after.counts() == {"a": 2, "b": 1, "c": 1}
        assert after.tasks.rebuilt_total == 0
        after.tasks.close_all(clean=False)
    bench.tasks.close_all(clean=False)


@pytest.mark.parametrize("mark", [None, "millstream 999\n"], ids=["Java", "future version"])
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


def test_truncated_changelog_is_read_from_its_beginning(bench: TaskBench) -> None:
    """The position of an active task was deleted; another task is restoring meanwhile."""
    topic = bench.cluster.topic(changelog())
    other = bench.cluster.topic(changelog(1))
    for n in range(500):
        topic.append(KEYS[n].encode(), (2).to_bytes(8, "big"), 5_000)
        other.append(b"x", n.to_bytes(8, "big"), n)
    bench.cluster.batch = 100
    topic.truncate(1_600)
    bench.assign([0, 1])
    with pytest.raises(TaskCorruptedError, match="no longer in") as raised:
        bench.advance()
    assert raised.value.task_ids == {TASK}
    before = bench.task(1)
    bench.tasks.revive(raised.value)
    bench.run_all()
    assert bench.task(1) is before
    assert bench.counts(1) == {"x": 499}
    assert bench.counts() == dict.fromkeys(KEYS[100:500], 2), "only the topic counts"
    assert bench.tasks.rebuilt_total == 1


@pytest.mark.parametrize("standby", [False, True], ids=["active", "standby"])
def test_recreated_changelog_wipes_the_store(
    bench: TaskBench, tmp_path: Path, standby: bool
) -> None:
    """The changelog ends before the position of the store, and is unrelated to its content."""
    topic = bench.cluster.topics[changelog()] = type(bench.cluster.topic(changelog()))()
    topic.append(b"new", (7).to_bytes(8, "big"), 1)
    bench.assign(*(([], [0]) if standby else ([0], [])))
    with pytest.raises(TaskCorruptedError, match="deleted and recreated") as raised:
        bench.advance()
    bench.tasks.revive(raised.value)
    bench.advance(2)
    assert bench.counts() == {"new": 7}
    assert bench.tasks.rebuilt_total == 1
    assert bench.tasks.standby == ({TASK} if standby else set())


def test_changelog_that_is_recreated_under_a_standby_wipes_its_store(bench: TaskBench) -> None:
    bench.assign(standby=[0])
    bench.advance(4)
    topic = bench.cluster.topics[changelog()] = type(bench.cluster.topic(changelog()))()
    topic.append(b"new", (7).to_bytes(8, "big"), 1)
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance()
    bench.tasks.revive(raised.value)
    bench.advance(2)
    assert bench.counts() == {"new": 7}


def test_task_waits_for_the_lock_of_another_process(tmp_path: Path) -> None:
    """Once it is free, the task continues within half a second."""
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
        assert bench.task().state is TaskState.CREATED, "a stopped process is not dead"
        bench.clock.advance(500)
        holder.kill()
        bench.advance()
    assert bench.tasks.all_running
    bench.tasks.close_all(clean=True)


def test_wait_for_a_lock_has_a_timeout_and_its_error_names_the_holder(
    tmp_path: Path,
) -> None:
    bench = TaskBench(tmp_path)
    with lock_held(tmp_path, str(TASK)) as holder:
        bench.assign([0])
        bench.advance()
        bench.clock.advance(30_000)
        message = (
            rf"Gave up opening .* 0_0 after 30 s\. .*app/0_0/\.lock is .* process {holder.pid} "
        )
        with pytest.raises(LockError, match=message + "since 20.* UTC"):
            bench.advance()
    bench.tasks.close_all(clean=False)


@pytest.mark.parametrize("when", ["opening", "restoring"])
def test_corrupted_state_is_not_used_by_the_next_owner(
    bench: TaskBench, tmp_path: Path, when: str
) -> None:
    """The state turns out to be corrupted, the task is released before it is reopened, and another
    owner opens it."""
    if when == "opening":
        current = file("CURRENT")(tmp_path)
        content = current.read_text()
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
        current.write_text(content)
    else:
        bench.cluster.topics[changelog()] = topic
    assert bench.directory.offset_sums() == {}, "it is not reported to the leader"
    next_owner = TaskBench(tmp_path, bench.cluster)
    next_owner.main.group = bench.main.group
    next_owner.assign([0])
    next_owner.run_all()
    assert [event.offset for event in next_owner.events if event.step.value == "start"] == [0]
    assert next_owner.counts() == dict.fromkeys(KEYS, 1)
    next_owner.tasks.close_all(clean=True)
    assert bench.directory.offset_sums() == {TASK: len(KEYS)}


def test_state_is_not_wiped_under_another_process(tmp_path: Path) -> None:
    """An owner that takes the lock between closing and wiping keeps its files."""
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
        files = sorted(os.listdir(database(tmp_path)))
        bench.tasks.revive(raised.value)
        bench.advance(2)
        assert bench.task().state is TaskState.CREATED
        assert sorted(os.listdir(database(tmp_path))) == files
    bench.run_all()
    assert bench.counts() == {"a": 1}
    bench.tasks.close_all(clean=True)


def test_rebuild_that_is_interrupted_continues_at_its_position(
    bench: TaskBench, tmp_path: Path
) -> None:
    """The position is that of the restored records, not that of the old state."""
    file("CURRENT")(tmp_path).write_text("garbage")
    bench.assign([0])
    with pytest.raises(TaskCorruptedError) as raised:
        bench.advance()
    bench.tasks.revive(raised.value)
    bench.advance()
    assert len(bench.counts()) == 500
    bench.tasks.close_all(clean=False)
    next_owner = TaskBench(tmp_path, bench.cluster)
    next_owner.main.group = bench.main.group
    next_owner.assign([0])
    next_owner.run_all()
    starts = [event.offset for event in next_owner.events if event.step.value == "start"]
    assert starts == [500]
    assert next_owner.counts() == dict.fromkeys(KEYS, 1)
    next_owner.tasks.close_all(clean=True)


def test_unanswered_request_for_the_end_offset_is_repeated(bench: TaskBench) -> None:
    cluster: Cluster = bench.cluster
    cluster.is_down = True
    bench.assign([0])
    bench.advance(3)
    assert not bench.tasks.all_running
    cluster.is_down = False
    bench.run_all()
    assert bench.counts() == dict.fromkeys(KEYS, 1)


def test_corrupted_task_whose_store_cannot_be_closed_is_rebuilt(
    bench: TaskBench, tmp_path: Path
) -> None:
    """Its files are missing, so RocksDB cannot flush the data in memory.

    Detects a task that stays half closed: it could not be revived, and its directory would stay
    locked.
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
def test_task_is_closed_although_its_clients_fail(
    bench: TaskBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """Detects tasks that keep their directory locked because an earlier step failed."""
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
    """Locks the task's directory like another owner.

    Args:
        folder: the state directory.
    """

    def __init__(self, folder: Path) -> None:
        self._directory = StateDirectory(folder, "app")

    def __enter__(self) -> None:
        self._directory.lock_task(TASK)

    def __exit__(self, *_: object) -> None:
        self._directory.unlock_task(TASK)
