"""map_async: the results of calls, and the effects on the rest of the topology."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from support.tasks.concurrent_bench import ConcurrentBench

from millstream import (
    EXACTLY_ONCE_V2,
    LogAndContinueProcessingExceptionHandler,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
    UsePartitionTimeOnInvalidTimestamp,
)
from millstream.errors import StreamsError
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

Built = Callable[[Any], object]


def make_bench(folder: Path, build: Built, **settings: Any) -> ConcurrentBench:
    builder = StreamsBuilder()
    build(builder.stream("in", key=STRING, value=JSON))
    return ConcurrentBench(builder.build(), folder, **settings)


async def answer(value: Any) -> Any:
    if value == "bad":
        raise ValueError("no answer")
    return value


def results(bench: ConcurrentBench) -> list[str]:
    return [(each.value or b"").decode().strip('"') for each in bench.outputs]


def feed(bench: ConcurrentBench, *records: tuple[str | None, str], timestamp: int = 0) -> None:
    for key, value in records:
        bench.feed(None if key is None else key.encode(), f'"{value}"'.encode(), timestamp)


def mapped(ordering: Any) -> Built:
    return lambda s: s.map_async(answer, ordering=ordering).to("out", key=STRING, value=JSON)


def test_keys_keep_their_order_and_do_not_wait_for_others(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, mapped("key"))
    feed(bench, ("a", "a1"), ("a", "a2"), ("b", "b1"))
    bench.step()
    assert len(bench.held.begun) == 2
    bench.held.end(1)
    bench.step()
    assert results(bench) == ["b1"]
    bench.held.end_all()
    bench.step()
    assert results(bench) == ["b1", "a1", "a2"]
    bench.close()


def test_records_without_a_key_do_not_wait(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, mapped("key"))
    feed(bench, (None, "1"), (None, "2"))
    bench.step()
    bench.held.end(1)
    bench.step()
    assert results(bench) == ["2"]
    bench.close()


def test_unhashable_keys_keep_their_order(tmp_path: Path) -> None:
    """Keys with the same representation count as equal."""

    def declare(s: Any) -> None:
        s.select_key(lambda k, v: [k]).map_async(answer).to("out", key=JSON, value=JSON)

    bench = make_bench(tmp_path, declare)
    feed(bench, ("a", "a1"), ("a", "a2"), ("b", "b1"))
    bench.step()
    assert [call.batch.keys[call.index] for _, call in bench.held.begun] == [["a"], ["b"]]
    bench.held.end_all()
    bench.step()
    assert [each for each in results(bench) if each[0] == "a"] == ["a1", "a2"]
    bench.close()


class Anonymous:
    """Has no equality."""

    def __init__(self, name: str) -> None:
        self.name = name


class Unhashable:
    """Has equality, but neither a hash nor a representation of its content."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@dataclass
class UnhashableDataclass:
    """Has a representation of its content."""

    name: str


@dataclass(frozen=True)
class FrozenDataclass:
    """Has a hash of its content."""

    name: str


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("make", "is_accepted"),
    [
        (Anonymous, False),
        (lambda name: Unhashable(), False),
        (lambda name: (1, Anonymous(name)), False),
        (lambda name: {"a": [Anonymous(name)]}, False),
        (UnhashableDataclass, True),
        (FrozenDataclass, True),
        (lambda name: [name, {"a": (1, 2.5, None)}], True),
        (lambda name: (Color.RED, UUID(int=7)), True),
    ],
)
def test_indistinguishable_keys_are_rejected(
    tmp_path: Path, make: Callable[[str], object], *, is_accepted: bool
) -> None:
    """A serde may return objects without equality: their order cannot be kept, and the handler is
    called for each record."""

    def declare(s: Any) -> None:
        mapped = s.select_key(lambda k, v: make(k)).map_async(answer)
        mapped.select_key(lambda k, v: "k").to("out", key=STRING, value=JSON)

    handler = LogAndContinueProcessingExceptionHandler()
    bench = make_bench(tmp_path, declare, processing_exception_handler=handler)
    feed(bench, ("a", "a1"), ("a", "a2"))
    bench.step()
    assert len(bench.held.begun) == is_accepted
    bench.settle()
    assert results(bench) == (["a1", "a2"] if is_accepted else [])
    assert bench.offset == 2
    bench.close()


@pytest.mark.parametrize("ordering", ["key", "none"])
def test_error_about_keys_without_equality_contains_the_remedy(
    tmp_path: Path, ordering: Any
) -> None:
    """Only if the order of keys is required."""

    def declare(s: Any) -> None:
        mapped = s.select_key(lambda k, v: Anonymous(k)).map_async(answer, ordering=ordering)
        mapped.select_key(lambda k, v: "k").to("out", key=STRING, value=JSON)

    bench = make_bench(tmp_path, declare)
    feed(bench, ("a", "a1"))
    if ordering == "key":
        with pytest.raises(StreamsError, match="class Anonymous, which has no __eq__") as caught:
            bench.step()
        assert (caught.value.offset, "frozen=True" in str(caught.value)) == (0, True)
    else:
        bench.settle()
        assert results(bench) == ["a1"]
        bench.close()


def test_wrapped_async_function_is_rejected_with_advice(tmp_path: Path) -> None:
    """A lambda around an `async def` function is not one itself, and `asyncio.run` does not
    help."""

    def declare(s: Any) -> None:
        s.map_async(lambda v: async_result(answer(v))).to("out", key=STRING, value=JSON)

    bench = make_bench(tmp_path, declare)
    feed(bench, ("a", "1"))
    bench.step()
    bench.held.end_all()
    with pytest.raises(
        StreamsError, match="Pass the async function itself instead of a function that only"
    ):
        bench.step()


@pytest.mark.parametrize(
    ("ordering", "guarantee", "expected"),
    [
        ("none", "at_least_once", ["3", "1", "2"]),
        ("partition", "at_least_once", ["1", "2", "3"]),
        ("none", EXACTLY_ONCE_V2, ["1", "2", "3"]),
        ("key", EXACTLY_ONCE_V2, ["1", "2", "3"]),
    ],
)
def test_results_are_forwarded_in_the_requested_order(
    tmp_path: Path, ordering: str, guarantee: str, expected: list[str]
) -> None:
    """Under exactly-once always in the order of the partition."""
    bench = make_bench(tmp_path, mapped(ordering), processing_guarantee=guarantee)
    feed(bench, ("a", "1"), ("b", "2"), ("c", "3"))
    bench.step()
    for index in (2, 0, 0):
        bench.held.end(index)
        bench.step()
    bench.commit()
    assert results(bench) == expected
    assert bench.offset == 3
    bench.close()


def test_committed_offset_is_that_of_the_first_unfinished_record(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, mapped("none"))
    feed(bench, ("a", "1"), ("b", "2"), ("c", "3"))
    bench.step()
    bench.held.end(1)
    bench.step()
    assert bench.commit()
    assert bench.offset == 0
    bench.held.end(0)
    bench.step()
    bench.commit()
    assert bench.offset == 2
    bench.close()


def test_processing_handler_is_called_for_errors(tmp_path: Path) -> None:
    """CONTINUE drops and counts the record; its offset is completed."""
    handler = LogAndContinueProcessingExceptionHandler()
    bench = make_bench(tmp_path, mapped("key"), processing_exception_handler=handler)
    feed(bench, ("a", "1"), ("a", "bad"), ("a", "3"))
    bench.settle()
    assert (results(bench), bench.offset) == (["1", "3"], 3)
    bench.close()


def test_error_contains_node_and_offset(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, mapped("key"))
    feed(bench, ("a", "1"), ("a", "bad"))
    bench.step()
    bench.held.end_all()
    with pytest.raises(StreamsError, match=r"KSTREAM-MAPASYNC-\d+.*") as caught:
        bench.step()
    assert caught.value.offset == 1
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_dead_letter_has_the_bytes_of_its_record(tmp_path: Path) -> None:
    """Also if later records were taken meanwhile."""
    bench = make_bench(
        tmp_path,
        mapped("none"),
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        errors_dead_letter_queue_topic_name="dead",
    )
    feed(bench, ("a", "bad"))
    bench.step()
    feed(bench, ("b", "2"))
    bench.step()
    bench.held.end_all()
    bench.step()
    (letter,) = [each for each in bench.outputs if each.topic == "dead"]
    assert (letter.key, letter.value) == (b"a", b'"bad"')
    bench.close()


def test_dead_letter_is_not_part_of_an_earlier_transaction(tmp_path: Path) -> None:
    """A record that fails before its call, behind a record in flight."""

    def fail_on_odd(value: Any) -> Any:
        if value == "odd":
            raise ValueError(value)
        return value

    bench = make_bench(
        tmp_path,
        lambda s: s.map_values(fail_on_odd).map_async(answer).to("out", key=STRING, value=JSON),
        processing_guarantee=EXACTLY_ONCE_V2,
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        errors_dead_letter_queue_topic_name="dead",
    )
    feed(bench, ("a", "1"), ("b", "odd"))
    bench.step()
    assert not bench.commit()
    bench.crash()
    bench.settle()
    assert [each.topic for each in bench.outputs] == ["dead", "out"]
    bench.close()


class Ticking(Processor[str, Any, str, Any]):
    """Forwards its records, and a record every 10 ms of stream time."""

    def init(self, context: ProcessorContext[str, Any]) -> None:
        super().init(context)
        context.schedule(timedelta(milliseconds=10), PunctuationType.STREAM_TIME, self.tick)

    def tick(self, time_ms: int) -> None:
        self.context.forward(Record("tick", f"tick {time_ms}", time_ms))

    def process(self, record: Record[str, Any]) -> None:
        now = self.context.current_stream_time_ms()
        self.context.forward(record.with_value(f"{record.value} at {now}"))


def test_time_behind_map_async_is_that_of_released_records(tmp_path: Path) -> None:
    """Stream time and punctuations follow the records in the order of their release."""

    def declare(stream: Any) -> None:
        ticking = stream.map_async(answer, ordering="none").process(Ticking)
        ticking.to("out", key=STRING, value=JSON)

    bench = make_bench(tmp_path, declare)
    for time in (5, 31, 12):
        bench.feed(b"k%d" % time, b'"%d"' % time, time)
    bench.step()
    assert results(bench) == []
    bench.held.end(0)
    bench.held.end(1)
    bench.held.end(0)
    bench.step()
    ends = results(bench)
    assert [each for each in ends if " at " in each] == ["5 at 5", "12 at 12", "31 at 31"]
    assert ends.index("12 at 12") < ends.index("tick 12") < ends.index("31 at 31")
    bench.close()


def test_commit_waits_for_the_records_of_a_punctuation(tmp_path: Path) -> None:
    """They have no offset, so that nothing would repeat them."""

    def declare(s: Any) -> None:
        s.process(Ticking).map_async(answer).to("out", key=STRING, value=JSON)

    bench = make_bench(tmp_path, declare)
    feed(bench, ("a", "1"), timestamp=5)
    bench.step()
    while bench.held.begun and len(bench.held.begun) > 1:
        bench.held.end(0)
    ticks = [call for _, call in bench.held.begun if "tick" in str(call.batch.values)]
    assert len(ticks) == 1
    assert not bench.commit()
    bench.held.end_all()
    assert bench.commit()
    assert any("tick" in each for each in results(bench))
    bench.close()


def test_full_operator_stops_the_operator_in_front_of_it(tmp_path: Path) -> None:
    """The second operator has a smaller capacity than the first."""

    def twice(stream: Any) -> None:
        first = stream.map_async(answer, concurrency=400)
        first.map_async(answer, concurrency=1).to("out", value=JSON)

    bench = make_bench(tmp_path, twice)
    feed(bench, *[(str(n), str(n)) for n in range(3_000)])
    for _ in range(400):
        bench.step()
        for index in range(min(300, len(bench.held.begun))):
            bench.held.end(0 if index % 2 else -1)
        assert bench.task.in_flight <= 2 * 400 + 500 + 2 * 1 + 500
        if bench.task.in_flight == 0 and bench.task.buffered == 0:
            break
    bench.settle()
    assert bench.offset == 3_000
    bench.close()


def test_topology_test_driver_runs_calls() -> None:
    """With real calls on the event loop, one at a time."""
    builder = StreamsBuilder()

    async def slow(key: str, value: str) -> str:
        await asyncio.sleep(0)
        return f"{key}{value}"

    stream = builder.stream("in", key=STRING, value=STRING)
    stream.map_async(slow, with_key=True).to("out", key=STRING, value=STRING)
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_key_values(
            [("a", "1"), ("b", "2"), ("a", "3")]
        )
        got = driver.create_output_topic("out", key=STRING, value=STRING).read_key_values()
    assert got == [("a", "a1"), ("b", "b2"), ("a", "a3")]


class TimeReporter(Processor[str, Any, str, Any]):
    """Reports the stream time at its start, and with each record."""

    started: ClassVar[list[int]] = []

    def init(self, context: ProcessorContext[str, Any]) -> None:
        super().init(context)
        self.started.append(context.current_stream_time_ms())

    def process(self, record: Record[str, Any]) -> None:
        now = self.context.current_stream_time_ms()
        self.context.forward(record.with_value(f"{record.value} at {now}"))


@pytest.mark.parametrize("guarantee", ["at_least_once", EXACTLY_ONCE_V2])
def test_time_behind_map_async_continues_after_a_restart(tmp_path: Path, guarantee: str) -> None:
    """It continues from the records that were released before the commit, not from zero and not
    from records that were filtered out or are in flight."""
    TimeReporter.started.clear()

    def declare(s: Any) -> None:
        filtered = s.filter(lambda k, v: v != "left out")
        filtered.map_async(answer).process(TimeReporter).to("out", key=STRING, value=JSON)

    bench = make_bench(tmp_path, declare, processing_guarantee=guarantee)
    for value, time in (("1", 50), ("left out", 900), ("2", 30), ("3", 700), ("4", 60)):
        bench.feed(value.encode(), f'"{value}"'.encode(), time)
    bench.step()
    bench.held.end(0)
    bench.step()
    assert bench.commit()
    assert bench.offset == 2
    bench.crash()
    assert TimeReporter.started == [-1, 50]
    bench.settle()
    assert [each for each in results(bench)[1:] if each[0] in "234"] == [
        "2 at 50",
        "3 at 700",
        "4 at 700",
    ]
    bench.close()


def test_partition_time_is_committed_with_its_records(tmp_path: Path) -> None:
    """After a restart, a record that was in flight gets the partition time of the records before
    it. Detects a committed time of later records."""
    builder = StreamsBuilder()
    stream = builder.stream(
        "in", key=STRING, value=JSON, timestamp_extractor=UsePartitionTimeOnInvalidTimestamp()
    )
    stream.map_async(answer).to("out", key=STRING, value=JSON)
    bench = ConcurrentBench(builder.build(), tmp_path)
    for value, time in (("1", 5), ("2", -1), ("3", 700)):
        bench.feed(value.encode(), f'"{value}"'.encode(), time)
    bench.step()
    bench.held.end(0)
    bench.step()
    assert bench.commit()
    assert bench.offset == 1
    bench.crash()
    bench.settle()
    assert [each.timestamp for each in bench.outputs] == [5, 5, 700]
    bench.close()


def counted(stream: Any) -> None:
    """A store before the calls: a commit waits until nothing is in flight."""
    counts = stream.group_by_key(key=STRING, value=JSON).count(store="counts")
    counts.to_stream().map_async(answer, concurrency=3).to("out", key=STRING, value=JSON)


def test_drained_task_takes_no_records_before_the_commit(tmp_path: Path) -> None:
    """Other tasks of the thread drain for the commit as well. Detects a commit that is only made
    once input ends, because one of the tasks always has calls in flight."""
    bench = make_bench(tmp_path, counted, statestore_cache_max_bytes=0)
    for number in range(6):
        bench.feed(b"k", b"%d" % number)
    bench.step()
    assert not bench.task.can_commit()
    bench.held.end_all()
    bench.step()
    assert bench.task.can_commit()
    bench.step()
    assert bench.task.in_flight == 0
    assert bench.commit()
    assert bench.offset == 3
    bench.step()
    assert bench.task.in_flight == 3
    bench.close()


def test_task_that_drains_for_commits_takes_only_records_that_run(tmp_path: Path) -> None:
    """A commit only waits for running calls, and so not beyond the transaction timeout."""
    bench = make_bench(
        tmp_path, counted, processing_guarantee=EXACTLY_ONCE_V2, statestore_cache_max_bytes=0
    )
    for number in range(20):
        bench.feed(b"%d" % number, b"1")
    bench.step()
    assert bench.task.in_flight == 3
    bench.close()


async def in_batches(batch: Any) -> Any:
    return batch["value"]


@pytest.mark.parametrize("ends", [(1, 0), (0, 1)])
def test_batches_do_not_drain_for_exactly_once(tmp_path: Path, ends: tuple[int, int]) -> None:
    """A commit contains the records before the first unfinished batch: after a crash, each record
    has one result."""
    bench = make_bench(
        tmp_path,
        lambda s: s.map_batches(in_batches, max_records=2, concurrency=2).to(
            "out", key=STRING, value=JSON
        ),
        processing_guarantee=EXACTLY_ONCE_V2,
    )
    feed(bench, *[(str(n), str(n)) for n in range(6)])
    bench.step()
    assert len(bench.held.begun) == 2
    bench.held.end(ends[0])
    bench.step()
    assert bench.commit()
    assert bench.offset == (0 if ends[0] else 2)
    bench.crash()
    bench.settle()
    assert results(bench) == [str(n) for n in range(6)]
    bench.close()


def async_result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a lambda that calls an `async def` function."""
    return Unawaited(coroutine)


class Unawaited(Coroutine[Any, Any, Any]):
    """A coroutine that the calls of a test do not run."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def send(self, value: Any) -> Any:
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


def test_halted_operator_waits_for_running_calls(tmp_path: Path) -> None:
    """It starts no others, and their records stay in flight for the next owner."""
    bench = make_bench(
        tmp_path,
        lambda s: s.map_async(answer, concurrency=1, ordering="none").to(
            "out", key=STRING, value=JSON
        ),
    )
    feed(bench, ("a", "1"), ("b", "2"))
    bench.step()
    bench.task.halt()
    assert bench.task.can_finish
    bench.held.end()
    assert bench.held.begun == []
    assert bench.task.can_finish
    bench.step()
    assert results(bench) == ["1"]
    assert not bench.task.can_finish
    assert bench.task.in_flight
    bench.commit()
    assert bench.offset == 1
    bench.crash()
    bench.settle()
    assert results(bench) == ["1", "2"]
    bench.close()
