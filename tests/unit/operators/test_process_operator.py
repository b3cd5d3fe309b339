"""The Processor API in the engine: cases that the recorded scenarios do not cover."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    IllegalStateError,
    ProcessingError,
    StreamsError,
    UnsupportedOperationError,
)
from millstream.processor.handlers import LogAndContinueProcessingExceptionHandler
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.processor.punctuation import PunctuationType
from millstream.record import FixedKeyRecord, Record, RecordMetadata, TaskId
from millstream.serdes import LONG, STRING
from millstream.state.stores import Stores
from millstream.testing import TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology


def topology_with(supplier: Callable[[], Any], **options: Any) -> Topology:
    """Return a topology from topic "in" through a processor "p" to topic "out"."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(supplier, name="p", **options).to("out", key=STRING, value=STRING)
    return builder.build()


def run(topology: Topology, *values: str, **settings: Any) -> list[str]:
    """Return the output values."""
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)
    with TopologyTestDriver(topology, config, initial_wall_clock_ms=77) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for timestamp, value in enumerate(values):
            topic.pipe_input("k", value, timestamp=timestamp)
        return driver.create_output_topic("out", key=STRING, value=STRING).read_values()


class CallbackProcessor(Processor[Any, Any, Any, Any]):
    """Calls functions of the test."""

    def __init__(self, *, process: Any = None, init: Any = None, close: Any = None) -> None:
        self._do = {"init": init, "process": process, "close": close}

    def init(self, context: Any) -> None:
        super().init(context)
        if self._do["init"]:
            self._do["init"](context)

    def process(self, record: Any) -> None:
        if self._do["process"]:
            self._do["process"](self.context, record)

    def close(self) -> None:
        if self._do["close"]:
            self._do["close"](self.context)


def test_processor_has_access_to_its_task() -> None:
    """Application, task, directory, settings, time and the origin of the record."""
    seen: list[Any] = []

    def inspect(context: Any, record: Any) -> None:
        seen.extend(
            [
                context.application_id,
                context.task_id,
                context.state_dir.name,
                context.config.application_id,
                context.current_stream_time_ms(),
                context.current_system_time_ms(),
                context.record_metadata(),
                "dropped-records-total" in {name.name for name in context.metrics},
            ]
        )

    run(topology_with(lambda: CallbackProcessor(process=inspect)), "v")
    assert seen == [
        "app",
        TaskId(0, 0),
        "0_0",
        "app",
        0,
        77,
        RecordMetadata("in", 0, 0),
        True,
    ]


def test_there_is_no_record_metadata_outside_of_records() -> None:
    seen: list[Any] = []

    def inspect(context: Any) -> None:
        seen.append((context.record_metadata(), context.current_stream_time_ms()))

    run(topology_with(lambda: CallbackProcessor(init=inspect, close=inspect)), "v")
    assert seen[0] == (None, -1)
    assert seen[-1] == (None, 0)


@pytest.mark.parametrize("when", ["init", "close"])
def test_forward_raises_outside_of_records(when: str) -> None:
    def forward(context: Any) -> None:
        context.forward(Record("k", "v", 0))

    with pytest.raises(IllegalStateError, match="forward"):
        run(topology_with(lambda: CallbackProcessor(**{when: forward})), "v")


def test_exception_in_init_is_explained() -> None:
    def fail(context: Any) -> None:
        raise KeyError("url")

    with pytest.raises(StreamsError, match="could not be initialized: KeyError") as raised:
        run(topology_with(lambda: CallbackProcessor(init=fail)))
    assert raised.value.node == "p"
    assert isinstance(raised.value.__cause__, KeyError)


def test_records_forwarded_before_a_failure_are_kept() -> None:
    """The failed record is skipped from there on; its earlier results are not revoked."""

    def forward_twice(context: Any, record: Any) -> None:
        context.forward(record.with_value(record.value + "1"))
        if record.value == "b":
            raise ValueError("b")
        context.forward(record.with_value(record.value + "2"))

    out = run(
        topology_with(lambda: CallbackProcessor(process=forward_twice)),
        *"abc",
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
    )
    assert out == ["a1", "a2", "b1", "c1", "c2"]


def test_only_records_can_be_forwarded() -> None:
    def forward(context: Any, record: Any) -> None:
        context.forward(("k", "v"))

    with pytest.raises(ProcessingError, match="takes a Record, but got tuple"):
        run(topology_with(lambda: CallbackProcessor(process=forward)), "v")


def test_key_cannot_be_changed_in_process_values() -> None:
    class Rekey(FixedKeyProcessor[str, str, str]):
        def process(self, record: FixedKeyRecord[str, str]) -> None:
            changed: Any = Record("other", record.value, record.timestamp)
            self.context.forward(changed)

    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process_values(Rekey).to("out", key=STRING, value=STRING)
    with pytest.raises(ProcessingError, match="FixedKeyRecord"):
        run(builder.build(), "v")
    with pytest.raises(AttributeError, match="key of a FixedKeyRecord is fixed"):
        FixedKeyRecord("k", "v", 0).key = "other"  # type: ignore[misc]


def test_store_shared_with_a_child_contains_its_writes() -> None:
    """forward() returns after the child has processed the record."""
    store = Stores.key_value_builder(Stores.in_memory_key_value("s"), STRING, STRING)

    def parent(context: Any, record: Any) -> None:
        context.forward(record)
        written = context.get_state_store("s").get(record.key)
        context.forward(record.with_value(f"child wrote {written}"))

    def child(context: Any, record: Any) -> None:
        context.get_state_store("s").put(record.key, record.value)
        context.forward(record)

    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("parent", lambda: CallbackProcessor(process=parent), "source")
    topology.add_processor("child", lambda: CallbackProcessor(process=child), "parent")
    topology.add_sink("sink", "out", "child", key=STRING, value=STRING)
    topology.add_state_store(store, "parent", "child")
    assert run(topology, "a", "b") == ["a", "child wrote a", "b", "child wrote b"]


def test_record_of_the_parent_is_restored_after_a_child() -> None:
    """Changelog records have the time of the record being processed."""
    store = Stores.key_value_builder(Stores.in_memory_key_value("s"), STRING, STRING)

    def parent(context: Any, record: Any) -> None:
        context.forward(record.with_timestamp(500))
        context.get_state_store("s").put("parent", record.value)

    def child(context: Any, record: Any) -> None:
        context.get_state_store("s").put("child", record.value)

    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("parent", lambda: CallbackProcessor(process=parent), "source")
    topology.add_processor("child", lambda: CallbackProcessor(process=child), "parent")
    topology.add_state_store(store, "parent", "child")
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "v", timestamp=7)
        (name,) = driver.produced_topic_names()
        log = driver.create_output_topic(name, key=STRING, value=STRING).read_records()
    assert [(record.key, record.timestamp) for record in log] == [("child", 500), ("parent", 7)]


def test_handler_is_called_for_a_failing_punctuator() -> None:
    def schedule(context: Any) -> None:
        def call(time_ms: int) -> None:
            context.forward(Record("k", f"called at {time_ms}", time_ms))
            raise ValueError("late")

        context.schedule(timedelta(milliseconds=10), PunctuationType.STREAM_TIME, call)

    topology = topology_with(lambda: CallbackProcessor(init=schedule))
    with pytest.raises(ProcessingError) as raised:
        run(topology, "a")
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.topic is None
    handler = LogAndContinueProcessingExceptionHandler()
    assert run(topology, "a", processing_exception_handler=handler) == ["called at 0"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"interval": timedelta(0)}, ValueError, "1 millisecond"),
        ({"interval": timedelta(microseconds=999)}, ValueError, "1 millisecond"),
        ({"interval": 10}, TypeError, "timedelta"),
        ({"kind": "stream"}, TypeError, "PunctuationType"),
        ({"start_ms": -1}, ValueError, "cannot start at -1"),
    ],
)
def test_invalid_schedules_are_rejected(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"interval": timedelta(seconds=1), "kind": PunctuationType.STREAM_TIME, **options}

    def schedule(context: Any) -> None:
        context.schedule(callback=print, **arguments)

    with pytest.raises(StreamsError, match=message) as raised:
        run(topology_with(lambda: CallbackProcessor(init=schedule)))
    assert isinstance(raised.value.__cause__, error)


def global_topology(process: Any = None, *, fill: Any = None) -> Topology:
    """Return a topology with a global store "g" of topic "g-topic", and a processor that can use
    it."""

    class Fill(Processor[str, int, None, None]):
        def process(self, record: Record[str, int]) -> None:
            if fill is not None:
                fill(self.context, record)
            self.context.get_state_store("g").put(record.key, record.value)

    builder = StreamsBuilder()
    store = Stores.key_value_builder(Stores.persistent_key_value("g"), STRING, LONG)
    builder.add_global_store(store, "g-topic", Fill, key=STRING, value=LONG)
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(lambda: CallbackProcessor(process=process)).to("out", key=STRING, value=STRING)
    return builder.build()


def test_global_store_is_readable_without_a_connection() -> None:
    def inspect(context: Any, record: Any) -> None:
        context.forward(record.with_value(str(context.get_state_store("g").get("g"))))

    with TopologyTestDriver(global_topology(inspect)) as driver:
        prices = driver.create_input_topic("g-topic", key=STRING, value=LONG)
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for price in (None, 5, None):
            prices.pipe_input("g", price)
            topic.pipe_input("k", "v")
        out = driver.create_output_topic("out", key=STRING, value=STRING)
        assert out.read_values() == ["None", "5", "None"]
        assert driver.get_all_state_stores().keys() == {"g"}
        driver.get_state_store("g").put("x", 1)
        assert driver.get_state_store("g").get("x") == 1
        assert driver.produced_topic_names() == {"out"}


@pytest.mark.parametrize("method", ["put", "delete", "put_all", "put_if_absent"])
def test_tasks_cannot_write_to_a_global_store(method: str) -> None:
    def write(context: Any, record: Any) -> None:
        getattr(context.get_state_store("g"), method)("k", 1)

    with pytest.raises(ProcessingError) as raised:
        run(global_topology(write), "v")
    assert isinstance(raised.value.__cause__, UnsupportedOperationError)


@pytest.mark.parametrize(
    "use",
    [
        lambda context, record: context.forward(record, "child"),
        lambda context, record: context.current_stream_time_ms(),
        lambda context, record: context.schedule(
            timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, print
        ),
    ],
)
def test_processor_of_a_global_store_can_only_write_to_it(use: Any) -> None:
    with TopologyTestDriver(global_topology(fill=use)) as driver:
        topic = driver.create_input_topic("g-topic", key=STRING, value=LONG)
        with pytest.raises(StreamsError):
            topic.pipe_input("k", 1)


def test_returned_record_is_rejected() -> None:
    """It would be lost silently. The handler is called, as for any other failure."""

    class Returning(Processor[Any, Any, Any, Any]):
        def __init__(self, result: Callable[[Any], Any]) -> None:
            self._result = result

        def process(self, record: Any) -> Any:
            return self._result(record)

    results: list[Callable[[Any], Any]] = [
        lambda record: record,
        lambda record: [record, record],
        lambda record: (record,),
    ]

    def returning(result: Callable[[Any], Any]) -> Topology:
        return topology_with(lambda: Returning(result))

    for result in results:
        with pytest.raises(
            ProcessingError, match=r"process\(\) returned a record.*forward\(record\)"
        ):
            run(returning(result), "a")

    class FixedKey(FixedKeyProcessor[Any, Any, Any]):
        def process(self, record: Any) -> Any:
            return record.with_value("b")

    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).process_values(FixedKey)
    with pytest.raises(ProcessingError, match=r"FixedKey\.process\(\) returned"):
        run(builder.build(), "a")


def test_record_that_a_punctuator_returns_is_rejected() -> None:
    def init(context: Any) -> None:
        context.schedule(
            timedelta(milliseconds=1),
            PunctuationType.STREAM_TIME,
            lambda time: Record("k", "v", time),
        )

    with pytest.raises(ProcessingError, match="returned a record, which is not forwarded"):
        run(topology_with(lambda: CallbackProcessor(init=init)), "a", "b")


def test_other_results_of_a_processor_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Once, and forwarded records are not affected."""

    class ReturnsLength(Processor[Any, Any, Any, Any]):
        def process(self, record: Any) -> Any:
            self.context.forward(record)
            return len(record.value)

    assert run(topology_with(ReturnsLength), "a", "bb") == ["a", "bb"]
    (line,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert "node p: " in line
    assert "ReturnsLength.process() returned 1 (int), which is ignored" in line
