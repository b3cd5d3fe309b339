"""The work of a thread for a batch does not grow with the number of idle tasks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.task_bench import TaskBench, source
from support.tasks.thread_parts import SETTINGS

from millstream.clock import Waker
from millstream.errors import ProcessingError, RebalanceInProgressError
from millstream.processor.punctuation import PunctuationType
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.loop.uncommitted_work import UncommittedWork
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.time_limits import TimeLimits
from millstream.subscriptions.thread_state import SubscriptionThreadState
from millstream.testing.driver_topics import RawColumns

WALL_CLOCK, STREAM = PunctuationType.WALL_CLOCK_TIME, PunctuationType.STREAM_TIME
BATCHES = 20


class Thread:
    """A thread with running tasks, which takes one record at a time."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self.bench = TaskBench(folder)
        self.bench.assign(range(tasks))
        self.bench.run_all()
        self.commits: Any = Mock(commit=Mock(side_effect=self._commit))
        self.offset = 0
        self.work: list[str] = []
        rebalances: Any = Mock(
            is_rebalancing=False,
            blocks_processing=False,
            has_event=Mock(return_value=False),
        )
        self.rebalances = rebalances
        others: Any = Mock()
        self.thread = StreamThread(
            ThreadSettings(
                name="thread",
                poll_ms=SETTINGS.poll_ms,
                commit_interval_ms=600_000,
                max_poll_records=1_000,
                max_batch_records=1,
                max_task_idle_ms=0,
            ),
            others,
            rebalances=rebalances,
            tasks=self.bench.tasks,
            limits=TimeLimits(self.bench.clock),
            committer=self.commits,
            uncommitted=UncommittedWork(self.bench.clock, None),
            consumer=others,
            producer=others,
            global_updates=others,
            incarnations=Mock(outdated=Mock(return_value=[])),
            meters=ThreadMeters("thread", self.bench.clock),
            subscription_state=SubscriptionThreadState(),
            purge=others,
            resize_memory=others,
            cleanup=others,
            queries=others,
            close_others=[],
            clock=self.bench.clock,
            waker=Waker(),
        )
        self.thread._last_commit_ms = self.bench.clock.monotonic_ms()

    def _commit(self, tasks: list[StreamTask], **_: Any) -> dict[Any, Any]:
        self.work.append("commit")
        self.bench.commit()
        return {}

    def add(self, count: int, partition: int = 0) -> None:
        """Queue records for a task."""
        offsets = list(range(self.offset, self.offset + count))
        self.offset += count
        keys: list[bytes | None] = [b"k"] * count
        times = [10 * (offset + 1) for offset in offsets]
        columns = RawColumns(keys, keys, times, offsets, None)
        self.bench.tasks.inputs.add_records({source(partition): columns})

    def process(self) -> None:
        self.thread._process()

    def schedule(
        self, kind: PunctuationType, partition: int, call: Callable[[int], None], after_ms: int = 10
    ) -> Any:
        task = self.bench.task(partition)
        return task.processing.node_context.schedule(call, after_ms, kind, None)

    def close(self) -> None:
        self.bench.tasks.close_all(clean=False)


@pytest.fixture
def three(tmp_path: Path) -> Any:
    thread = Thread(tmp_path, 3)
    yield thread
    thread.close()


def count_calls(function: Callable[[], None]) -> int:
    """Count the Python functions that a call enters."""
    entered = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal entered
        entered += event == "call"

    # Calls by the garbage collector must not count.
    gc.collect()
    gc.disable()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return entered


def test_idle_tasks_do_not_increase_the_cost_of_a_batch(tmp_path: Path) -> None:
    """Detects loops over all tasks after each batch, which make a thread's work quadratic."""
    costs: dict[int, int] = {}
    for tasks in (2, 40):
        thread = Thread(tmp_path / str(tasks), tasks)
        for partition in range(tasks):
            thread.schedule(WALL_CLOCK, partition, lambda _: None, 3_600_000)
        thread.process()
        thread.add(BATCHES)
        costs[tasks] = count_calls(thread.process)
        assert thread.bench.task().processed_total == BATCHES
        thread.close()
    # One more call for each batch would be too many; more calls for each round are allowed.
    assert costs[40] - costs[2] < BATCHES


def test_wall_clock_punctuations_run_when_due_between_batches(three: Thread) -> None:
    """A task without records is punctuated at each of its times, and not after it is closed."""
    three.schedule(WALL_CLOCK, 2, lambda now_ms: three.work.append(f"at {now_ms}"))
    start_ms = three.bench.clock.now_ms()
    three.add(4)
    # Each batch takes 5 ms.
    three.rebalances.progress.side_effect = lambda: three.bench.clock.advance(5)
    three.process()
    assert three.work == [f"at {start_ms + 10}"]
    three.bench.clock.advance(1)
    assert three.bench.tasks.next_wall_clock_ms() == start_ms + 20
    three.process()
    assert three.work == [f"at {start_ms + 10}", f"at {start_ms + 21}"]
    three.bench.assign([0, 1])
    three.bench.clock.advance(100)
    three.process()
    assert len(three.work) == 2
    assert three.bench.tasks.next_wall_clock_ms() is None


def test_earlier_punctuation_that_is_scheduled_later_runs_on_time(three: Thread) -> None:
    """Also if a punctuation schedules it, or if another one was canceled."""
    later = three.schedule(WALL_CLOCK, 0, lambda _: three.work.append("later"), 1_000)

    def call(_: int) -> None:
        three.work.append("first")
        three.schedule(WALL_CLOCK, 1, lambda _: three.work.append("second"), 5)

    first = three.schedule(WALL_CLOCK, 1, call, 10)
    for _ in range(3):
        three.bench.clock.advance(5)
        three.process()
        if "first" in three.work:
            first.cancel()
    assert three.work == ["first", "second"]
    later.cancel()
    three.bench.clock.advance(1_000)
    three.process()
    assert "later" not in three.work


def test_stream_time_punctuation_scheduled_by_wall_clock_needs_no_batch(three: Thread) -> None:
    """As in Kafka Streams: its time has already come, and no record follows."""
    three.add(1)
    three.process()

    def call(_: int) -> None:
        three.schedule(STREAM, 0, lambda time_ms: three.work.append(f"stream {time_ms}"))

    three.schedule(WALL_CLOCK, 0, call, 10)
    three.bench.clock.advance(10)
    three.process()
    three.process()
    assert three.work == ["stream 10"]


def test_failed_punctuation_does_not_drop_others(three: Thread) -> None:
    def fail(_: int) -> None:
        raise ProcessingError("the user's")

    three.schedule(WALL_CLOCK, 0, fail)
    three.schedule(WALL_CLOCK, 1, lambda _: three.work.append("called"))
    three.bench.clock.advance(10)
    with pytest.raises(ProcessingError):
        three.process()
    three.process()
    assert three.work == ["called"]


@pytest.mark.parametrize("delay", ["none", "rejected", "rebalancing"])
def test_requested_commit_follows_its_batch(three: Thread, delay: str) -> None:
    """A delayed commit is made later."""
    task = three.bench.task(1)
    three.add(3, partition=1)
    step = task.step

    def step_and_request(limit: int) -> int:
        three.work.append("batch")
        if task.processed_total == 1:
            task.processing.node_context.request_commit()
            if delay == "rejected":
                errors = [RebalanceInProgressError("now")]
                three.commits.commit.side_effect = lambda tasks, **_: (
                    three._commit(tasks) if not errors else _raise(errors.pop())
                )
            three.rebalances.is_rebalancing = delay == "rebalancing"
        else:
            three.rebalances.is_rebalancing = False
        return step(limit)

    task.step = step_and_request  # type: ignore[method-assign]
    three.process()
    late = delay != "none"
    assert three.work == ["batch", "batch", *(["batch", "commit"] if late else ["commit", "batch"])]


def test_commit_requested_by_a_punctuation_is_made(three: Thread) -> None:
    three.schedule(
        WALL_CLOCK, 2, lambda _: three.bench.task(2).processing.node_context.request_commit()
    )
    three.bench.clock.advance(10)
    three.process()
    assert three.work == ["commit"]
    three.process()
    assert three.work == ["commit"]


def _raise(error: Exception) -> Any:
    raise error
