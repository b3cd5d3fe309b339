"""Every exception handler with every answer, on a real broker: each input record is in the
output, in the dead-letter queue, or dropped on purpose and counted; none is in two places."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import BrokerTopics, InputRecord, fill, read_all, unique
from support.running.thread_run import FinishedRun, is_done, run_to_end
from support.waiting import wait_for

from millstream import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE_V2,
    DeadLetter,
    DefaultProductionExceptionHandler,
    ErrorContext,
    HandlerDecision,
    HandlerResponse,
    KafkaStreams,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    ProcessingError,
    ProductionError,
    SerializationError,
    SinkRecord,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
)
from millstream.serdes import BYTES, LONG, STRING, Serde
from millstream.testing import EmbeddedKafka

FAIL, CONTINUE, RETRY = HandlerResponse.FAIL, HandlerResponse.CONTINUE, HandlerResponse.RETRY
#: Ten records, of which these are bad.
BAD = frozenset({2, 3, 7, 9})
GOOD = [number for number in range(10) if number not in BAD]
GUARANTEES = pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])


@dataclass
class Handler:
    """Always gives the same answer, with or without a dead letter; records its calls."""

    answer: HandlerResponse
    letters: str | None = None
    calls: list[tuple[ErrorContext, Any, Any]] = field(default_factory=list)

    def __call__(self, context: ErrorContext, record: Any, error: Any) -> HandlerDecision:
        self.calls.append((context, record, error))
        if self.letters is None:
            return HandlerDecision(self.answer)
        return self.answer.with_dead_letters(DeadLetter.of(context, error, self.letters))


class Application:
    """Copies ten records of `in` to `out`; the bad ones may go elsewhere."""

    def __init__(
        self, kafka: EmbeddedKafka, folder: Path, *, out_config: dict[str, str] | None = None
    ) -> None:
        self.bootstrap = kafka.bootstrap_servers
        self.name = unique("handlers")
        self.source, self.out, self.letters = (
            f"{self.name}-{each}" for each in ("in", "out", "letters")
        )
        self._folder = folder
        self.places = BrokerTopics(self.bootstrap)
        self.places.create({self.source: 1, self.letters: 1})
        kafka.create_topic(self.out, partitions=1, config=out_config or {})
        self.builder = StreamsBuilder()

    def write(self, values: list[bytes]) -> None:
        fill(self.bootstrap, self.source, ((b"%d" % n, value) for n, value in enumerate(values)))

    def config(self, **settings: Any) -> StreamsConfig:
        return StreamsConfig(
            application_id=self.name,
            bootstrap_servers=self.bootstrap,
            state_dir=str(self._folder),
            **{"commit_interval_ms": 50, **settings},
        )

    def run(self, **settings: Any) -> FinishedRun:
        return run_to_end(self.builder.build(), self.config(**settings), [self.source])

    def keys(self, topic: str) -> list[int]:
        """The keys of the committed records of a topic."""
        return sorted(int(key or b"-1") for key, _ in read_all(self.bootstrap, topic))

    def is_done(self) -> bool:
        return is_done(self.places, self.name, [self.source])


@pytest.fixture
def application(kafka: EmbeddedKafka, tmp_path: Path) -> Application:
    return Application(kafka, tmp_path)


# Each kind of failure: the setting of its handler, values, the topology, and the error.


def unreadable(application: Application) -> type[StreamsError]:
    values = [b"?" if number in BAD else bytes(7) + bytes([number]) for number in range(10)]
    application.write(values)
    stream = application.builder.stream(application.source, key=BYTES, value=LONG)
    stream.filter(lambda key, value: True).to(application.out)
    return SerializationError


def unprocessable(application: Application) -> type[StreamsError]:
    application.write([b"0" if number in BAD else b"1" for number in range(10)])
    stream = application.builder.stream(application.source, key=BYTES, value=STRING)
    stream.map_values(lambda value: 1 // int(value)).to(application.out, value=LONG)
    return ProcessingError


def unserializable(application: Application) -> type[StreamsError]:
    application.write([b"-" if number in BAD else b"+" for number in range(10)])
    stream = application.builder.stream(application.source, key=BYTES, value=STRING)
    stream.to(application.out, value=Serde[Any](only_plus, lambda topic, data: data))
    return SerializationError


def only_plus(topic: str, value: Any) -> bytes:
    if value != "+":
        raise ValueError(value)
    return b"+"


def too_large(application: Application) -> type[StreamsError]:
    """Too large for the producer itself."""
    application.write([b"-" if number in BAD else b"+" for number in range(10)])
    stream = application.builder.stream(application.source, key=BYTES, value=STRING)
    stream.map_values(lambda value: value if value == "+" else "x" * 2_000_000).to(
        application.out, value=STRING
    )
    return ProductionError


WAYS: dict[str, tuple[str, Callable[[Application], type[StreamsError]]]] = {
    "unreadable": ("deserialization_exception_handler", unreadable),
    "unprocessable": ("processing_exception_handler", unprocessable),
    "unserializable": ("production_exception_handler", unserializable),
    "too-large": ("production_exception_handler", too_large),
}


@GUARANTEES
@pytest.mark.parametrize("way", WAYS)
def test_continue(application: Application, way: str, guarantee: str) -> None:
    """Only the bad records are skipped and counted; their dead letters are in the same commits."""
    setting, build = WAYS[way]
    build(application)
    handler = Handler(CONTINUE, application.letters)
    run = application.run(**{setting: handler}, processing_guarantee=guarantee)
    assert run.outcome.error is None
    assert application.keys(application.out) == GOOD
    assert application.keys(application.letters) == sorted(BAD)
    assert run.dropped == len(BAD)
    for context, _, _ in handler.calls:
        assert (context.topic, context.partition) == (application.source, 0)
        assert (context.source_key, context.offset in BAD) == (b"%d" % context.offset, True)
        assert str(context.task_id) == "0_0"


@pytest.mark.parametrize(
    ("answer", "guarantee"),
    [
        (FAIL, AT_LEAST_ONCE),
        pytest.param("raises", AT_LEAST_ONCE, marks=pytest.mark.extended),
        pytest.param(FAIL, EXACTLY_ONCE_V2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_fail(application: Application, way: str, answer: Any, guarantee: str) -> None:
    """The thread ends at the first bad record; also if the handler itself fails, in which case
    the message contains both errors."""
    setting, build = WAYS[way]
    error = build(application)

    def handler(*_: Any) -> Any:
        if answer == "raises":
            raise KeyError("a defect of the handler")
        return answer

    run = application.run(**{setting: handler}, processing_guarantee=guarantee)
    assert isinstance(run.outcome.error, error)
    assert ("a defect of the handler" in str(run.outcome.error)) == (answer == "raises")
    assert (run.outcome.error.topic, run.outcome.error.offset) == (application.source, 2)
    assert run.dropped == 0
    assert set(application.keys(application.out)) <= {0, 1}


@pytest.mark.parametrize("way", WAYS)
def test_the_built_in_handlers_write_dead_letters(application: Application, way: str) -> None:
    """With one dead letter for each record, also before the thread fails."""
    setting, build = WAYS[way]
    error = build(application)
    run = application.run(
        errors_dead_letter_queue_topic_name=application.letters,
        deserialization_exception_handler=LogAndContinueExceptionHandler(),
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        production_exception_handler=DefaultProductionExceptionHandler(),
    )
    if setting == "production_exception_handler":
        # The built-in one continues without a dead letter.
        assert isinstance(run.outcome.error, error)
        assert application.keys(application.letters) == [2]
        assert run.dropped == 0
    else:
        assert run.outcome.error is None
        assert application.keys(application.out) == GOOD
        assert application.keys(application.letters) == sorted(BAD)
        assert run.dropped == len(BAD)


def rejected_by_the_broker(kafka: EmbeddedKafka, folder: Path) -> Application:
    """The topic's maximum message size is small, and the producer does not check it for single
    records."""
    application = Application(kafka, folder, out_config={"max.message.bytes": "1000"})
    application.write([b"-" if number in BAD else b"+" for number in range(10)])
    stream = application.builder.stream(application.source, key=BYTES, value=STRING)
    stream.map_values(lambda value: value if value == "+" else "x" * 5_000).to(
        application.out, value=STRING
    )
    return application


#: Makes each record a batch of its own.
ALONE: dict[str, Any] = {"producer": {"batch.size": 100, "compression.type": "none"}}


@pytest.mark.parametrize("answer", [CONTINUE, FAIL, RETRY])
def test_the_broker_rejects_a_record(
    kafka: EmbeddedKafka, tmp_path: Path, answer: HandlerResponse
) -> None:
    """Reported long after the batch: with the record, its partition, and its source."""
    application = rejected_by_the_broker(kafka, tmp_path)
    handler = Handler(answer, application.letters)
    run = application.run(production_exception_handler=handler, **ALONE)
    context, record, error = handler.calls[0]
    assert isinstance(record, SinkRecord)
    assert (record.topic, record.partition, len(record.value)) == (application.out, 0, 5_000)
    assert record.key == b"%d" % context.offset
    assert (context.topic, context.source_value) == (application.source, b"-")
    assert isinstance(error, ProductionError)
    assert not error.retriable
    if answer is CONTINUE:
        assert run.outcome.error is None
        assert application.keys(application.out) == GOOD
        assert application.keys(application.letters) == sorted(BAD)
        assert run.dropped == len(BAD)
    else:
        assert isinstance(run.outcome.error, ProductionError)
        assert application.out in str(run.outcome.error)
        assert run.outcome.error.offset in BAD
        assert run.dropped == 0


@pytest.mark.parametrize("answer", [CONTINUE, FAIL])
def test_the_broker_rejects_a_record_in_a_transaction(
    kafka: EmbeddedKafka, tmp_path: Path, answer: HandlerResponse
) -> None:
    """The transaction cannot be committed, regardless of the handler."""
    application = rejected_by_the_broker(kafka, tmp_path)
    handler = Handler(answer, application.letters)
    run = application.run(
        production_exception_handler=handler,
        processing_guarantee=EXACTLY_ONCE_V2,
        # Otherwise a slow thread would commit the first records in a transaction of their own.
        commit_interval_ms=5_000,
        **ALONE,
    )
    assert handler.calls
    assert isinstance(run.outcome.error, ProductionError)
    assert ("cannot be committed" in str(run.outcome.error)) == (answer is CONTINUE)
    assert application.keys(application.out) == []
    assert application.keys(application.letters) == []


@pytest.mark.parametrize("answer", [CONTINUE, FAIL])
def test_an_invalid_timestamp(kafka: EmbeddedKafka, tmp_path: Path, answer: Any) -> None:
    """The broker rejects records that are too old for the topic."""
    application = Application(
        kafka, tmp_path, out_config={"message.timestamp.before.max.ms": "3600000"}
    )
    application.places.write(InputRecord(application.source, 0, "k", "v", 1_000) for _ in range(3))
    application.builder.stream(application.source, key=BYTES, value=STRING).to(application.out)
    handler = Handler(answer)
    run = application.run(production_exception_handler=handler, **ALONE)
    assert handler.calls[0][1].timestamp == 1_000
    assert "message.timestamp.before.max.ms" in str(handler.calls[0][2])
    if answer is FAIL:
        assert "with timestamp 1000 was rejected" in str(run.outcome.error)
        return
    assert run.outcome.error is None
    assert run.dropped == 3


@pytest.mark.slow
def test_a_missing_topic(application: Application) -> None:
    application.write([b"+", b"-", b"+"])
    out = application.out
    (
        application.builder.stream(application.source, key=BYTES, value=STRING).to(
            lambda key, value, context: out if value == "+" else f"{out}-missing"
        )
    )
    handler = Handler(CONTINUE)
    run = application.run(
        production_exception_handler=handler,
        producer={"delivery.timeout.ms": 5_000, "request.timeout.ms": 2_000},
    )
    assert run.outcome.error is None
    assert application.keys(out) == [0, 2]
    assert run.dropped == 1


#: Settings with short timeouts for records that no broker accepts.
SHORT_TIMEOUTS: dict[str, Any] = {
    "producer": {"delivery.timeout.ms": 600, "request.timeout.ms": 500},
    "main_consumer": {"max.poll.records": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_retry(tmp_path: Path, own: bool) -> None:
    """Records that no broker accepted in time are processed again from the last commit: none is
    lost, and the thread continues. The built-in handler does the same."""
    with EmbeddedKafka() as kafka:
        application = Application(kafka, tmp_path)
        application.write([b"stop" if number == 5 else b"+" for number in range(10)])
        retriable: list[bool] = []
        seen: list[str] = []

        def accept_records() -> None:
            assert kafka.pid is not None
            os.kill(kafka.pid, signal.SIGCONT)

        def reject_once(value: str) -> str:
            if value == "stop" and value not in seen:
                assert kafka.pid is not None
                os.kill(kafka.pid, signal.SIGSTOP)
                if not own:
                    threading.Timer(1.5, accept_records).start()
            seen.append(value)
            return value

        def handler(context: ErrorContext, record: SinkRecord, error: StreamsError) -> Any:
            retriable.append(error.retriable)
            accept_records()
            return RETRY

        stream = application.builder.stream(application.source, key=BYTES, value=STRING)
        stream.map_values(reject_once).to(application.out, value=STRING)
        try:
            run = application.run(
                production_exception_handler=handler if own else None,
                commit_interval_ms=100,
                **SHORT_TIMEOUTS,
            )
        finally:
            accept_records()
        assert run.outcome.error is None
        assert set(application.keys(application.out)) == set(range(10))
        assert seen.count("stop") > 1, "the record was not processed again"
        assert run.dropped == 0
        assert set(retriable) == ({True} if own else set())


@pytest.mark.extended
def test_through_spark(application: Application, spark: SparkSession, tmp_path: Path) -> None:
    """Handlers are shipped to the workers, and their errors are returned."""
    _, build = WAYS["too-large"]
    build(application)
    letters = application.letters

    def handler(context: ErrorContext, record: SinkRecord, error: StreamsError) -> HandlerDecision:
        return HandlerResponse.CONTINUE.with_dead_letters(DeadLetter.of(context, error, letters))

    config = application.config(production_exception_handler=handler)
    with KafkaStreams(application.builder.build(), config, spark) as streams:
        streams.wait_for_state("RUNNING", timedelta(seconds=60))
        wait_for(application.is_done, 60, "the input is processed")
        wait_for(lambda: _dropped(streams) == len(BAD), 10, lambda: f"{streams.metrics()}")
    assert application.keys(application.out) == GOOD
    assert application.keys(application.letters) == sorted(BAD)


def _dropped(streams: KafkaStreams) -> int:
    return int(streams.metrics().total("dropped-records-total"))
