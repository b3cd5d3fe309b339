"""Slow user functions: batches are bounded by time, and progress is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from support.tasks.task_setup import app_config, commit_task, start_task, task_services

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
from millstream.clock import ManualClock
from millstream.errors import StreamsError, TaskMigratedError
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TopicPartition
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.time_limits import TimeLimits
from millstream.serdes import STRING, Serde
from millstream.state.storage.rocksdb import rocksdb_storages
from millstream.testing.driver_topics import CapturingCollector, RawColumns
from millstream.testing.topology_metadata import as_one_subtopology

#: More incarnations than any test needs.
_MAX_INCARNATIONS: Final = 50


class PacedTask:
    """A task that reads its topics in a loop with simulated time.

    Args:
        build: declares the topology; its functions use the bench to spend time.
        limit_ms: the shortest of the time limits.
        transactional: whether a commit fails that comes later than the limit after the previous
            one.

    Attributes:
        calls: the arguments of `spend`, in the order of the calls.
        rounds_ms: the duration of each iteration of the loop.
        given_up: the number of times that uncommitted work was aborted.
        reasons: the error messages of these aborts.
        committed: the offsets to resume from.
    """

    def __init__(
        self,
        build: Callable[[StreamsBuilder, PacedTask], Any],
        folder: Path,
        limit_ms: int = 10_000,
        *,
        commit_interval_ms: int = 100,
        transactional: bool = False,
        **settings: Any,
    ) -> None:
        self._commit_interval_ms = commit_interval_ms
        self._transactional = transactional
        self._last_commit_ms = 0
        self.clock = ManualClock()
        self.limits = TimeLimits(self.clock, limit_ms, progress=self._progress)
        self.calls: list[Any] = []
        self.rounds_ms: list[int] = []
        self.silences_ms: list[int] = []
        self.given_up = 0
        self.reasons: list[str] = []
        self.committed: dict[TopicPartition, CommitOffset] = {}
        self.collector = CapturingCollector()
        self._progress_ms = 0
        self._limit_ms = limit_ms
        builder = StreamsBuilder()
        build(builder, self)
        self._whole = as_one_subtopology(builder.build())
        self.config = app_config(default_key_serde=STRING, default_value_serde=STRING, **settings)
        self._services = task_services(
            folder,
            self.collector,
            self.clock,
            self.config,
            self.config.statestore_cache_max_bytes,
            storages=rocksdb_storages(self.config),
            limits=self.limits,
        )
        self._inputs: dict[TopicPartition, RawColumns] = {}

    def spend(self, milliseconds: int, what: Any = None) -> Any:
        """Simulate a function of the topology that takes time."""
        self.calls.append(what)
        self.clock.advance(milliseconds)
        # As the watchdog of a real thread does.
        self.limits.check_timer()
        return what

    def feed(self, topic: str, values: Iterable[str]) -> None:
        """Set the records of a topic; each value is also the key."""
        encoded: list[bytes | None] = [value.encode() for value in values]
        numbers = list(range(len(encoded)))
        self._inputs[TopicPartition(topic, 0)] = RawColumns(
            encoded, encoded, numbers, numbers, None
        )

    def run(self) -> None:
        """Process and commit everything.

        Raises:
            StreamsError: the task has failed.
            AssertionError: the same work is aborted again and again.
        """
        while self._run_once():
            self.given_up += 1
            assert self.given_up < _MAX_INCARNATIONS, "the task makes no progress"

    def outputs(self) -> list[Any]:
        """The values written to the topic `out`."""
        written = [each for each in self.collector.take() if each.topic == "out"]
        return [each.value for each in written]

    def _run_once(self) -> bool:
        """Run one incarnation of the task, and return whether it was aborted."""
        task = start_task(self._whole, self._services, committed=self.committed)
        for place, raw in self._inputs.items():
            start = self.committed[place].offset if place in self.committed else 0
            if start < len(raw.offsets):
                task.add_records(place, _from(raw, start))
        try:
            self._loop(task)
        except TaskMigratedError as error:
            self.reasons.append(error.message)
            task.close(clean=False)
            return True
        except BaseException:
            task.close(clean=False)
            raise
        task.close(clean=True)
        return False

    def _loop(self, task: StreamTask) -> None:
        self._last_commit_ms = self.clock.monotonic_ms()
        while task.buffered or task.commit_needed:
            began_ms = self._progress_ms = self.clock.monotonic_ms()
            try:
                if task.is_processable(lambda _: True, 0):
                    task.step(1_000)
            finally:
                self.rounds_ms.append(self.clock.monotonic_ms() - began_ms)
            waits_ms = self.clock.monotonic_ms() - self._last_commit_ms
            is_due = waits_ms >= self._commit_interval_ms
            if is_due or task.commit_requested or not task.buffered:
                self._commit(task)
                self._last_commit_ms = self.clock.monotonic_ms()

    def _commit(self, task: StreamTask) -> None:
        silent_ms = self.rounds_ms[-1] if self.rounds_ms else 0
        if self._transactional:
            silent_ms = max(silent_ms, self.clock.monotonic_ms() - self._last_commit_ms)
        if silent_ms > self._limit_ms:
            raise TaskMigratedError("The group and the broker did not wait for this commit.")
        began_ms = self.clock.monotonic_ms()
        try:
            task.prepare_commit()
        finally:
            self.rounds_ms.append(self.clock.monotonic_ms() - began_ms)
        self.committed |= commit_task(task, self.collector.acked_offsets())

    def _progress(self) -> None:
        self.silences_ms.append(self.clock.monotonic_ms() - self._progress_ms)
        self._progress_ms = self.clock.monotonic_ms()


def _from(raw: RawColumns, start: int) -> RawColumns:
    return RawColumns(
        raw.keys[start:],
        raw.values[start:],
        raw.timestamps[start:],
        list(raw.offsets)[start:],
        None,
    )


#: With the limits of the bench: the longest planned batch, and the time until one is given up.
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
    store = Materialized("sums", key=STRING, value=STRING, caching=cached)
    grouped.aggregate(str, lambda key, value, so_far: spend(value), store=store)


#: The location of the slow function.
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
    """Return a task with a function that takes the given time at each call, counted from 0."""

    def declare(builder: StreamsBuilder, task: PacedTask) -> None:
        build(builder, lambda value: task.spend(times_ms(len(task.calls)), value))

    return PacedTask(declare, folder, **settings)


@pytest.mark.parametrize("guarantee", ["at_least_once", EXACTLY_ONCE_V2])
@pytest.mark.parametrize("time_ms", [10, 300, 5_000])
@pytest.mark.parametrize("kind", KINDS)
def test_no_batch_exceeds_its_time_or_one_record(
    tmp_path: Path, kind: str, time_ms: int, guarantee: str
) -> None:
    """From the first batch on. No batch is given up, and no function is called twice for a
    record."""
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
def test_function_that_becomes_slow_in_a_large_batch_is_interrupted_between_records(
    tmp_path: Path, kind: str, time_ms: int
) -> None:
    """The batch is given up at most once, and the next batches are small."""
    fast, slow = 1_500, 30

    def times_ms(call: int) -> int:
        return 0 if call < fast else time_ms

    task = bench(KINDS[kind], tmp_path, times_ms)
    values = [f"v{number}" for number in range(fast + slow)]
    task.feed("in", values)
    # Repeated records are slow as well: the work before the slow records is committed.
    task.run()
    assert max(task.rounds_ms) <= BUDGET_MS + time_ms
    assert task.given_up <= 1
    assert set(task.calls) >= ({1} if kind == "extractor" else set(values))
    (committed,) = [offset.offset for place, offset in task.committed.items() if place[0] == "in"]
    assert committed == len(values)


@pytest.mark.parametrize("kind", ["map_values", "process", "cached aggregate"])
def test_repeated_task_does_not_start_with_the_batch_that_was_given_up(
    tmp_path: Path, kind: str
) -> None:
    task = bench(KINDS[kind], tmp_path, lambda call: 0 if call < 1_200 else 1_000)
    task.feed("in", [f"v{number}" for number in range(1_230)])
    task.run()
    assert task.given_up == 1
    assert f"the maximum of {BUDGET_MS} ms (limit: " in task.reasons[0]
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


def test_single_record_is_never_interrupted(tmp_path: Path) -> None:
    """Its first function exceeds the time of a batch; the functions behind it are still called."""
    task = bench(
        lambda builder, spend: _out(_stream(builder).map_values(spend).map_values(spend)),
        tmp_path,
        lambda call: BUDGET_MS + 1_000 if call % 2 == 0 else 1_000,
    )
    task.feed("in", ["one", "two"])
    task.run()
    assert task.given_up == 0
    assert len(task.calls) == 4


def test_record_that_exceeds_the_limits_repeatedly_is_an_error(tmp_path: Path) -> None:
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


def test_loop_runs_between_slow_punctuators(tmp_path: Path) -> None:
    """Punctuators with the same time are called in order, before the next record."""

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


class _CatchesEverything(Processor[str, str, str, str]):
    """Takes its time, forwards to a fast node, and catches all exceptions."""

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


@pytest.mark.parametrize("caught", [lambda: None, _fail], ids=["continues", "raises"])
def test_interruption_that_user_code_catches_loses_no_output(
    tmp_path: Path, caught: Callable[[], None]
) -> None:
    """The last record of a batch calls no other function, which would raise the exception again."""

    def build(builder: StreamsBuilder, spend: Spend) -> None:
        shared = Stores.key_value_builder(Stores.in_memory_key_value("shared"), STRING, STRING)
        builder.add_state_store(shared)
        first = _stream(builder).process(
            lambda: _CatchesEverything(spend, caught), stores=["shared"]
        )
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
    """Detects work that is given up and repeated endlessly although no single record is too
    slow."""

    def declare(builder: StreamsBuilder, task: PacedTask) -> None:
        KINDS[kind](builder, lambda value: task.spend(6_000, value))

    task = PacedTask(declare, tmp_path, commit_interval_ms=9_000, transactional=True)
    values = [f"v{number}" for number in range(9)]
    task.feed("in", values)
    task.run()
    assert task.given_up == 1
    # The first two records were repeated.
    assert len(task.calls) == len(values) + 2
    (committed,) = [offset.offset for place, offset in task.committed.items() if place[0] == "in"]
    assert committed == len(values)


def test_slow_record_and_the_slow_punctuator_that_it_triggers_are_two_steps(
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

    def spent(*call: Any) -> None:
        task.spend(6_000, call)

    def build(builder: StreamsBuilder, _: PacedTask) -> None:
        _stream(builder).process(_Both)

    task = PacedTask(build, tmp_path)
    task.feed("in", ["v0", "v1", "v2", "v3"])
    task.run()
    assert max(task.rounds_ms) == 6_000
    assert task.given_up == 0
    order = [(kind, time) for time in range(4) for kind in ("record", "call")]
    assert task.calls == order[: len(task.calls)]
    assert len(task.calls) >= 7
