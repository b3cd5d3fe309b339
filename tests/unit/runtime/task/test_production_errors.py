"""Records that cannot be written: calls of the handlers, and the effects of their answers.

For records that a broker rejects, see `tests/integration/runtime/test_handlers.py`; here librdkafka
itself rejects them.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from millstream import (
    DefaultProductionExceptionHandler,
    ErrorContext,
    HandlerResponse,
    KStream,
    LogAndContinueProcessingExceptionHandler,
    ProcessingError,
    ProductionError,
    SerializationError,
    SinkRecord,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TaskId,
    TaskMigratedError,
)
from millstream.kafka.clients.delivery import DeliveryTracker
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.operators.record_batch import Batch, Origin
from millstream.record import TopicPartition
from millstream.runtime.task.error_handling.dead_letters import DeadLetters
from millstream.runtime.task.error_handling.production_errors import SinkProductionErrors
from millstream.runtime.task.node_context import DroppedRecords
from millstream.runtime.task.sinks import SinkBatch
from millstream.serdes import BYTES, LONG, STRING
from millstream.testing import TopologyTestDriver
from millstream.testing.driver_topics import CapturingCollector

FAIL, CONTINUE, RETRY = HandlerResponse.FAIL, HandlerResponse.CONTINUE, HandlerResponse.RETRY
TASK = TaskId(0, 1)
H = (("h", b"1"),)


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)


class FakeHandler:
    """Always gives the same answer, and keeps its arguments."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[ErrorContext, Any, Any]] = []

    def __call__(self, context: ErrorContext, record: Any, error: Any) -> Any:
        self.calls.append((context, record, error))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


# Records that cannot be serialized


def run(values: list[Any], *, behind_source: bool = False, **settings: Any) -> list[Any]:
    """Return the outputs for values that should be numbers, and the dead letters."""
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("in", key=STRING, value=STRING)
    if not behind_source:
        stream = stream.map_values(lambda value: int(value) if value.isdigit() else value)
    stream.to("out", value=LONG, name="to-out")
    with TopologyTestDriver(builder.build(), config(**settings)) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for value in values:
            topic.pipe_input("k", value, timestamp=7, headers=H)
        out = driver.create_output_topic("out", key=STRING, value=LONG).read_values()
        letters = driver.create_output_topic("letters", key=STRING, value=STRING).read_values()
    return [out, letters]


@pytest.mark.parametrize("behind_source", [False, True])
def test_production_handler_is_called_first(behind_source: bool) -> None:
    handler, processing_handler = FakeHandler(CONTINUE), FakeHandler(FAIL)
    values = ["x"] if behind_source else ["1", "x", "2"]
    found = run(
        values,
        behind_source=behind_source,
        production_exception_handler=handler,
        processing_exception_handler=processing_handler,
    )
    assert found == [[] if behind_source else [1, 2], []]
    assert processing_handler.calls == []
    ((context, record, error),) = handler.calls
    assert record == SinkRecord("out", None, 7, H, "k", "x", "value")
    assert (context.node, context.topic, context.source_value) == ("to-out", "in", b"x")
    assert isinstance(error, SerializationError)


@pytest.mark.parametrize("answer", [FAIL, RETRY, None, KeyError("a defect")])
def test_processing_handler_is_called_after_a_fail(answer: Any) -> None:
    """For the same record, as for any failure of a processor, as in Kafka Streams."""
    handler, processing_handler = FakeHandler(answer), FakeHandler(CONTINUE)
    found = run(
        ["1", "x", "2"],
        production_exception_handler=handler,
        processing_exception_handler=processing_handler,
    )
    assert found == [[1, 2], []]
    assert (len(handler.calls), len(processing_handler.calls)) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (KeyError("a defect"), "itself failed: KeyError: 'a defect'"),
        (None, "returned None"),
        (RETRY, "returned RETRY"),
    ],
)
def test_error_contains_the_invalid_answer(answer: Any, message: str) -> None:
    with pytest.raises(SerializationError) as raised:
        run(["1", "x"], production_exception_handler=FakeHandler(answer))
    assert message in raised.value.message
    assert "could not be serialized" in raised.value.message
    assert (raised.value.topic, raised.value.offset, raised.value.node) == ("in", 1, "to-out")


@pytest.mark.parametrize("production_handler", [None, DefaultProductionExceptionHandler()])
def test_two_handlers_write_one_dead_letter(production_handler: Any) -> None:
    found = run(
        ["1", "x", "2"],
        production_exception_handler=production_handler,
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        errors_dead_letter_queue_topic_name="letters",
    )
    assert found == [[1, 2], ["x"]]


def test_errors_contain_the_failures_of_other_handlers() -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("a defect")

    builder = StreamsBuilder()
    builder.stream("in", key=LONG, value=STRING).map_values(int).to("out", value=LONG)
    settings = config(processing_exception_handler=fail, deserialization_exception_handler=fail)
    for key, message in ((bytes(8), "User code failed"), (b"?", "could not be deserialized")):
        with TopologyTestDriver(builder.build(), settings) as driver:
            topic = driver.create_input_topic("in", key=BYTES, value=BYTES)
            kinds = (ProcessingError, SerializationError)
            with pytest.raises(kinds, match="itself failed: KeyError: 'a defect'") as raised:
                topic.pipe_input(key, b"x")
            assert message in raised.value.message


# Records that Kafka rejects


class Bench:
    """One sink with three sent records, read from partition 1 of `in`."""

    def __init__(self, handler: Any, topic: str | None = None) -> None:
        self.drops = DroppedRecords(TASK)
        self.collector = CapturingCollector()
        letters = DeadLetters(self.collector, topic, lambda *_: None)
        self.production = SinkProductionErrors(
            handler,
            letters,
            self.drops,
            "sink",
            TASK,
            lambda: lambda place, offset: (b"key", b"%d" % offset),
            is_last=False,
        )
        origin = Origin(TopicPartition("in", 1), [7, 8, 9], [(), H, ()])
        batch = Batch(["a", "b", "c"], [1, 2, 3], [10, 20, 30], range(3), origin)
        keys: list[bytes | None] = [b"a", b"b", b"c"]
        values: list[bytes | None] = [b"1", b"2", b"3"]
        sent = SinkBatch("out", None, keys, values, [10, 20, 30], [(), H, ()], None)
        self.rejection_handler = self.production.rejection_handler(batch, sent)

    def fail(self, *, retriable: bool = False, lost: bool = False) -> StreamsError | None:
        error = ProductionError("too large", topic="out", partition=4)
        error.retriable = retriable
        return self.rejection_handler.failed(1, error, transaction_lost=lost)


def test_handler_receives_all_details() -> None:
    handler = FakeHandler(CONTINUE)
    bench = Bench(handler)
    assert bench.fail() is None
    ((context, record, error),) = handler.calls
    assert record == SinkRecord("out", 4, 20, H, b"b", b"2")
    assert context == ErrorContext("in", 1, 8, 20, H, "sink", TASK, b"key", b"8")
    assert isinstance(error, ProductionError)
    assert bench.drops.total == 1


@pytest.mark.parametrize("retriable", [True, False])
@pytest.mark.parametrize("handler", [FakeHandler(RETRY), None])
def test_retry_is_only_valid_for_retriable_errors(handler: Any, retriable: bool) -> None:
    """The same for the answer of the default handler."""
    failure = Bench(handler).fail(retriable=retriable)
    assert isinstance(failure, TaskMigratedError if retriable else ProductionError)
    counts_as_fail = failure.message.count("RETRY, which counts as FAIL")
    assert counts_as_fail == int(handler is not None and not retriable)


@pytest.mark.parametrize(
    ("answer", "lost", "message"),
    [
        (FAIL, False, "too large"),
        (None, False, "returned None"),
        (ValueError("a defect"), False, "itself failed: ValueError: a defect"),
        (CONTINUE, True, "cannot be committed without it"),
    ],
)
def test_failure_names_the_record_and_the_reason(answer: Any, lost: bool, message: str) -> None:
    bench = Bench(FakeHandler(answer))
    failure = bench.fail(lost=lost)
    assert isinstance(failure, ProductionError)
    assert message in failure.message
    assert "topic 'out', partition 4" in failure.message
    assert (failure.topic, failure.partition, failure.offset) == ("in", 1, 8)
    assert (failure.node, failure.task_id, bench.drops.total) == ("sink", TASK, 0)


def test_dead_letters_of_the_default_handler() -> None:
    """With FAIL but not with RETRY, and never in a lost transaction."""
    bench = Bench(None, "letters")
    bench.fail(retriable=True)
    bench.fail(lost=True)
    assert bench.collector.take() == []
    bench.fail()
    (letter,) = bench.collector.take()
    assert (letter.topic, letter.key, letter.value) == ("letters", b"key", b"8")


class FakeWatch:
    """Continues without some of the records."""

    def __init__(self, *without: int) -> None:
        self.without = without
        self.failures: list[tuple[int, bool]] = []

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        self.failures.append((index, transaction_lost))
        return None if index in self.without else error


def test_producer_continues_after_rejected_records() -> None:
    """They are too large for librdkafka itself, so no broker is needed."""
    producer = RecordProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    large = b"x" * 2_000_000
    values: list[bytes | None] = [large, b"a", large, b"b", large]
    keys: list[bytes | None] = [None] * 5
    rejection_handler = FakeWatch(0, 2)
    with pytest.raises(ProductionError, match="larger than"):
        producer.send_with_handler("t", [0] * 5, keys, values, [1] * 5, None, rejection_handler)
    assert rejection_handler.failures == [(0, False), (2, False), (4, False)]
    producer.close(0)


def report(
    code: int, deliveries: DeliveryTracker, rejection_handler: FakeWatch, index: int
) -> None:
    callbacks = deliveries.callbacks_with_handler(rejection_handler, range(5), list[int]().extend)
    callbacks[index](KafkaError(code), Message(topic="x", partition=1))


@pytest.mark.parametrize("transactional", [False, True])
def test_records_rejected_by_a_broker_are_decided_later(transactional: bool) -> None:
    """Not in the callback of librdkafka, which cannot send anything."""
    deliveries, rejection_handler = DeliveryTracker(transactional=transactional), FakeWatch(0, 1)
    for index in range(3):
        report(KafkaError.MSG_SIZE_TOO_LARGE, deliveries, rejection_handler, index)
    assert (rejection_handler.failures, deliveries.undecided) == ([], 3)
    deliveries.decide()
    assert rejection_handler.failures == [(index, transactional) for index in range(3)]
    assert isinstance(deliveries.first_failure(), ProductionError)
    report(KafkaError.MSG_SIZE_TOO_LARGE, deliveries, rejection_handler, 0)
    deliveries.decide()
    assert len(rejection_handler.failures) == 3, "no handler is called once a record is lost"
    deliveries.reset()
    assert deliveries.first_failure() is None


def test_reset_drops_pending_decisions() -> None:
    """The next owners send the records again and call their handlers."""
    deliveries, rejection_handler = DeliveryTracker(), FakeWatch(0)
    report(KafkaError.MSG_SIZE_TOO_LARGE, deliveries, rejection_handler, 0)
    report(KafkaError._PURGE_QUEUE, deliveries, rejection_handler, 1)
    deliveries.reset()
    deliveries.decide()
    assert rejection_handler.failures == []


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN,
        KafkaError._FENCED,
    ],
)
def test_no_handler_is_called_for_errors_that_affect_all_records(code: int) -> None:
    """Like Kafka Streams."""
    deliveries, rejection_handler = DeliveryTracker(), FakeWatch(0)
    report(code, deliveries, rejection_handler, 0)
    deliveries.decide()
    assert rejection_handler.failures == []
    assert deliveries.first_failure() is not None


@pytest.mark.parametrize("reprocess_on_timeout", [True, False])
def test_timeout_of_unwatched_records(reprocess_on_timeout: bool) -> None:
    """For changelogs, and for outputs without a custom handler."""
    deliveries = DeliveryTracker(reprocess_on_timeout=reprocess_on_timeout)
    deliveries.failures_only(KafkaError(KafkaError._MSG_TIMED_OUT), Message(topic="x", partition=1))
    failure = deliveries.first_failure()
    assert isinstance(failure, TaskMigratedError if reprocess_on_timeout else ProductionError)
    assert failure.retriable


def test_handler_must_be_callable() -> None:
    with pytest.raises(ValueError, match="production_exception_handler is 'LogAndFail', but must"):
        config(production_exception_handler="LogAndFail")
