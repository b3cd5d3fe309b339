"""Changes of a properties file: when they are applied, and the messages about them."""

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
from millstream.subscriptions.properties.properties_watcher import PropertiesWatcher
from millstream.subscriptions.properties.subscription_properties import Applied, declare

IN_CODE = Properties(partition_concurrency=2, commit_interval_ms=5)


class WithFixedProperty(Properties):
    """Properties with one that cannot change while running."""

    units: int = declare("units", 4, Applied.AT_START, kind="int", least=1, doc="How many.")


class WatchedFile:
    """A file, its watcher, and the properties that the watcher has reported."""

    def __init__(self, path: Path, content: str, in_code: Properties = IN_CODE) -> None:
        self.path = path
        path.write_text(content)
        self.reported: list[Properties] = []
        file = PropertiesFile(path, timedelta(milliseconds=1))
        self.watch = PropertiesWatcher(file, in_code, self.reported.append)

    def write(self, content: str) -> bool:
        """Write new content, and return whether it has changed something after enough checks."""
        self.path.write_text(content)
        return self.settle()

    def settle(self) -> bool:
        assert not self.watch.check()
        return self.watch.check()

    @property
    def concurrency(self) -> int:
        return self.watch.properties.partition_concurrency


@pytest.fixture
def watched(tmp_path: Path) -> WatchedFile:
    return WatchedFile(tmp_path / "p.toml", "partition_concurrency = 4")


def test_change_is_reported_once(watched: WatchedFile) -> None:
    """With all properties, including those given in code."""
    assert watched.concurrency == 4
    assert watched.write("partition_concurrency = 8")
    assert [each.as_given() for each in watched.reported] == [
        {"partition_concurrency": 8, "commit_interval_ms": 5}
    ]
    assert not watched.watch.check()
    assert not watched.write("partition.concurrency = 8  # the same")
    assert len(watched.reported) == 1


def test_file_that_is_being_written_is_not_read(watched: WatchedFile) -> None:
    """Detects a half-written file whose missing half falls back to the values in code."""
    for half in ("", "partition_", "partition_concurrency = 1"):
        watched.path.write_text(half)
        assert not watched.watch.check()
    assert watched.write("partition_concurrency = 12")
    assert [each.partition_concurrency for each in watched.reported] == [12]


def test_change_without_a_new_timestamp_is_detected(watched: WatchedFile) -> None:
    """The same size, and the previous timestamps."""
    before = watched.path.stat()
    watched.path.write_text("partition_concurrency = 5")
    os.utime(watched.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watched.settle()
    assert watched.concurrency == 5


def test_file_can_be_replaced_by_another(watched: WatchedFile, tmp_path: Path) -> None:
    """Like editors that write a new file and rename it."""
    new = tmp_path / "new"
    new.write_text("partition_concurrency = 6")
    new.replace(watched.path)
    assert watched.settle()
    assert watched.concurrency == 6


def test_links_of_a_config_map_are_followed(tmp_path: Path) -> None:
    """Kubernetes links the file to `..data/`, and `..data` to another folder each time."""
    for number in (1, 2):
        folder = tmp_path / f"..version{number}"
        folder.mkdir()
        (folder / "p.toml").write_text(f"partition_concurrency = {number}")
    (tmp_path / "..data").symlink_to("..version1")
    (tmp_path / "p.toml").symlink_to("..data/p.toml")
    reported: list[Properties] = []
    watch = PropertiesWatcher(PropertiesFile(tmp_path / "p.toml"), IN_CODE, reported.append)
    assert watch.properties.partition_concurrency == 1
    (tmp_path / "..data_tmp").symlink_to("..version2")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")
    assert [watch.check(), watch.check()] == [False, True]
    assert watch.properties.partition_concurrency == 2


def test_removed_property_returns_to_the_value_in_code(watched: WatchedFile) -> None:
    """Detects a value that stays in effect although it was removed."""
    assert watched.write("max_pending_records = 7")
    assert watched.watch.properties.as_given() == {
        "partition_concurrency": 2,
        "max_pending_records": 7,
        "commit_interval_ms": 5,
    }


def test_invalid_value_keeps_the_previous_one_and_others_apply(
    watched: WatchedFile, caplog: pytest.LogCaptureFixture
) -> None:
    """The message contains property, value and reason. Values in code are kept as well."""
    assert watched.write(
        "partition_concurrency = 0\ncommit_interval_ms = 'soon'\nmax_pending_records = 7\nx = 1"
    )
    properties = watched.watch.properties
    assert (properties.partition_concurrency, properties.commit_interval_ms) == (4, 5)
    assert properties.max_pending_records == 7
    messages = sorted(record.getMessage() for record in caplog.records)
    assert len(messages) == 3
    assert "There is no property 'x'. It is ignored." in messages[0]
    assert "commit.interval.ms is 'soon', but must be a number. It was not changed." in messages[1]
    assert "partition_concurrency is 0, but must be at least 1." in messages[2]


def test_mistake_is_logged_once(watched: WatchedFile, caplog: pytest.LogCaptureFixture) -> None:
    """Until it is corrected, or changes."""
    counts = []
    for concurrency, pending in ((0, 7), (0, 8), (-1, 8), (3, 8), (-1, 8)):
        watched.write(f"partition_concurrency = {concurrency}\nmax_pending_records = {pending}")
        counts.append(len(caplog.records))
    assert counts == [1, 1, 2, 2, 3]
    assert watched.concurrency == 3


@pytest.mark.parametrize("content", ["partition_concurrency =", None])
def test_broken_or_missing_file_changes_nothing(
    watched: WatchedFile, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    """It is logged once, and later content applies."""
    if content is None:
        watched.path.unlink()
    else:
        watched.path.write_text(content)
    for _ in range(4):
        assert not watched.watch.check()
    assert watched.concurrency == 4
    assert len(caplog.records) == 1
    assert "No property was changed." in caplog.records[0].getMessage()
    assert watched.write("partition_concurrency = 9")
    assert watched.concurrency == 9


def test_file_that_is_missing_for_a_moment_is_not_logged(
    watched: WatchedFile, caplog: pytest.LogCaptureFixture
) -> None:
    """For example between the two steps of an editor that renames files."""
    watched.path.unlink()
    assert not watched.watch.check()
    watched.path.write_text("partition_concurrency = 4")
    assert not watched.watch.check()
    assert not watched.watch.check()
    assert caplog.records == []


def test_file_must_be_valid_at_the_start(tmp_path: Path) -> None:
    """There are no previous values to keep."""
    with pytest.raises(ConfigError, match="partition_concurrency is 0"):
        WatchedFile(tmp_path / "p.toml", "partition_concurrency = 0")


def test_file_takes_precedence_over_later_values_in_code(watched: WatchedFile) -> None:
    """Values in code apply to properties that are not in the file."""
    assert watched.watch.set_given(IN_CODE.changed(partition_concurrency=20, commit_interval_ms=6))
    assert watched.watch.properties.as_given() == {
        "partition_concurrency": 4,
        "commit_interval_ms": 6,
    }
    assert not watched.watch.set_given(
        IN_CODE.changed(partition_concurrency=30, commit_interval_ms=6)
    )
    assert watched.write("")
    assert watched.concurrency == 30
    assert len(watched.reported) == 2


def test_fixed_property_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whether the file adds or removes it, or code changes it."""
    watched = WatchedFile(tmp_path / "p.toml", "units = 5", WithFixedProperty())
    assert watched.write("units = 6\ncommit_interval_ms = 7")
    assert not watched.write("commit_interval_ms = 7")
    assert watched.watch.properties.as_given() == {"units": 5, "commit_interval_ms": 7}
    # The reason is the same each time, so it is logged once.
    assert len(caplog.records) == 1
    assert "units cannot change while the subscription runs" in caplog.records[0].getMessage()
    other = WatchedFile(tmp_path / "q.toml", "", WithFixedProperty())
    with pytest.raises(ConfigError, match="units cannot change"):
        other.watch.set_given(WithFixedProperty(units=6))
    assert other.watch.properties == WithFixedProperty()


def test_failing_listener_receives_the_next_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Detects a watcher that ends with an exception of its listener."""
    path = tmp_path / "p.toml"
    path.write_text("partition_concurrency = 4")
    called: list[int] = []

    def fail(properties: Properties) -> None:
        called.append(properties.partition_concurrency)
        raise ArithmeticError("no")

    watch = PropertiesWatcher(PropertiesFile(path), IN_CODE, fail)
    for number in (5, 6):
        path.write_text(f"partition_concurrency = {number}")
        assert [watch.check(), watch.check()] == [False, True]
    assert called == [5, 6]
    assert "Changing partition_concurrency failed." in caplog.records[0].getMessage()


def test_thread_checks_the_file_until_it_is_stopped(watched: WatchedFile) -> None:
    """It can be started once and stopped twice, also before it was started."""
    watched.watch.start()
    with pytest.raises(IllegalStateError):
        watched.watch.start()
    watched.path.write_text("partition_concurrency = 8")
    wait_for(lambda: watched.reported, what="the change is reported")
    watched.watch.stop()
    watched.watch.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert f"properties-{watched.path}" not in names


def test_thread_can_stop_itself(tmp_path: Path) -> None:
    """Detects a thread that waits for its own end."""
    path = tmp_path / "p.toml"
    path.write_text("")
    stopped = threading.Event()

    def stop(_: Properties) -> None:
        watch.stop()
        stopped.set()

    watch = PropertiesWatcher(PropertiesFile(path, timedelta(milliseconds=1)), IN_CODE, stop)
    watch.start()
    path.write_text("commit_interval_ms = 9")
    assert stopped.wait(4)


def test_keys_are_not_logged(watched: WatchedFile, caplog: pytest.LogCaptureFixture) -> None:
    """Changes are logged with their values, but keys of records are only counted: they may be
    personal data."""
    with caplog.at_level(logging.INFO):
        assert watched.write("ignore_keys = ['alice', 'bob']\ncommit_interval_ms = 9")
    assert "commit_interval_ms=9, ignore_keys (2), partition_concurrency=2" in caplog.text
    assert "alice" not in caplog.text


def test_watcher_that_never_ran_can_be_stopped(watched: WatchedFile) -> None:
    watched.watch.stop()
