"""Where a thread is, as its stack tells: task, node and record, whoever calls user code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from support.batches.queued_driver import QueuedDriver

from millstream import (
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stall,
    StreamsBuilder,
    StreamsConfig,
)
from millstream.clock import ManualClock
from millstream.runtime.control import LoopStalled, Report
from millstream.runtime.loop.watchdog import Watchdog
from millstream.runtime.whereabouts import stall_of
from millstream.serdes import STRING

#: The third of five records is the one that something happens on.
VALUES = ["a", "b", "here", "c", "d"]

IN_MEMORY = Materialized("latest", kind="in_memory", key=STRING, value=STRING)

Look = Callable[[object], None]


class Looking(Processor[str, str, str, str]):
    def __init__(self, look: Look, *, by_time: bool = False) -> None:
        self._look = look
        self._by_time = by_time

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        if self._by_time:
            context.schedule(
                timedelta(milliseconds=1),
                PunctuationType.STREAM_TIME,
                lambda time_ms: self._look("here"),
            )

    def process(self, record: Record[str, str]) -> None:
        if not self._by_time:
            self._look(record.value)
        self.context.forward(record)


def noting(look: Look, value: Any) -> Any:
    look(value)
    return value


TOPOLOGIES: dict[str, Callable[[Any, Look], Any]] = {
    "map": lambda stream, look: stream.map_values(lambda v: noting(look, v)),
    "filter": lambda stream, look: stream.filter(lambda k, v: noting(look, v) is not None),
    "process": lambda stream, look: stream.process(lambda: Looking(look)),
    "aggregate": lambda stream, look: (
        stream.group_by_key()
        .aggregate(str, lambda k, v, known: noting(look, v), store=IN_MEMORY)
        .to_stream()
    ),
    "after others": lambda stream, look: stream.filter_not(lambda k, v: v == "a").map_values(
        lambda v: noting(look, v)
    ),
}


def looked(make: Callable[[Any, Look], Any]) -> tuple[Stall, str]:
    """What was found on the record `here`, and the topology's description."""
    found: list[Stall] = []

    def look(value: object) -> None:
        if value == "here":
            found.append(stall_of(sys._getframe(), 7))

    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING), look).to("out", key=STRING, value=STRING)
    topology = builder.build()
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    with closing(QueuedDriver(topology, config, batch_size=10)) as driver:
        for index, value in enumerate(VALUES):
            driver.feed("in", b"k", value.encode(), index)
        driver.finish()
    return found[0], str(topology.describe())


@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_the_record_is_found_whatever_calls_user_code(kind: str) -> None:
    stall, description = looked(TOPOLOGIES[kind])
    assert (stall.silent_ms, stall.task_id) == (7, "0_0")
    assert (stall.topic, stall.partition, stall.offset) == ("in", 0, 2)
    assert stall.node is not None
    assert stall.node in description
    assert stall.place == f"task 0_0, node {stall.node}, in-0 offset 2"
    assert any("in look" in line for line in stall.stack)


def test_a_punctuator_has_no_record() -> None:
    stall, _ = looked(lambda stream, look: stream.process(lambda: Looking(look, by_time=True)))
    assert stall.node is not None
    assert stall.place == f"task 0_0, node {stall.node}"


def test_outside_of_tasks_there_is_a_stack() -> None:
    stall = stall_of(sys._getframe(), 1)
    assert stall.place == "no task"
    assert "test_outside_of_tasks_there_is_a_stack" in stall.stack[-1]


class Watched:
    """A loop that comes round when told to, and a watchdog that looks when told to."""

    def __init__(self) -> None:
        self.rounds = 0
        self.told: list[int | None] = []
        self.clock = ManualClock()
        self.dog = Watchdog("thread", lambda: self.rounds, 1_000, self._tell, self.clock)

    def _tell(self, report: Report) -> None:
        assert isinstance(report, LoopStalled)
        self.told.append(None if report.stall is None else report.stall.silent_ms)

    def look(self, after_ms: int, *, rounds: int = 0) -> None:
        self.clock.advance(after_ms)
        self.rounds += rounds
        self.dog.look()


def test_a_loop_that_hangs_is_told_once_each_time_that_the_limit_passes() -> None:
    """And so is that it goes on. Hunts for a line each second, and for one that never comes."""
    watched = Watched()
    with watched.dog:
        watched.look(0)
        for _ in range(5):
            watched.look(500)
        assert watched.told == [1_000, 2_000]
        watched.look(100, rounds=1)
        watched.look(900)
        assert watched.told == [1_000, 2_000, None]


def test_a_loop_that_comes_round_is_left_alone() -> None:
    watched = Watched()
    with watched.dog:
        for _ in range(5):
            watched.look(900, rounds=1)
    assert watched.told == []
