"""Warnings about tasks with state but without committed offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tasks.task_bench import TaskBench, changelog, source

from millstream.kafka.membership.member_events import CommitOffset
from millstream.runtime.task_management.expired_offsets import ExpiredOffsetsCheck


def run(bench: TaskBench) -> None:
    bench.assign([0])
    bench.run_all()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if "has no committed offsets" in text]


@pytest.mark.parametrize("remaining", ["state", "changelog"])
def test_task_with_state_and_without_committed_offsets_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, remaining: str
) -> None:
    """Detects counts that silently double after the offsets of the group have expired."""
    before = TaskBench(tmp_path / "before")
    run(before)
    before.feed("a", "b")
    before.tasks.close_all(clean=True)
    folder = tmp_path / ("before" if remaining == "state" else "after")
    bench = TaskBench(folder, before.cluster)
    for _ in range(2):
        run(bench)
        bench.tasks.close_all(clean=True)
    (text,) = warnings(caplog)
    assert f"'counts' (offset 1 of {changelog()})" in text
    assert f"Input: {source()} from offset 0." in text
    assert "task 0_0 has state" in text


def test_first_start_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is no state, even if the task moved before its first record."""
    bench = TaskBench(tmp_path)
    for _ in range(2):
        run(bench)
        bench.tasks.close_all(clean=True)
    assert warnings(caplog) == []


def test_changelog_of_aborted_transactions_contains_no_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first transaction of an application was aborted: the changelog only contains markers."""
    bench = TaskBench(tmp_path)
    bench.cluster.topic(changelog()).end = 7
    run(bench)
    bench.tasks.close_all(clean=True)
    assert warnings(caplog) == []


def test_task_with_empty_input_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may commit nothing but have state from its punctuators."""
    bench = TaskBench(tmp_path)
    for _ in range(2):
        run(bench)
        bench.cluster.topic(changelog()).append(b"k", bytes(8), 1_000)
        bench.main.has_input = False
        bench.tasks.close_all(clean=True)
    assert warnings(caplog) == []


def test_task_with_committed_offsets_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TaskBench(tmp_path)
    for _ in range(2):
        run(bench)
        bench.feed("a")
        bench.tasks.close_all(clean=True)
        bench.main.assigned.clear()
    assert warnings(caplog) == []


def test_new_topic_of_a_task_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A further topic matches the pattern, or one of the topics had no records so far."""
    bench = TaskBench(tmp_path)
    run(bench)
    bench.feed("a")
    task, new_partition = bench.task(), source(1)
    task.partitions |= {new_partition}
    starts = {source(): 1, new_partition: 0}
    expired = ExpiredOffsetsCheck(bench.main.have_records)
    expired.check(task, {source(): CommitOffset(1, ""), new_partition: None}, starts)
    assert warnings(caplog) == []
    expired.check(task, {source(): None, new_partition: None}, starts)
    assert len(warnings(caplog)) == 1


def test_table_whose_changelog_is_its_topic_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading it again changes nothing (`reuse.ktable.source.topics`)."""
    bench = TaskBench(tmp_path)
    run(bench)
    bench.feed("a")
    task = bench.task()
    task.partitions = frozenset({changelog()})
    ExpiredOffsetsCheck(bench.main.have_records).check(task, {changelog(): None}, {changelog(): 0})
    assert warnings(caplog) == []
