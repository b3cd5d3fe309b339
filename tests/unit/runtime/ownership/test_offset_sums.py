"""What the group's leader is told of the state that a thread has (KIP-441)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tasks.task_bench import TaskBench

from millstream.assignment.wire.protocol import LATEST_OFFSET
from millstream.record import TaskId
from millstream.runtime.ownership.offset_sums import OffsetSums

TASK = TaskId(0, 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[TaskBench]:
    """A task has counted three keys."""
    bench = TaskBench(tmp_path)
    bench.assign([0])
    bench.run_all()
    bench.feed("a", "b", "c")
    yield bench
    bench.tasks.close_all(clean=False)


def sums(bench: TaskBench) -> OffsetSums:
    told = OffsetSums(bench.directory)
    told.publish(bench.tasks.all)
    return told


def test_a_running_task_is_caught_up_and_a_copy_as_far_as_it_has_read(
    tmp_path: Path, bench: TaskBench
) -> None:
    copy = TaskBench(tmp_path / "copy", bench.cluster)
    copy.assign(standby=[0])
    assert sums(bench)() == {TASK: LATEST_OFFSET}
    assert sums(copy)() == {}, "its stores are not open yet"
    copy.advance()
    assert sums(copy)() == {TASK: 2}
    copy.advance()
    assert sums(copy)() == {TASK: 3}
    copy.tasks.close_all(clean=True)


def test_what_is_left_on_disk_counts_until_it_is_opened(bench: TaskBench) -> None:
    bench.tasks.close_all(clean=True)
    assert sums(bench)() == {TASK: 3}
    bench.assign([0])
    bench.run_all()
    assert sums(bench)() == {TASK: LATEST_OFFSET}
    bench.tasks.close_all(clean=True)
    bench.directory.remove_task_directory(TASK)
    assert sums(bench)() == {}
