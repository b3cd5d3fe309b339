"""What comes of records that map_async is asked about, and what the rest of the topology sees."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.apart_bench import ApartBench

from millstream import (
    EXACTLY_ONCE_V2,
    LogAndContinueProcessingExceptionHandler,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
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
    """With real calls, that end in any order."""
    builder = StreamsBuilder()

    async def slow(key: str, value: str) -> str:
        for _ in range(random.Random(value).randrange(20)):
            await turn()
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


class turn:  # noqa: N801
    """Lets others go on."""

    def __await__(self) -> Any:
        yield
