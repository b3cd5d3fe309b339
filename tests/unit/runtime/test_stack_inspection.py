"""The position of a thread according to its stack: task, node and record."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.batches.drivers import QueuedDriver

from millstream import (
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stall,
    StreamsBuilder,
    StreamsConfig,
    TaskId,
)
from millstream.clock import ManualClock
from millstream.runtime.loop.watchdog import Watchdog
from millstream.runtime.stack_inspection import running_task, stall_of
from millstream.runtime.thread_control import LoopStalled, Report
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

#: The stack is inspected at the third of five records.
VALUES = ["a", "b", "here", "c", "d"]

IN_MEMORY = Materialized("latest", kind="in_memory", key=STRING, value=STRING)

Inspect = Callable[[object], None]


class InspectingProcessor(Processor[str, str, str, str]):
    def __init__(self, inspect_stack: Inspect, *, by_time: bool = False) -> None:
        self._inspect = inspect_stack
        self._by_time = by_time

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        if self._by_time:
            context.schedule(
                timedelta(milliseconds=1),
                PunctuationType.STREAM_TIME,
                lambda time_ms: self._inspect("here"),
            )

    def process(self, record: Record[str, str]) -> None:
        if not self._by_time:
            self._inspect(record.value)
        self.context.forward(record)


def inspect_and_return(inspect_stack: Inspect, value: Any) -> Any:
    inspect_stack(value)
    return value


TOPOLOGIES: dict[str, Callable[[Any, Inspect], Any]] = {
    "map": lambda stream, inspect_stack: stream.map_values(
        lambda v: inspect_and_return(inspect_stack, v)
    ),
    "filter": lambda stream, inspect_stack: stream.filter(
        lambda k, v: inspect_and_return(inspect_stack, v) is not None
    ),
    "process": lambda stream, inspect_stack: stream.process(
        lambda: InspectingProcessor(inspect_stack)
    ),
    "aggregate": lambda stream, inspect_stack: (
        stream.group_by_key()
        .aggregate(str, lambda k, v, old: inspect_and_return(inspect_stack, v), store=IN_MEMORY)
        .to_stream()
    ),
    "after others": lambda stream, inspect_stack: stream.filter_not(
        lambda k, v: v == "a"
    ).map_values(lambda v: inspect_and_return(inspect_stack, v)),
}


def find_stall(make: Callable[[Any, Inspect], Any]) -> tuple[Stall, str]:
    """Return the stall at the record `here`, and the description of the topology."""
    found: list[Stall] = []

    def inspect_stack(value: object) -> None:
        if value == "here":
            found.append(stall_of(sys._getframe(), 7))

    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING), inspect_stack).to(
        "out", key=STRING, value=STRING
    )
    topology = builder.build()
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    with closing(QueuedDriver(topology, config, batch_size=10)) as driver:
        for index, value in enumerate(VALUES):
            driver.feed("in", b"k", value.encode(), index)
        driver.finish()
    return found[0], str(topology.describe())


@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_record_is_found_whatever_calls_user_code(kind: str) -> None:
    stall, description = find_stall(TOPOLOGIES[kind])
    assert (stall.silent_ms, stall.task_id) == (7, "0_0")
    assert (stall.topic, stall.partition, stall.offset) == ("in", 0, 2)
    assert stall.node is not None
    assert stall.node in description
    assert stall.place == f"task 0_0, node {stall.node}, in-0 offset 2"
    assert any("in inspect_stack" in line for line in stall.stack)


def test_punctuator_has_no_record() -> None:
    stall, _ = find_stall(
        lambda stream, inspect_stack: stream.process(
            lambda: InspectingProcessor(inspect_stack, by_time=True)
        )
    )
    assert stall.node is not None
    assert stall.place == f"task 0_0, node {stall.node}"


async def inspect_later(inspect_stack: Inspect, value: Any) -> Any:
    await asyncio.sleep(0)
    return inspect_and_return(inspect_stack, value)


CONCURRENT: dict[str, Callable[[Any, Inspect], Any]] = {
    "thread": lambda stream, inspect_stack: stream.map_async(
        lambda v: inspect_and_return(inspect_stack, v), concurrency=2
    ),
    "coroutine": lambda stream, inspect_stack: stream.map_async(
        partial(inspect_later, inspect_stack), concurrency=2
    ),
}


@pytest.mark.parametrize("kind", [*TOPOLOGIES, *CONCURRENT])
def test_task_of_a_log_line(kind: str) -> None:
    """Also on other threads, and in a coroutine after an `await`."""
    found: list[TaskId | None] = []
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    make = (TOPOLOGIES | CONCURRENT)[kind]
    make(stream, lambda _: found.append(running_task())).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "here")
        assert driver.create_output_topic("out", key=STRING, value=STRING).read_value() == "here"
    assert found == [TaskId(0, 0)]
    assert running_task() is None


def test_stack_outside_of_tasks() -> None:
    stall = stall_of(sys._getframe(), 1)
    assert stall.place == "no task"
    assert "test_stack_outside_of_tasks" in stall.stack[-1]


class WatchedLoop:
    """A loop and a watchdog that only advance in calls of the test."""

    def __init__(self) -> None:
        self.rounds = 0
        self.reports: list[int | None] = []
        self.clock = ManualClock()
        self.watchdog = Watchdog("thread", lambda: self.rounds, 1_000, self._report, self.clock)

    def _report(self, report: Report) -> None:
        assert isinstance(report, LoopStalled)
        self.reports.append(None if report.stall is None else report.stall.silent_ms)

    def check_after(self, after_ms: int, *, rounds: int = 0) -> None:
        self.clock.advance(after_ms)
        self.rounds += rounds
        self.watchdog.check_loop()


def test_hanging_loop_is_reported_each_time_that_the_limit_passes() -> None:
    """Its recovery is reported as well. Detects reports every second, and reports that never
    come."""
    watched = WatchedLoop()
    with watched.watchdog:
        watched.check_after(0)
        for _ in range(5):
            watched.check_after(500)
        assert watched.reports == [1_000, 2_000]
        watched.check_after(100, rounds=1)
        watched.check_after(900)
        assert watched.reports == [1_000, 2_000, None]


def test_active_loop_is_not_reported() -> None:
    watched = WatchedLoop()
    with watched.watchdog:
        for _ in range(5):
            watched.check_after(900, rounds=1)
    assert watched.reports == []
