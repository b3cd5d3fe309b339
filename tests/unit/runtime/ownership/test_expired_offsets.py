"""A task that holds state without committed offsets is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tasks.task_bench import TaskBench, changelog, source

from millstream.kafka.member.events import CommitOffset
from millstream.runtime.ownership.expired_offsets import ExpiredOffsets


def run(bench: TaskBench) -> None:
    bench.assign([0])
    bench.run_all()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if "has no committed offsets" in text]


@pytest.mark.parametrize("kept", ["state", "changelog"])
def test_a_task_with_state_and_without_committed_offsets_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: str
) -> None:
    """Hunts for counts that are silently doubled after the offsets of the group have expired."""
    before = TaskBench(tmp_path / "before")
    run(before)
    before.feed("a", "b")
    before.tasks.close_all(clean=True)
    folder = tmp_path / ("before" if kept == "state" else "after")
    bench = TaskBench(folder, before.cluster)
    for _ in range(2):
        run(bench)
        bench.tasks.close_all(clean=True)
    (text,) = warnings(caplog)
    assert f"'counts' (offset 1 of {changelog()})" in text
    assert f"Input: {source()} from offset 0." in text
    assert "task 0_0 has state" in text


def test_a_first_start_is_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is no state, even if its task has moved before the first record came."""
    bench = TaskBench(tmp_path)
    for _ in range(2):
        run(bench)
        bench.tasks.close_all(clean=True)
    assert warnings(caplog) == []


def test_a_changelog_of_transactions_that_were_aborted_holds_no_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first transaction of an application was given up: it ends with markers only."""
    bench = TaskBench(tmp_path)
    bench.cluster.topic(changelog()).end = 7
    run(bench)
    bench.tasks.close_all(clean=True)
    assert warnings(caplog) == []


def test_a_task_with_empty_input_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may commit nothing, and have state of its punctuators."""
    bench = TaskBench(tmp_path)
    for _ in range(2):
        run(bench)
        bench.cluster.topic(changelog()).append(b"k", bytes(8), 1_000)
        bench.main.has_input = False
        bench.tasks.close_all(clean=True)
    assert warnings(caplog) == []


def test_a_task_that_has_committed_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TaskBench(tmp_path)
    for _ in range(2):
        run(bench)
        bench.feed("a")
        bench.tasks.close_all(clean=True)
        bench.main.assigned.clear()
    assert warnings(caplog) == []


def test_a_topic_that_is_new_to_a_task_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One more topic matches its pattern, or one of its topics had no records so far."""
    bench = TaskBench(tmp_path)
    run(bench)
    bench.feed("a")
    task, more = bench.task(), source(1)
    task.partitions |= {more}
    starts = {source(): 1, more: 0}
    expired = ExpiredOffsets(bench.main.have_records)
    expired.check(task, {source(): CommitOffset(1, ""), more: None}, starts)
    assert warnings(caplog) == []
    expired.check(task, {source(): None, more: None}, starts)
    assert len(warnings(caplog)) == 1


def test_a_table_that_is_read_from_its_own_topic_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading it again changes nothing (`reuse.ktable.source.topics`)."""
    bench = TaskBench(tmp_path)
    run(bench)
    bench.feed("a")
    task = bench.task()
    task.partitions = frozenset({changelog()})
    ExpiredOffsets(bench.main.have_records).check(task, {changelog(): None}, {changelog(): 0})
    assert warnings(caplog) == []
