"""What comes of records that map_async is asked about, and what the rest of the topology sees."""

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
from support.tasks.apart_bench import ApartBench

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


def bench_of(folder: Path, build: Built, **settings: Any) -> ApartBench:
    builder = StreamsBuilder()
    build(builder.stream("in", key=STRING, value=JSON))
    return ApartBench(builder.build(), folder, **settings)


async def answer(value: Any) -> Any:
    if value == "bad":
        raise ValueError("no answer")
    return value


def results(bench: ApartBench) -> list[str]:
    return [(each.value or b"").decode().strip('"') for each in bench.outputs]


def fed(bench: ApartBench, *records: tuple[str | None, str], timestamp: int = 0) -> None:
    for key, value in records:
        bench.feed(None if key is None else key.encode(), f'"{value}"'.encode(), timestamp)


def asked(ordering: Any) -> Built:
    return lambda s: s.map_async(answer, ordering=ordering).to("out", key=STRING, value=JSON)


def test_keys_keep_their_order_and_wait_for_no_other_key(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, asked("key"))
    fed(bench, ("a", "a1"), ("a", "a2"), ("b", "b1"))
    bench.step()
    assert len(bench.held.begun) == 2
    bench.held.end(1)
    bench.step()
    assert results(bench) == ["b1"]
    bench.held.end_all()
    bench.step()
    assert results(bench) == ["b1", "a1", "a2"]
    bench.close()


def test_records_without_a_key_wait_for_none(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, asked("key"))
    fed(bench, (None, "1"), (None, "2"))
    bench.step()
    bench.held.end(1)
    bench.step()
    assert results(bench) == ["2"]
    bench.close()


def test_keys_that_cannot_be_hashed_keep_their_order(tmp_path: Path) -> None:
    """Two that look alike are one."""

    def ask(s: Any) -> None:
        s.select_key(lambda k, v: [k]).map_async(answer).to("out", key=JSON, value=JSON)

    bench = bench_of(tmp_path, ask)
    fed(bench, ("a", "a1"), ("a", "a2"), ("b", "b1"))
    bench.step()
    assert [call.batch.keys[call.index] for _, call in bench.held.begun] == [["a"], ["b"]]
    bench.held.end_all()
    bench.step()
    assert [each for each in results(bench) if each[0] == "a"] == ["a1", "a2"]
    bench.close()


class Anonymous:
    """Two that are alike are not equal."""

    def __init__(self, name: str) -> None:
        self.name = name


class Unhashable:
    """Two that are alike do not look alike."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Looking:
    """Looks like what it is."""

    name: str


@dataclass(frozen=True)
class Hashed:
    """Is what it looks like."""

    name: str


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("make", "is_kept"),
    [
        (Anonymous, False),
        (lambda name: Unhashable(), False),
        (lambda name: (1, Anonymous(name)), False),
        (lambda name: {"a": [Anonymous(name)]}, False),
        (Looking, True),
        (Hashed, True),
        (lambda name: [name, {"a": (1, 2.5, None)}], True),
        (lambda name: (Color.RED, UUID(int=7)), True),
    ],
)
def test_keys_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, make: Callable[[str], object], *, is_kept: bool
) -> None:
    """A serde may make objects without equality: then there is no order of keys to keep, and the
    handler is asked about each record."""

    def ask(s: Any) -> None:
        asked = s.select_key(lambda k, v: make(k)).map_async(answer)
        asked.select_key(lambda k, v: "k").to("out", key=STRING, value=JSON)

    handler = LogAndContinueProcessingExceptionHandler()
    bench = bench_of(tmp_path, ask, processing_exception_handler=handler)
    fed(bench, ("a", "a1"), ("a", "a2"))
    bench.step()
    assert len(bench.held.begun) == is_kept
    bench.settle()
    assert results(bench) == (["a1", "a2"] if is_kept else [])
    assert bench.offset == 2
    bench.close()


@pytest.mark.parametrize("ordering", ["key", "none"])
def test_keys_without_equality_are_told_with_what_to_do(tmp_path: Path, ordering: Any) -> None:
    """And only where their order is asked for."""

    def ask(s: Any) -> None:
        asked = s.select_key(lambda k, v: Anonymous(k)).map_async(answer, ordering=ordering)
        asked.select_key(lambda k, v: "k").to("out", key=STRING, value=JSON)

    bench = bench_of(tmp_path, ask)
    fed(bench, ("a", "a1"))
    if ordering == "key":
        with pytest.raises(StreamsError, match="class Anonymous, which has no __eq__") as caught:
            bench.step()
        assert (caught.value.offset, "frozen=True" in str(caught.value)) == (0, True)
    else:
        bench.settle()
        assert results(bench) == ["a1"]
        bench.close()


def test_a_way_around_a_function_that_waits_is_told_to_leave_it_out(tmp_path: Path) -> None:
    """A lambda around an `async def` is no `async def` function, and `asyncio.run` no cure."""

    def ask(s: Any) -> None:
        s.map_async(lambda v: async_result(answer(v))).to("out", key=STRING, value=JSON)

    bench = bench_of(tmp_path, ask)
    fed(bench, ("a", "1"))
    bench.step()
    bench.held.end_all()
    with pytest.raises(StreamsError, match="Give it itself, in place of a function that only"):
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
def test_results_go_on_in_the_order_that_was_asked_for(
    tmp_path: Path, ordering: str, guarantee: str, expected: list[str]
) -> None:
    """Under exactly-once in that of the partition in any case."""
    bench = bench_of(tmp_path, asked(ordering), processing_guarantee=guarantee)
    fed(bench, ("a", "1"), ("b", "2"), ("c", "3"))
    bench.step()
    for index in (2, 0, 0):
        bench.held.end(index)
        bench.step()
    bench.commit()
    assert results(bench) == expected
    assert bench.offset == 3
    bench.close()


def test_offsets_wait_for_the_first_that_is_not_done(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, asked("none"))
    fed(bench, ("a", "1"), ("b", "2"), ("c", "3"))
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


def test_an_error_goes_to_the_processing_handler(tmp_path: Path) -> None:
    """CONTINUE leaves the record out and counts it; its offset is done."""
    handler = LogAndContinueProcessingExceptionHandler()
    bench = bench_of(tmp_path, asked("key"), processing_exception_handler=handler)
    fed(bench, ("a", "1"), ("a", "bad"), ("a", "3"))
    bench.settle()
    assert (results(bench), bench.offset) == (["1", "3"], 3)
    bench.close()


def test_a_failure_names_node_and_offset(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, asked("key"))
    fed(bench, ("a", "1"), ("a", "bad"))
    bench.step()
    bench.held.end_all()
    with pytest.raises(StreamsError, match=r"KSTREAM-MAPASYNC-\d+.*") as caught:
        bench.step()
    assert caught.value.offset == 1
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_dead_letter_has_the_bytes_of_its_record(tmp_path: Path) -> None:
    """Also when later records were taken since."""
    bench = bench_of(
        tmp_path,
        asked("none"),
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        errors_dead_letter_queue_topic_name="dead",
    )
    fed(bench, ("a", "bad"))
    bench.step()
    fed(bench, ("b", "2"))
    bench.step()
    bench.held.end_all()
    bench.step()
    (letter,) = [each for each in bench.outputs if each.topic == "dead"]
    assert (letter.key, letter.value) == (b"a", b'"bad"')
    bench.close()


def test_a_letter_is_no_part_of_a_transaction_that_ends_before_it(tmp_path: Path) -> None:
    """A record that fails before it is asked about, behind one that is in flight."""

    def odd(value: Any) -> Any:
        if value == "odd":
            raise ValueError(value)
        return value

    bench = bench_of(
        tmp_path,
        lambda s: s.map_values(odd).map_async(answer).to("out", key=STRING, value=JSON),
        processing_guarantee=EXACTLY_ONCE_V2,
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        errors_dead_letter_queue_topic_name="dead",
    )
    fed(bench, ("a", "1"), ("b", "odd"))
    bench.step()
    assert not bench.commit()
    bench.crash()
    bench.settle()
    assert [each.topic for each in bench.outputs] == ["dead", "out"]
    bench.close()


class Ticking(Processor[str, Any, str, Any]):
    """Forwards what it is given, and each tenth of stream time."""

    def init(self, context: ProcessorContext[str, Any]) -> None:
        super().init(context)
        context.schedule(timedelta(milliseconds=10), PunctuationType.STREAM_TIME, self.tick)

    def tick(self, time_ms: int) -> None:
        self.context.forward(Record("tick", f"tick {time_ms}", time_ms))

    def process(self, record: Record[str, Any]) -> None:
        now = self.context.current_stream_time_ms()
        self.context.forward(record.with_value(f"{record.value} at {now}"))


def test_behind_it_time_is_that_of_what_was_released(tmp_path: Path) -> None:
    """Stream time and punctuations are those of records that arrive when they are released."""

    def ask(stream: Any) -> None:
        ticking = stream.map_async(answer, ordering="none").process(Ticking)
        ticking.to("out", key=STRING, value=JSON)

    bench = bench_of(tmp_path, ask)
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


def test_what_a_punctuation_sends_is_waited_for_by_a_commit(tmp_path: Path) -> None:
    """It belongs to no offset: nobody would do it again."""

    def ask(s: Any) -> None:
        s.process(Ticking).map_async(answer).to("out", key=STRING, value=JSON)

    bench = bench_of(tmp_path, ask)
    fed(bench, ("a", "1"), timestamp=5)
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


def test_one_that_fills_another_takes_nothing_more(tmp_path: Path) -> None:
    """The second has less room than the first gives it."""

    def twice(stream: Any) -> None:
        first = stream.map_async(answer, concurrency=400)
        first.map_async(answer, concurrency=1).to("out", value=JSON)

    bench = bench_of(tmp_path, twice)
    fed(bench, *[(str(n), str(n)) for n in range(3_000)])
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


def test_the_test_driver_runs_it() -> None:
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


class Telling(Processor[str, Any, str, Any]):
    """Tells the stream time that it finds at its start, and with each record."""

    started: ClassVar[list[int]] = []

    def init(self, context: ProcessorContext[str, Any]) -> None:
        super().init(context)
        self.started.append(context.current_stream_time_ms())

    def process(self, record: Record[str, Any]) -> None:
        now = self.context.current_stream_time_ms()
        self.context.forward(record.with_value(f"{record.value} at {now}"))


@pytest.mark.parametrize("guarantee", ["at_least_once", EXACTLY_ONCE_V2])
def test_time_behind_it_goes_on_after_a_restart(tmp_path: Path, guarantee: str) -> None:
    """From the records that were released when it was committed: neither from nothing, nor from
    records that were left out in front of it, or are in flight."""
    Telling.started.clear()

    def ask(s: Any) -> None:
        kept = s.filter(lambda k, v: v != "left out")
        kept.map_async(answer).process(Telling).to("out", key=STRING, value=JSON)

    bench = bench_of(tmp_path, ask, processing_guarantee=guarantee)
    for value, time in (("1", 50), ("left out", 900), ("2", 30), ("3", 700), ("4", 60)):
        bench.feed(value.encode(), f'"{value}"'.encode(), time)
    bench.step()
    bench.held.end(0)
    bench.step()
    assert bench.commit()
    assert bench.offset == 2
    bench.crash()
    assert Telling.started == [-1, 50]
    bench.settle()
    assert [each for each in results(bench)[1:] if each[0] in "234"] == [
        "2 at 50",
        "3 at 700",
        "4 at 700",
    ]
    bench.close()


def test_the_time_of_a_partition_is_committed_with_the_records_that_are(tmp_path: Path) -> None:
    """A record that was in flight is given its time again by what was before it: hunts for one
    that gets that of records behind it."""
    builder = StreamsBuilder()
    stream = builder.stream(
        "in", key=STRING, value=JSON, timestamp_extractor=UsePartitionTimeOnInvalidTimestamp()
    )
    stream.map_async(answer).to("out", key=STRING, value=JSON)
    bench = ApartBench(builder.build(), tmp_path)
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


def test_what_has_landed_takes_nothing_before_the_commit(tmp_path: Path) -> None:
    """Other tasks of the thread land for it as well: hunts for a commit that comes only when there
    is no input left, since one of them always has something in flight."""
    bench = bench_of(tmp_path, counted, statestore_cache_max_bytes=0)
    for number in range(6):
        bench.feed(b"k", b"%d" % number)
    bench.step()
    assert not bench.task.may_commit()
    bench.held.end_all()
    bench.step()
    assert bench.task.may_commit()
    bench.step()
    assert bench.task.in_flight == 0
    assert bench.commit()
    assert bench.offset == 3
    bench.step()
    assert bench.task.in_flight == 3
    bench.close()


def test_where_a_commit_waits_no_more_is_taken_than_runs(tmp_path: Path) -> None:
    """A commit waits for one call after the other, no longer: not past its transaction's time."""
    bench = bench_of(
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
def test_batches_need_no_landing_for_exactly_once(tmp_path: Path, ends: tuple[int, int]) -> None:
    """A commit comes in between, and holds what is in front of the first that has not ended: with
    a crash behind it, each record is there once."""
    bench = bench_of(
        tmp_path,
        lambda s: s.map_batches(in_batches, max_records=2, concurrency=2).to(
            "out", key=STRING, value=JSON
        ),
        processing_guarantee=EXACTLY_ONCE_V2,
    )
    fed(bench, *[(str(n), str(n)) for n in range(6)])
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


def async_result(made: Coroutine[Any, Any, Any]) -> Any:
    """What a lambda returns that calls an `async def` function."""
    return Unawaited(made)


class Unawaited(Coroutine[Any, Any, Any]):
    """A coroutine that the calls of a test do not make."""

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


def test_a_halted_operator_waits_for_the_calls_that_run(tmp_path: Path) -> None:
    """It begins none of the others, and their records stay in flight for the next owner."""
    bench = bench_of(
        tmp_path,
        lambda s: s.map_async(answer, concurrency=1, ordering="none").to(
            "out", key=STRING, value=JSON
        ),
    )
    fed(bench, ("a", "1"), ("b", "2"))
    bench.step()
    bench.task.halt()
    assert bench.task.may_land
    bench.held.end()
    assert bench.held.begun == []
    assert bench.task.may_land
    bench.step()
    assert results(bench) == ["1"]
    assert not bench.task.may_land
    assert bench.task.in_flight
    bench.commit()
    assert bench.offset == 1
    bench.crash()
    bench.settle()
    assert results(bench) == ["1", "2"]
    bench.close()
