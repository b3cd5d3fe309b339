"""Who is asked about records that cannot be written, what is told, and what the answers mean.

What a broker refuses is in `tests/integration/runtime/test_handlers.py`; here it is librdkafka
itself."""

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
from millstream.kafka.data.delivery import Deliveries
from millstream.kafka.data.producer import RecordProducer
from millstream.operators.batch import Batch, Origin
from millstream.record import TopicPartition
from millstream.runtime.task.dead_letters import DeadLetters
from millstream.runtime.task.node_context import Dropped
from millstream.runtime.task.production import SinkProduction
from millstream.runtime.task.sinks import Outgoing
from millstream.serdes import BYTES, LONG, STRING
from millstream.testing import TopologyTestDriver
from millstream.testing.driver_topics import CapturingCollector

FAIL, CONTINUE, RETRY = HandlerResponse.FAIL, HandlerResponse.CONTINUE, HandlerResponse.RETRY
TASK = TaskId(0, 1)
H = (("h", b"1"),)


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)


class Asked:
    """Answers always the same; keeps what it was told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.told: list[tuple[ErrorContext, Any, Any]] = []

    def __call__(self, context: ErrorContext, record: Any, error: Any) -> Any:
        self.told.append((context, record, error))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


# Records that cannot be serialized


def run(values: list[Any], *, behind_source: bool = False, **settings: Any) -> list[Any]:
    """What arrives of values that should be numbers, and the letters."""
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
def test_the_production_handler_is_asked_first(behind_source: bool) -> None:
    handler, later = Asked(CONTINUE), Asked(FAIL)
    values = ["x"] if behind_source else ["1", "x", "2"]
    found = run(
        values,
        behind_source=behind_source,
        production_exception_handler=handler,
        processing_exception_handler=later,
    )
    assert found == [[] if behind_source else [1, 2], []]
    assert later.told == []
    ((context, record, error),) = handler.told
    assert record == SinkRecord("out", None, 7, H, "k", "x", "value")
    assert (context.node, context.topic, context.source_value) == ("to-out", "in", b"x")
    assert isinstance(error, SerializationError)


@pytest.mark.parametrize("answer", [FAIL, RETRY, None, KeyError("a defect")])
def test_after_its_fail_the_processing_handler_is_asked(answer: Any) -> None:
    """About the same record, as for any failure of a processor: follows Kafka Streams."""
    handler, later = Asked(answer), Asked(CONTINUE)
    found = run(
        ["1", "x", "2"], production_exception_handler=handler, processing_exception_handler=later
    )
    assert found == [[1, 2], []]
    assert (len(handler.told), len(later.told)) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (KeyError("a defect"), "failed itself: KeyError: 'a defect'"),
        (None, "answered None"),
        (RETRY, "answered RETRY"),
    ],
)
def test_an_answer_of_no_use_is_told_beside_the_error(answer: Any, told: str) -> None:
    with pytest.raises(SerializationError) as raised:
        run(["1", "x"], production_exception_handler=Asked(answer))
    assert told in raised.value.message
    assert "could not be serialized" in raised.value.message
    assert (raised.value.topic, raised.value.offset, raised.value.node) == ("in", 1, "to-out")


@pytest.mark.parametrize("own", [None, DefaultProductionExceptionHandler()])
def test_one_letter_though_two_are_asked(own: Any) -> None:
    found = run(
        ["1", "x", "2"],
        production_exception_handler=own,
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        errors_dead_letter_queue_topic_name="letters",
    )
    assert found == [[1, 2], ["x"]]


def test_the_other_handlers_failures_are_told_too() -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("a defect")

    builder = StreamsBuilder()
    builder.stream("in", key=LONG, value=STRING).map_values(int).to("out", value=LONG)
    settings = config(processing_exception_handler=fails, deserialization_exception_handler=fails)
    for key, message in ((bytes(8), "User code failed"), (b"?", "could not be deserialized")):
        with TopologyTestDriver(builder.build(), settings) as driver:
            topic = driver.create_input_topic("in", key=BYTES, value=BYTES)
            kinds = (ProcessingError, SerializationError)
            with pytest.raises(kinds, match="failed itself: KeyError: 'a defect'") as raised:
                topic.pipe_input(key, b"x")
            assert message in raised.value.message


# Records that Kafka does not take


class Bench:
    """One sink whose records were sent: three of them, read from partition 1 of `in`."""

    def __init__(self, handler: Any, topic: str | None = None) -> None:
        self.drops = Dropped(TASK)
        self.collector = CapturingCollector()
        letters = DeadLetters(self.collector, topic, lambda *_: None)
        self.production = SinkProduction(
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
        sent = Outgoing("out", None, keys, values, [10, 20, 30], [(), H, ()], None)
        self.watch = self.production.watch(batch, sent)

    def fails(self, *, retriable: bool = False, lost: bool = False) -> StreamsError | None:
        error = ProductionError("too large", topic="out", partition=4)
        error.retriable = retriable
        return self.watch.failed(1, error, transaction_lost=lost)


def test_the_handler_is_told_all() -> None:
    handler = Asked(CONTINUE)
    bench = Bench(handler)
    assert bench.fails() is None
    ((context, record, error),) = handler.told
    assert record == SinkRecord("out", 4, 20, H, b"b", b"2")
    assert context == ErrorContext("in", 1, 8, 20, H, "sink", TASK, b"key", b"8")
    assert isinstance(error, ProductionError)
    assert bench.drops.total == 1


@pytest.mark.parametrize("retriable", [True, False])
@pytest.mark.parametrize("handler", [Asked(RETRY), None])
def test_retry_is_for_what_may_succeed_later(handler: Any, retriable: bool) -> None:
    """Also what the ready-made handler answers."""
    failure = Bench(handler).fails(retriable=retriable)
    assert isinstance(failure, TaskMigratedError if retriable else ProductionError)
    assert failure.message.count("RETRY") == int(handler is not None and not retriable)


@pytest.mark.parametrize(
    ("answer", "lost", "told"),
    [
        (FAIL, False, "too large"),
        (None, False, "answered None"),
        (ValueError("a defect"), False, "failed itself: ValueError: a defect"),
        (CONTINUE, True, "cannot be committed without it"),
    ],
)
def test_what_fails_names_the_record_and_why(answer: Any, lost: bool, told: str) -> None:
    bench = Bench(Asked(answer))
    failure = bench.fails(lost=lost)
    assert isinstance(failure, ProductionError)
    assert told in failure.message
    assert "topic 'out', partition 4" in failure.message
    assert (failure.topic, failure.partition, failure.offset) == ("in", 1, 8)
    assert (failure.node, failure.task_id, bench.drops.total) == ("sink", TASK, 0)


def test_letters_of_the_ready_made_one() -> None:
    """With FAIL, and not with RETRY; none can be sent in a transaction that is lost."""
    bench = Bench(None, "letters")
    bench.fails(retriable=True)
    bench.fails(lost=True)
    assert bench.collector.take() == []
    bench.fails()
    (letter,) = bench.collector.take()
    assert (letter.topic, letter.key, letter.value) == ("letters", b"key", b"8")


class Watching:
    """Goes on without some of the records."""

    def __init__(self, *without: int) -> None:
        self.without = without
        self.failed_ones: list[tuple[int, bool]] = []

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        self.failed_ones.append((index, transaction_lost))
        return None if index in self.without else error


def test_the_producer_goes_on_behind_what_it_refuses() -> None:
    """Too large for librdkafka itself, so that no broker is needed."""
    producer = RecordProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    large = b"x" * 2_000_000
    values: list[bytes | None] = [large, b"a", large, b"b", large]
    keys: list[bytes | None] = [None] * 5
    watching = Watching(0, 2)
    with pytest.raises(ProductionError, match="larger than"):
        producer.send_watched("t", [0] * 5, keys, values, [1] * 5, None, watching)
    assert watching.failed_ones == [(0, False), (2, False), (4, False)]
    producer.close(0)


def report(code: int, deliveries: Deliveries, watching: Watching, index: int) -> None:
    callbacks = deliveries.watched(watching, range(5), list[int]().extend)
    callbacks[index](KafkaError(code), Message(topic="x", partition=1))


@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_broker_refuses_is_decided_later(transactional: bool) -> None:
    """Not in librdkafka's callback, in which nothing can be sent."""
    deliveries, watching = Deliveries(transactional=transactional), Watching(0, 1)
    for index in range(3):
        report(KafkaError.MSG_SIZE_TOO_LARGE, deliveries, watching, index)
    assert (watching.failed_ones, deliveries.undecided) == ([], 3)
    deliveries.decide()
    assert watching.failed_ones == [(index, transactional) for index in range(3)]
    assert isinstance(deliveries.tell_failure(), ProductionError)
    report(KafkaError.MSG_SIZE_TOO_LARGE, deliveries, watching, 0)
    deliveries.decide()
    assert len(watching.failed_ones) == 3, "nobody is asked once something is lost"
    deliveries.forget()
    assert deliveries.tell_failure() is None


def test_nothing_is_left_to_decide_after_giving_up() -> None:
    """What was sent is sent again by others, who will be asked then."""
    deliveries, watching = Deliveries(), Watching(0)
    report(KafkaError.MSG_SIZE_TOO_LARGE, deliveries, watching, 0)
    report(KafkaError._PURGE_QUEUE, deliveries, watching, 1)
    deliveries.forget()
    deliveries.decide()
    assert watching.failed_ones == []


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN,
        KafkaError._FENCED,
    ],
)
def test_nobody_is_asked_about_what_is_wrong_for_all(code: int) -> None:
    """Follows Kafka Streams."""
    deliveries, watching = Deliveries(), Watching(0)
    report(code, deliveries, watching, 0)
    deliveries.decide()
    assert watching.failed_ones == []
    assert deliveries.tell_failure() is not None


@pytest.mark.parametrize("begins_anew", [True, False])
def test_unwatched_records_that_nobody_takes_in_time(begins_anew: bool) -> None:
    """Changelogs, and outputs without a handler of one's own."""
    deliveries = Deliveries(begins_anew=begins_anew)
    deliveries.failures_only(KafkaError(KafkaError._MSG_TIMED_OUT), Message(topic="x", partition=1))
    failure = deliveries.tell_failure()
    assert isinstance(failure, TaskMigratedError if begins_anew else ProductionError)
    assert failure.retriable


def test_what_is_no_handler() -> None:
    with pytest.raises(ValueError, match="production_exception_handler is 'LogAndFail', but must"):
        config(production_exception_handler="LogAndFail")
