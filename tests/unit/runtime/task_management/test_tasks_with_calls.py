"""Tasks with wall-clock punctuations, and with calls in flight behind them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tasks.task_bench import TaskBench

from millstream import Processor, PunctuationType, Record


class Ticking(Processor[str, str, str, str]):
    """Forwards a record every second."""

    def init(self, context: Any) -> None:
        self._context = context
        context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, self._tick)

    def process(self, record: Record[str, str]) -> None:
        raise AssertionError("there are no records")

    def _tick(self, now_ms: int) -> None:
        self._context.forward(Record("tick", str(now_ms), now_ms))


async def identity(value: str) -> str:
    return value


@pytest.fixture
def results() -> list[str]:
    return []


@pytest.fixture
def bench(tmp_path: Path, results: list[str]) -> TaskBench:
    bench = TaskBench(
        tmp_path,
        build=lambda s: (
            s.process(Ticking).map_async(identity).for_each(lambda k, v: results.append(v))
        ),
    )
    bench.assign([0])
    bench.run_all()
    return bench


def test_calls_of_a_punctuation_continue_without_records(
    bench: TaskBench, results: list[str]
) -> None:
    bench.clock.advance(1_000)
    assert bench.tasks.punctuate()
    assert bench.tasks.inputs.processable(0) == []
    bench.held.end_all()
    assert bench.tasks.inputs.processable(0) == [bench.task()]
    bench.tasks.step(bench.task(), 100)
    assert results == [str(bench.clock.now_ms())]
    bench.tasks.close_all(clean=False)


def test_wall_clock_punctuations_continue_after_a_delayed_commit(bench: TaskBench) -> None:
    """There are no punctuations while the commit waits; otherwise the commit would wait forever."""
    task = bench.task()
    bench.clock.advance(1_000)
    bench.tasks.punctuate()
    assert not task.can_commit()
    bench.clock.advance(1_000)
    assert not bench.tasks.punctuate()
    assert task.commit_requested
    bench.held.end_all()
    bench.commit()
    assert not task.commit_requested
    assert bench.tasks.next_wall_clock_ms() is not None
    assert bench.tasks.punctuate()
    bench.tasks.close_all(clean=False)
