"""The state of a thread, as reported to the leader of the group (KIP-441)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tasks.task_bench import TaskBench

from millstream.assignment.wire_format import LATEST_OFFSET
from millstream.record import TaskId
from millstream.runtime.task_management.task_manager import OffsetSums

TASK = TaskId(0, 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[TaskBench]:
    """A bench with a task that has counted three keys."""
    bench = TaskBench(tmp_path)
    bench.assign([0])
    bench.run_all()
    bench.feed("a", "b", "c")
    yield bench
    bench.tasks.close_all(clean=False)


def publish_sums(bench: TaskBench) -> OffsetSums:
    sums = OffsetSums(bench.directory)
    sums.publish(bench.tasks.all)
    return sums


def test_running_task_is_up_to_date_and_a_standby_as_far_as_it_has_read(
    tmp_path: Path, bench: TaskBench
) -> None:
    standby = TaskBench(tmp_path / "copy", bench.cluster)
    standby.assign(standby=[0])
    assert publish_sums(bench)() == {TASK: LATEST_OFFSET}
    assert publish_sums(standby)() == {}, "its stores are not open yet"
    standby.advance()
    assert publish_sums(standby)() == {TASK: 2}
    standby.advance()
    assert publish_sums(standby)() == {TASK: 3}
    standby.tasks.close_all(clean=True)


def test_state_on_disk_counts_until_it_is_opened(bench: TaskBench) -> None:
    bench.tasks.close_all(clean=True)
    assert publish_sums(bench)() == {TASK: 3}
    bench.assign([0])
    bench.run_all()
    assert publish_sums(bench)() == {TASK: LATEST_OFFSET}
    bench.tasks.close_all(clean=True)
    bench.directory.remove_task_directory(TASK)
    assert publish_sums(bench)() == {}
