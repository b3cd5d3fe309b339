"""Exceptions of user code of every kind: errors contain their origin, and nothing hangs."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import Materialized, Processor, PunctuationType, StreamsBuilder, StreamsConfig
from millstream.errors import (
    MAX_CHARS,
    IllegalStateError,
    ProcessingError,
    StreamsError,
    repr_of,
    text_of,
)
from millstream.processor.handlers import LogAndContinueProcessingExceptionHandler
from millstream.runtime.stack_inspection import raised_by_user_code
from millstream.runtime.thread_control import ThreadFailed
from millstream.serdes import STRING, Serde
from millstream.spark.connection.messages import (
    MAX_DATA_BYTES,
    ShippedError,
    ThreadExit,
    UndeliverableObject,
    decode_value,
    encode_value,
)
from millstream.testing import TopologyTestDriver


def failing(*_: Any) -> Any:
    raise RuntimeError("no text")


class NoTextError(Exception):
    __str__ = failing


class NoReprError(Exception):
    __repr__ = failing
    __str__ = failing


class NoPickleError(Exception):
    __reduce__ = failing


class NeedsMoreError(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{code} {why}")


class NotesFailError(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")


class HoldsALockError(Exception):
    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


class HugeError(Exception):
    def __init__(self) -> None:
        super().__init__("the batch has a hole")
        self.batch = b"x" * (MAX_DATA_BYTES + 1)


class VerboseError(Exception):
    def __init__(self) -> None:
        super().__init__("x" * 5_000_000)


UNUSUAL_ERRORS: dict[str, Callable[[], Exception]] = {
    "no text": NoTextError,
    "no repr": NoReprError,
    "no pickle": NoPickleError,
    "more arguments": lambda: NeedsMoreError(1, "why"),
    "notes fail": NotesFailError,
    "holds a lock": HoldsALockError,
    "verbose": VerboseError,
}


def raising_function(error: BaseException) -> Callable[..., Any]:
    def raising(*_: Any) -> Any:
        raise error

    return raising


class Raising(Processor[str, str, str, str]):
    def __init__(self, function: Callable[..., Any], *, by_time: bool = False) -> None:
        self._function = function
        self._by_time = by_time

    def init(self, context: Any) -> None:
        super().init(context)
        if self._by_time:
            second = timedelta(seconds=1)
            context.schedule(second, PunctuationType.STREAM_TIME, lambda _: self._function())

    def process(self, record: Any) -> None:
        if not self._by_time:
            self._function()


def builder(function: Callable[..., Any], where: str) -> StreamsBuilder:
    """Return a topology that calls a user function in the given place."""
    topology_builder = StreamsBuilder()
    value = Serde(lambda t, v: v.encode(), function) if where == "deserializer" else STRING
    extractor = function if where == "extractor" else None
    stream: Any = topology_builder.stream(
        "in", key=STRING, value=value, timestamp_extractor=extractor
    )
    if where == "map_values":
        stream = stream.map_values(function)
    elif where == "process":
        stream = stream.process(lambda: Raising(function))
    elif where == "punctuator":
        stream = stream.process(lambda: Raising(function, by_time=True))
    elif where == "aggregate":
        counts = stream.group_by_key().aggregate(str, function, store=Materialized(value=STRING))
        stream = counts.to_stream()
    output_serde = Serde(function, lambda t, d: d.decode()) if where == "serializer" else STRING
    stream.to(
        "out", key=STRING, value=output_serde, partitioner=function if where == "sink" else None
    )
    return topology_builder


def run(function: Callable[..., Any], where: str, **settings: Any) -> None:
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)
    with TopologyTestDriver(builder(function, where).build(), config) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_key_values(
            [("k", "a"), ("k", "b")]
        )


PLACES = (
    *("map_values", "process", "aggregate", "extractor"),
    *("deserializer", "serializer", "sink"),
)


@pytest.mark.parametrize("kind", UNUSUAL_ERRORS)
@pytest.mark.parametrize("where", PLACES)
def test_error_contains_its_origin_for_every_exception(where: str, kind: str) -> None:
    """An exception that cannot be formatted must not hide the origin of its record."""
    with pytest.raises(StreamsError) as caught:
        run(raising_function(UNUSUAL_ERRORS[kind]()), where)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("in", 0, 0)
    assert error.node
    assert str(error.task_id) == "0_0"
    assert "topic in, partition 0, offset 0" in str(error)
    assert len(str(error)) < 3 * MAX_CHARS


@pytest.mark.parametrize("kind", UNUSUAL_ERRORS)
def test_records_are_skipped_for_every_exception(kind: str) -> None:
    """CONTINUE applies to exceptions that cannot be formatted; there is a dead letter."""
    handler = LogAndContinueProcessingExceptionHandler()
    run(
        raising_function(UNUSUAL_ERRORS[kind]()),
        "map_values",
        processing_exception_handler=handler,
        errors_dead_letter_queue_topic_name="dead",
    )


STOPS: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("where", [*PLACES, "punctuator"])
def test_driver_closes_after_a_base_exception(where: str, stop: type[BaseException]) -> None:
    """Ctrl-C and sys.exit() in user code end a test. Detects a close() that waits forever."""
    with pytest.raises(stop):
        run(raising_function(stop(1)), where)


@pytest.mark.parametrize("stop", STOPS)
def test_driver_fails_after_a_base_exception(stop: type[BaseException]) -> None:
    """An interrupted record is neither committed nor followed by others."""
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    with TopologyTestDriver(
        builder(raising_function(stop(1)), "map_values").build(), config
    ) as driver:
        source = driver.create_input_topic("in", key=STRING, value=STRING)
        with pytest.raises(stop):
            source.pipe_input("k", "a")
        with pytest.raises(IllegalStateError, match="topology has failed"):
            source.pipe_input("k", "b")


def exits(*_: Any) -> Any:
    sys.exit("enough")


@pytest.mark.parametrize("where", [*PLACES, "punctuator"])
def test_sys_exit_is_reported_as_user_code(where: str) -> None:
    """The error names the function that called sys.exit(), its line and its record."""
    with pytest.raises(SystemExit) as caught:
        run(exits, where)
    error = raised_by_user_code(caught.value)
    message = str(error)
    name = "<lambda>" if where == "punctuator" else "exits"
    if where == "process":
        name = "Raising.process"
    assert f"{name} ({__file__}:" in message
    assert "raised SystemExit: enough" in message
    assert error.__cause__ is caught.value
    assert error.node is not None
    if where not in ("punctuator", "serializer"):
        assert (error.topic, error.partition) == ("in", 0)
        assert error.offset == (None if where == "deserializer" else 0)


def round_trip(value: Any) -> Any:
    data = encode_value(value)
    assert len(data) <= MAX_DATA_BYTES
    return decode_value(data)


@pytest.mark.parametrize("kind", [*UNUSUAL_ERRORS, "huge"])
@pytest.mark.parametrize("wrap", [lambda e: ThreadExit("error", e), ThreadFailed])
def test_failed_thread_reports_every_exception(kind: str, wrap: Callable[[Any], Any]) -> None:
    """The driver must receive the failure, and not restart the thread without a reason."""
    cause = {**UNUSUAL_ERRORS, "huge": HugeError}[kind]()
    error = ProcessingError("User code failed.", topic="in", partition=0, offset=7, node="n")
    error.__cause__ = cause
    arrived = round_trip(wrap(error))
    assert not isinstance(arrived, UndeliverableObject)
    assert isinstance(arrived.error, ProcessingError)
    assert (arrived.error.topic, arrived.error.offset) == ("in", 7)
    assert arrived.error.__cause__ is not None


def test_huge_exception_arrives_as_its_text() -> None:
    error = ShippedError.of(HugeError()).restore()
    assert "HugeError: the batch has a hole" in str(error)
    assert "bytes exceed the limit of" in str(error)
    assert len(pickle.dumps(ShippedError.of(HugeError()))) < 100_000


def test_every_exception_has_a_text() -> None:
    assert text_of(ValueError("plain")) == "plain"
    assert "NoTextError" in text_of(NoTextError())
    assert "RuntimeError" in repr_of(NoReprError())
    assert len(text_of(VerboseError())) < MAX_CHARS + 100
