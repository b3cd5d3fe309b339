"""User functions that take long: batches are bounded by time, and progress is committed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from support.tasks.paced_task import PacedTask

from millstream import (
    EXACTLY_ONCE_V2,
    JoinWindows,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    TimeWindows,
)
from millstream.errors import StreamsError
from millstream.serdes import STRING, Serde

#: How long a batch should take at most with the limit of the bench, and before it is given up.
BATCH_MS: Final = 200
BUDGET_MS: Final = 5_000

Spend = Callable[[Any], Any]
Build = Callable[[StreamsBuilder, Spend], Any]


class _Slow(Processor[str, str, str, str]):
    def __init__(self, spend: Spend) -> None:
        self._spend = spend

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(self._spend(record.value)))


def _stream(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=STRING, value=STRING)


def _serde(spend: Spend) -> Serde[str]:
    return Serde(lambda _, value: value.encode(), lambda _, data: spend(data.decode()))


def _sink_serde(spend: Spend) -> Serde[str]:
    return Serde(lambda _, value: spend(value).encode(), lambda _, data: data.decode())


def _out(stream: Any) -> None:
    stream.to("out", key=STRING, value=STRING)


def _extracted(builder: StreamsBuilder, spend: Spend) -> None:
    stream = builder.stream(
        "in", key=STRING, value=STRING, timestamp_extractor=lambda record, _: bool(spend(1)) * 5
    )
    _out(stream)


def _stream_join(builder: StreamsBuilder, spend: Spend) -> None:
    stream = _stream(builder)
    windows = JoinWindows(timedelta(seconds=1))
    _out(stream.join(stream.map_values(str.upper), lambda a, _: spend(a), windows))


def _table_join(builder: StreamsBuilder, spend: Spend) -> None:
    table = builder.table("table", key=STRING, value=STRING)
    _out(_stream(builder).left_join(table, lambda value, _: spend(value)))


def _tables_join(builder: StreamsBuilder, spend: Spend) -> None:
    left = builder.table("in", key=STRING, value=STRING)
    right = builder.table("other", key=STRING, value=STRING)
    _out(left.left_join(right, lambda value, _: spend(value)).to_stream())


def _aggregated(builder: StreamsBuilder, spend: Spend, *, cached: bool, windowed: bool) -> None:
    grouped = _stream(builder).group_by_key()
    if windowed:
        grouped = grouped.windowed_by(TimeWindows(timedelta(seconds=1)))
    kept = Materialized("sums", key=STRING, value=STRING, caching=cached)
    grouped.aggregate(str, lambda key, value, so_far: spend(value), store=kept)


#: Where the slow function is.
KINDS: Final[dict[str, Build]] = {
    "map_values": lambda builder, spend: _out(_stream(builder).map_values(spend)),
    "filter": lambda builder, spend: _out(_stream(builder).filter(lambda _, v: bool(spend(v)))),
    "flat_map": lambda builder, spend: _out(
        _stream(builder).flat_map(lambda key, value: [(key, spend(value))])
    ),
    "process": lambda builder, spend: _out(_stream(builder).process(lambda: _Slow(spend))),
    "aggregate": lambda b, spend: _aggregated(b, spend, cached=False, windowed=False),
    "cached aggregate": lambda b, spend: _aggregated(b, spend, cached=True, windowed=False),
    "window": lambda b, spend: _aggregated(b, spend, cached=False, windowed=True),
    "cached window": lambda b, spend: _aggregated(b, spend, cached=True, windowed=True),
    "stream-table join": _table_join,
    "stream-stream join": _stream_join,
    "deserializer": lambda builder, spend: _out(
        builder.stream("in", key=STRING, value=_serde(spend))
    ),
    "serializer": lambda builder, spend: _stream(builder).to(
        "out", key=STRING, value=_sink_serde(spend)
    ),
    "extractor": _extracted,
    "topic function": lambda builder, spend: _stream(builder).to(
        lambda key, value, context: "out" if spend(value) else "", key=STRING, value=STRING
    ),
    "partitioner": lambda builder, spend: _stream(builder).to(
        "out",
        key=STRING,
        value=STRING,
        partitioner=lambda topic, key, value, partitions: 0 if spend(value) else 1,
    ),
}


def bench(build: Build, folder: Path, times_ms: Callable[[int], int], **settings: Any) -> PacedTask:
    """A task whose function takes so long at each of its calls, counted from 0."""

    def declare(builder: StreamsBuilder, task: PacedTask) -> None:
        build(builder, lambda what: task.spend(times_ms(len(task.calls)), what))

    return PacedTask(declare, folder, **settings)


@pytest.mark.parametrize("guarantee", ["at_least_once", EXACTLY_ONCE_V2])
@pytest.mark.parametrize("time_ms", [10, 300, 5_000])
@pytest.mark.parametrize("kind", KINDS)
def test_no_batch_takes_longer_than_its_time_or_one_record(
    tmp_path: Path, kind: str, time_ms: int, guarantee: str
) -> None:
    """From the first batch on; nothing is given up, no function is called twice for a record."""
    task = bench(
        KINDS[kind],
        tmp_path,
        lambda _: time_ms,
        transactional=guarantee == EXACTLY_ONCE_V2,
        processing_guarantee=guarantee,
    )
    values = [f"v{number}" for number in range(40)]
    task.feed("in", values)
    task.run()
    assert max(task.rounds_ms) <= max(BATCH_MS, time_ms)
    assert task.given_up == 0
    assert len(task.calls) == len(values)
    (committed,) = [offset.offset for place, offset in task.committed.items() if place[0] == "in"]
    assert committed == len(values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("time_ms", [300, 3_000])
def test_a_function_that_becomes_slow_in_a_large_batch_is_stopped_between_two_records(
    tmp_path: Path, kind: str, time_ms: int
) -> None:
    """The batch is given up once at most, and the next ones are small."""
    fast, slow = 1_500, 30

    def times_ms(call: int) -> int:
        return 0 if call < fast else time_ms

    task = bench(KINDS[kind], tmp_path, times_ms)
    values = [f"v{number}" for number in range(fast + slow)]
    task.feed("in", values)
    # What is repeated is slow, too: what was done before the slow records is committed.
    task.run()
    assert max(task.rounds_ms) <= BUDGET_MS + time_ms
    assert task.given_up <= 1
    assert set(task.calls) >= ({1} if kind == "extractor" else set(values))
    (committed,) = [offset.offset for place, offset in task.committed.items() if place[0] == "in"]
    assert committed == len(values)


@pytest.mark.parametrize("kind", ["map_values", "process", "cached aggregate"])
def test_a_task_that_comes_back_does_not_begin_with_the_batch_that_was_given_up(
    tmp_path: Path, kind: str
) -> None:
    task = bench(KINDS[kind], tmp_path, lambda call: 0 if call < 1_200 else 1_000)
    task.feed("in", [f"v{number}" for number in range(1_230)])
    task.run()
    assert task.given_up == 1
    assert f"the {BUDGET_MS} ms that it may take (max.poll.interval.ms allow" in task.reasons[0]
    # The batch that was given up, and single records before and after.
    assert [took for took in task.rounds_ms if took > 1_000] == [BUDGET_MS]


def _counted(builder: StreamsBuilder, spend: Spend) -> None:
    counts = _stream(builder).group_by_key().count(store="counts")
    _out(counts.to_stream().map_values(lambda count: spend(str(count))))


@pytest.mark.parametrize("time_ms", [10, 300])
@pytest.mark.parametrize("build", [_counted, _tables_join])
def test_flushes_of_caches_are_bounded_as_well(tmp_path: Path, build: Build, time_ms: int) -> None:
    """A commit forwards cached records to the functions behind the cache."""
    task = bench(build, tmp_path, lambda _: time_ms)
    values = [f"v{number}" for number in range(700)]
    task.feed("in", values)
    task.run()
    assert max(task.rounds_ms) <= BUDGET_MS + time_ms
    assert task.given_up <= 1
    (committed,) = [offset.offset for place, offset in task.committed.items() if place[0] == "in"]
    assert committed == len(values)


def test_a_single_record_is_never_stopped(tmp_path: Path) -> None:
    """Its first function takes longer than a batch may; the functions behind it are called."""
    task = bench(
        lambda builder, spend: _out(_stream(builder).map_values(spend).map_values(spend)),
        tmp_path,
        lambda call: BUDGET_MS + 1_000 if call % 2 == 0 else 1_000,
    )
    task.feed("in", ["one", "two"])
    task.run()
    assert task.given_up == 0
    assert len(task.calls) == 4


def test_a_record_that_takes_longer_than_the_limits_each_time_is_an_error(tmp_path: Path) -> None:
    task = bench(KINDS["map_values"], tmp_path, lambda _: 12_000)
    task.feed("in", [f"v{number}" for number in range(10)])
    with pytest.raises(StreamsError, match="12000 ms") as raised:
        task.run()
    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("in", 0, 0)
    assert error.node is not None
    assert error.node in error.message
    assert "max.poll.interval.ms" in error.message
    assert task.given_up == 1


class _Punctual(Processor[str, str, str, str]):
    def __init__(self, spend: Spend) -> None:
        self._spend = spend

    def init(self, context: Any) -> None:
        super().init(context)
        for number in range(20):
            context.schedule(
                timedelta(milliseconds=10),
                PunctuationType.STREAM_TIME,
                lambda time_ms, number=number: self._spend((number, time_ms)),
            )

    def process(self, record: Record[str, str]) -> None:
        self._spend(record.timestamp)


def test_slow_punctuators_leave_the_loop_time_between_them(tmp_path: Path) -> None:
    """Those of one time are called in their order, before the next record all the same."""

    def build(builder: StreamsBuilder, spend: Spend) -> None:
        _stream(builder).process(lambda: _Punctual(spend))

    task = bench(build, tmp_path, lambda _: 300)
    task.feed("in", [f"v{number}" for number in range(12)])
    task.run()
    assert max(task.rounds_ms) <= 600
    numbers = [(number, 0) for number in range(20)]
    assert sorted(task.calls[1:21]) == numbers
    assert task.calls[0] == 0
    assert task.calls[21] == 1
    assert max(task.silences_ms) <= 600


class _Careless(Processor[str, str, str, str]):
    """Takes its time, then forwards to a node that works at once, and catches everything."""

    def __init__(self, spend: Spend, caught: Callable[[], None]) -> None:
        self._spend = spend
        self._caught = caught

    def process(self, record: Record[str, str]) -> None:
        self._spend(record.value)
        try:
            self.context.forward(record)
        except BaseException:
            self._caught()


class _Forwarding(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def _fail() -> None:
    raise ValueError("the record could not be forwarded")


@pytest.mark.parametrize("caught", [lambda: None, _fail], ids=["goes on", "raises"])
def test_an_interruption_that_user_code_catches_loses_no_output(
    tmp_path: Path, caught: Callable[[], None]
) -> None:
    """The last record of a batch calls no other function, which would raise it again."""

    def build(builder: StreamsBuilder, spend: Spend) -> None:
        shared = Stores.key_value_builder(Stores.in_memory_key_value("shared"), STRING, STRING)
        builder.add_state_store(shared)
        first = _stream(builder).process(lambda: _Careless(spend, caught), stores=["shared"])
        _out(first.process(_Forwarding, stores=["shared"]))

    # Batches of 1, 2 and 4 records.
    task = bench(build, tmp_path, lambda call: BUDGET_MS + 1_000 if call == 6 else 0)
    values = [f"v{number}" for number in range(7)]
    task.feed("in", values)
    task.run()
    assert task.given_up == 1
    written = [each.value for each in task.collector.take() if each.topic == "out"]
    assert set(written) == {value.encode() for value in values}


@pytest.mark.parametrize("kind", ["map_values", "process", "cached aggregate"])
def test_records_that_exceed_a_transaction_together_are_committed_one_by_one(
    tmp_path: Path, kind: str
) -> None:
    """Detects work that is given up and repeated endlessly, with no record at fault."""

    def declare(builder: StreamsBuilder, task: PacedTask) -> None:
        KINDS[kind](builder, lambda what: task.spend(6_000, what))

    task = PacedTask(declare, tmp_path, commit_interval_ms=9_000, transactional=True)
    values = [f"v{number}" for number in range(9)]
    task.feed("in", values)
    task.run()
    assert task.given_up == 1
    # The first two records were done again.
    assert len(task.calls) == len(values) + 2
    (committed,) = [offset.offset for place, offset in task.committed.items() if place[0] == "in"]
    assert committed == len(values)


def test_a_slow_record_and_the_slow_punctuator_that_it_makes_due_are_two_steps(
    tmp_path: Path,
) -> None:
    """The loop polls and commits between them: together they exceed the limits."""

    class _Both(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            super().init(context)
            every = timedelta(milliseconds=1)
            context.schedule(every, PunctuationType.STREAM_TIME, lambda now: spent("call", now))

        def process(self, record: Record[str, str]) -> None:
            spent("record", record.timestamp)

    def spent(*what: Any) -> None:
        task.spend(6_000, what)

    def build(builder: StreamsBuilder, _: PacedTask) -> None:
        _stream(builder).process(_Both)

    task = PacedTask(build, tmp_path)
    task.feed("in", ["v0", "v1", "v2", "v3"])
    task.run()
    assert max(task.rounds_ms) == 6_000
    assert task.given_up == 0
    order = [(what, time) for time in range(4) for what in ("record", "call")]
    assert task.calls == order[: len(task.calls)]
    assert len(task.calls) >= 7
