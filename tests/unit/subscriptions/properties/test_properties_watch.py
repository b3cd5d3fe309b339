"""A file of properties that changes: what is taken, when, and what is said."""

from __future__ import annotations

import logging
import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from support.waiting import wait_for

from millstream.errors import ConfigError, IllegalStateError
from millstream.parallel import Properties, PropertiesFile
from millstream.subscriptions.properties.declared import Applied, declared
from millstream.subscriptions.properties.watch import PropertiesWatch

GIVEN = Properties(partition_concurrency=2, commit_interval_ms=5)


class WithFixed(Properties):
    """Properties of which one cannot change while running."""

    units: int = declared("units", 4, Applied.AT_START, kind="int", least=1, doc="How many.")


class Followed:
    """A file, its watch, and the properties that the watch has brought."""

    def __init__(self, path: Path, content: str, given: Properties = GIVEN) -> None:
        self.path = path
        path.write_text(content)
        self.brought: list[Properties] = []
        file = PropertiesFile(path, timedelta(milliseconds=1))
        self.watch = PropertiesWatch(file, given, self.brought.append)

    def write(self, content: str) -> bool:
        """Whether a new content has changed something, when looked at often enough."""
        self.path.write_text(content)
        return self.settle()

    def settle(self) -> bool:
        assert not self.watch.check()
        return self.watch.check()

    @property
    def concurrency(self) -> int:
        return self.watch.properties.partition_concurrency


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path / "p.toml", "partition_concurrency = 4")


def test_a_change_is_brought_once(followed: Followed) -> None:
    """With all the properties, those given in code as well."""
    assert followed.concurrency == 4
    assert followed.write("partition_concurrency = 8")
    assert [each.as_given() for each in followed.brought] == [
        {"partition_concurrency": 8, "commit_interval_ms": 5}
    ]
    assert not followed.watch.check()
    assert not followed.write("partition.concurrency = 8  # the same")
    assert len(followed.brought) == 1


def test_a_file_that_is_being_written_is_not_taken(followed: Followed) -> None:
    """Hunts a half-written file whose missing half falls back to what code says."""
    for half in ("", "partition_", "partition_concurrency = 1"):
        followed.path.write_text(half)
        assert not followed.watch.check()
    assert followed.write("partition_concurrency = 12")
    assert [each.partition_concurrency for each in followed.brought] == [12]


def test_a_change_that_no_time_tells_is_noticed(followed: Followed) -> None:
    """The same size, and the times of before."""
    before = followed.path.stat()
    followed.path.write_text("partition_concurrency = 5")
    os.utime(followed.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert followed.settle()
    assert followed.concurrency == 5


def test_a_file_may_be_replaced_by_another(followed: Followed, tmp_path: Path) -> None:
    """As editors do that write a new file and rename it."""
    new = tmp_path / "new"
    new.write_text("partition_concurrency = 6")
    new.replace(followed.path)
    assert followed.settle()
    assert followed.concurrency == 6


def test_links_of_a_config_map_are_followed(tmp_path: Path) -> None:
    """Kubernetes links the file to `..data/`, and `..data` to another folder each time."""
    for number in (1, 2):
        folder = tmp_path / f"..version{number}"
        folder.mkdir()
        (folder / "p.toml").write_text(f"partition_concurrency = {number}")
    (tmp_path / "..data").symlink_to("..version1")
    (tmp_path / "p.toml").symlink_to("..data/p.toml")
    brought: list[Properties] = []
    watch = PropertiesWatch(PropertiesFile(tmp_path / "p.toml"), GIVEN, brought.append)
    assert watch.properties.partition_concurrency == 1
    (tmp_path / "..data_tmp").symlink_to("..version2")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    assert [watch.check(), watch.check()] == [False, True]
    assert watch.properties.partition_concurrency == 2


def test_what_is_deleted_goes_back_to_the_value_of_the_code(followed: Followed) -> None:
    """Hunts a value that is in force though it stands nowhere any more."""
    assert followed.write("max_pending_records = 7")
    assert followed.watch.properties.as_given() == {
        "partition_concurrency": 2,
        "max_pending_records": 7,
        "commit_interval_ms": 5,
    }


def test_a_wrong_value_keeps_the_former_one_and_the_others_count(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told with property, value and reason; a value of the code is kept as well."""
    assert followed.write(
        "partition_concurrency = 0\ncommit_interval_ms = 'soon'\nmax_pending_records = 7\nx = 1"
    )
    properties = followed.watch.properties
    assert (properties.partition_concurrency, properties.commit_interval_ms) == (4, 5)
    assert properties.max_pending_records == 7
    told = sorted(record.getMessage() for record in caplog.records)
    assert len(told) == 3
    assert "There is no property 'x'. It is left out." in told[0]
    assert "commit.interval.ms is 'soon', but must be a number. It stays as it was." in told[1]
    assert "partition_concurrency is 0, but must be at least 1." in told[2]


def test_what_is_wrong_is_told_once(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    """Until it was right, or is wrong in another way."""
    counts = []
    for concurrency, pending in ((0, 7), (0, 8), (-1, 8), (3, 8), (-1, 8)):
        followed.write(f"partition_concurrency = {concurrency}\nmax_pending_records = {pending}")
        counts.append(len(caplog.records))
    assert counts == [1, 1, 2, 2, 3]
    assert followed.concurrency == 3


@pytest.mark.parametrize("content", ["partition_concurrency =", None])
def test_a_file_that_is_broken_or_gone_changes_nothing(
    followed: Followed, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    """It is told once, and what comes after it counts."""
    if content is None:
        followed.path.unlink()
    else:
        followed.path.write_text(content)
    for _ in range(4):
        assert not followed.watch.check()
    assert followed.concurrency == 4
    assert len(caplog.records) == 1
    assert "All stays as it was." in caplog.records[0].getMessage()
    assert followed.write("partition_concurrency = 9")
    assert followed.concurrency == 9


def test_a_file_that_is_away_for_a_moment_is_not_told(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """As between the two steps of an editor that renames."""
    followed.path.unlink()
    assert not followed.watch.check()
    followed.path.write_text("partition_concurrency = 4")
    assert not followed.watch.check()
    assert not followed.watch.check()
    assert caplog.records == []


def test_at_the_start_everything_must_be_right(tmp_path: Path) -> None:
    """There is nothing yet that could stay as it was."""
    with pytest.raises(ConfigError, match="partition_concurrency is 0"):
        Followed(tmp_path / "p.toml", "partition_concurrency = 0")


def test_the_file_wins_over_what_code_gives_later(followed: Followed) -> None:
    """What the code gives counts for what the file leaves alone."""
    assert followed.watch.give(GIVEN.changed(partition_concurrency=20, commit_interval_ms=6))
    assert followed.watch.properties.as_given() == {
        "partition_concurrency": 4,
        "commit_interval_ms": 6,
    }
    assert not followed.watch.give(GIVEN.changed(partition_concurrency=30, commit_interval_ms=6))
    assert followed.write("")
    assert followed.concurrency == 30
    assert len(followed.brought) == 2


def test_what_cannot_change_while_running_is_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the file brings it, loses it, or code gives it."""
    followed = Followed(tmp_path / "p.toml", "units = 5", WithFixed())
    assert followed.write("units = 6\ncommit_interval_ms = 7")
    assert not followed.write("commit_interval_ms = 7")
    assert followed.watch.properties.as_given() == {"units": 5, "commit_interval_ms": 7}
    # Wrong for the same reason each time, so it is told once.
    assert len(caplog.records) == 1
    assert "units cannot change while the subscription runs" in caplog.records[0].getMessage()
    other = Followed(tmp_path / "q.toml", "", WithFixed())
    with pytest.raises(ConfigError, match="units cannot change"):
        other.watch.give(WithFixed(units=6))
    assert other.watch.properties == WithFixed()


def test_who_fails_to_take_a_change_is_told_of_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hunts a watch that ends with what it calls."""
    path = tmp_path / "p.toml"
    path.write_text("partition_concurrency = 4")
    called: list[int] = []

    def fail(properties: Properties) -> None:
        called.append(properties.partition_concurrency)
        raise ArithmeticError("no")

    watch = PropertiesWatch(PropertiesFile(path), GIVEN, fail)
    for number in (5, 6):
        path.write_text(f"partition_concurrency = {number}")
        assert [watch.check(), watch.check()] == [False, True]
    assert called == [5, 6]
    assert "Changing partition_concurrency failed." in caplog.records[0].getMessage()


def test_the_thread_looks_until_it_is_stopped(followed: Followed) -> None:
    """It can be started once, and stopped twice, also before it was started."""
    followed.watch.start()
    with pytest.raises(IllegalStateError):
        followed.watch.start()
    followed.path.write_text("partition_concurrency = 8")
    wait_for(lambda: followed.brought, what="the change was brought")
    followed.watch.stop()
    followed.watch.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert f"properties-{followed.path}" not in names


def test_the_thread_may_stop_itself(tmp_path: Path) -> None:
    """Hunts a thread that waits for its own end."""
    path = tmp_path / "p.toml"
    path.write_text("")
    stopped = threading.Event()

    def stop(_: Properties) -> None:
        watch.stop()
        stopped.set()

    watch = PropertiesWatch(PropertiesFile(path, timedelta(milliseconds=1)), GIVEN, stop)
    watch.start()
    path.write_text("commit_interval_ms = 9")
    assert stopped.wait(4)


def test_keys_do_not_come_into_the_log(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes are told with their values, keys of records only counted: they may be people."""
    with caplog.at_level(logging.INFO):
        assert followed.write("ignore_keys = ['alice', 'bob']\ncommit_interval_ms = 9")
    assert "commit_interval_ms=9, ignore_keys (2), partition_concurrency=2" in caplog.text
    assert "alice" not in caplog.text


def test_a_watch_that_never_ran_can_be_stopped(followed: Followed) -> None:
    """Closing what was never started is no error."""
    followed.watch.stop()
