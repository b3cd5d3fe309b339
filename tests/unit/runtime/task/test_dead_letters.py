"""Dead letters contain the input record as it was read, and the error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    ConfigError,
    DeadLetter,
    ErrorContext,
    HandlerDecision,
    HandlerResponse,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
    TaskId,
)
from millstream.clock import ManualClock
from millstream.metrics.registry import MetricsScope
from millstream.runtime.start.topology_checks import check_topology
from millstream.runtime.task.error_handling.dead_letters import DeadLetterCounts, DeadLetters
from millstream.serdes import BYTES, LONG, STRING
from millstream.testing import TopologyTestDriver

LETTERS = "letters"
CONTINUE: dict[str, Any] = {
    "deserialization_exception_handler": LogAndContinueExceptionHandler(),
    "processing_exception_handler": LogAndContinueProcessingExceptionHandler(),
}


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="app",
        bootstrap_servers="not-used:9092",
        **{"errors_dead_letter_queue_topic_name": LETTERS, **settings},
    )


def letters(driver: TopologyTestDriver) -> list[Record[Any, Any]]:
    return driver.create_output_topic(LETTERS, key=BYTES, value=BYTES).read_records()


def error_headers(letter: Record[Any, Any]) -> dict[str, str]:
    """Return the error headers, except for the stack trace."""
    start = "__streams.errors."
    return {
        name.removeprefix(start): (value or b"").decode()
        for name, value in letter.headers
        if name.startswith(start) and name != f"{start}stacktrace"
    }


def number_builder(function: Callable[[Any], Any] = str) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).map_values(function).to("out", value=STRING)
    return builder


def test_unreadable_record_becomes_a_dead_letter() -> None:
    with TopologyTestDriver(number_builder().build(), config(**CONTINUE)) as driver:
        records = driver.create_input_topic("in", key=STRING, value=STRING)
        records.pipe_input("k", "seven", timestamp=70, headers=[("h", b"1")])
        (letter,) = letters(driver)
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"seven", 70)
    assert letter.headers[0] == ("h", b"1")
    headers = error_headers(letter)
    assert (headers["topic"], headers["partition"], headers["offset"]) == ("in", "0", "0")
    assert headers["exception"]
    assert headers["message"]
    assert "Traceback" in (dict(letter.headers)["__streams.errors.stacktrace"] or b"").decode()


def test_input_record_of_failed_user_code_becomes_a_dead_letter() -> None:
    """Not the record that failed, which was derived from it."""

    def divide(number: int) -> str:
        return str(100 // number)

    topology = number_builder(divide).build()
    with TopologyTestDriver(topology, config(**CONTINUE)) as driver:
        driver.create_input_topic("in", key=STRING, value=LONG).pipe_values([5, 0, 4])
        found = driver.create_output_topic("out", key=STRING, value=STRING).read_values()
        (letter,) = letters(driver)
    assert found == ["20", "25"]
    assert (letter.key, letter.value) == (None, bytes(8))
    assert error_headers(letter) == {
        "exception": "ZeroDivisionError",
        "message": "integer division or modulo by zero",
        "topic": "in",
        "partition": "0",
        "offset": "1",
    }


def test_dead_letters_name_the_topic_of_their_record() -> None:
    def fail(value: str) -> str:
        if value.startswith("bad"):
            raise ValueError(value)
        return value

    builder = StreamsBuilder()
    builder.stream(["a", "b"], key=STRING, value=STRING).map_values(fail).to("out", value=STRING)
    topology = builder.build()
    with TopologyTestDriver(topology, config(**CONTINUE)) as driver:
        one, other = (driver.create_input_topic(t, key=STRING, value=STRING) for t in "ab")
        for turn, topic in enumerate([one, other, other, one]):
            topic.pipe_input(f"k{turn}", f"bad{turn}" if turn % 2 else "good")
        found = [
            (letter.key, letter.value, error_headers(letter)["topic"]) for letter in letters(driver)
        ]
    assert found == [(b"k1", b"bad1", "b"), (b"k3", b"bad3", "a")]


class SentRecords:
    """Keeps sent records."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def partition_count(self, topic: str) -> int:
        return 1

    def send_many(self, *columns: Any) -> None:
        self.records.append(columns)

    def send_with_handler(self, *columns: Any) -> None:
        """Like `send_many`: no write fails here."""
        self.send_many(*columns[:-1])


@pytest.mark.parametrize(
    "handler", [LogAndFailExceptionHandler(), LogAndFailProcessingExceptionHandler()]
)
def test_failing_handlers_send_dead_letters_too(handler: Any) -> None:
    """Before the thread ends."""
    sent = SentRecords()
    handler_with_letters = DeadLetters(
        sent, LETTERS, lambda place, offset: (b"k", b"%d" % offset)
    ).wrap(handler, "processing")
    context = ErrorContext("in", 1, 7, 5, (), "node", TaskId(0, 1))
    assert handler_with_letters(context, None, ValueError("no")) is HandlerResponse.FAIL
    ((topic, _, keys, values, timestamps, _),) = sent.records
    assert (topic, keys, values, timestamps) == (LETTERS, [b"k"], [b"7"], [5])


@pytest.mark.parametrize("answer", [None, "CONTINUE", HandlerResponse])
def test_invalid_answer_of_a_handler_fails_and_sends_nothing(answer: Any) -> None:
    sent = SentRecords()
    handler_with_letters = DeadLetters(sent, LETTERS, lambda *_: None).wrap(
        lambda *_: answer, "processing"
    )
    context = ErrorContext("in", 1, 7, 5, (), "node", TaskId(0, 1))
    assert handler_with_letters(context, None, ValueError("no")) is HandlerResponse.FAIL
    assert sent.records == []


def test_custom_handler_sends_its_own_dead_letters() -> None:
    """To any topic, with the bytes of the input record, and without the setting."""

    def handler(context: ErrorContext, record: Any, error: Exception) -> HandlerDecision:
        value = b"not a number: " + (context.source_value or b"")
        first = DeadLetter("mine", context.source_key, value, 5, (("why", b"?"),))
        return HandlerResponse.CONTINUE.with_dead_letters(
            first, DeadLetter.of(context, error, "standard")
        )

    settings = config(
        errors_dead_letter_queue_topic_name=None, deserialization_exception_handler=handler
    )
    with TopologyTestDriver(number_builder().build(), settings) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "x", timestamp=1)
        mine = driver.create_output_topic("mine", key=BYTES, value=BYTES).read_record()
        standard = driver.create_output_topic("standard", key=BYTES, value=BYTES).read_record()
    assert mine == Record(b"k", b"not a number: x", 5, (("why", b"?"),))
    assert standard.value == b"x"


def test_dead_letters_are_counted_by_node_handler_and_topic() -> None:
    def on_production_error(context: ErrorContext, record: Any, error: Exception) -> Any:
        return HandlerResponse.CONTINUE.with_dead_letters(
            DeadLetter.of(context, error, "unserializable")
        )

    def parse(number: int) -> Any:
        return "nine" if number == 9 else 100 // number

    builder = StreamsBuilder()
    source = builder.stream("in", key=STRING, value=LONG, name="read")
    source.map_values(parse, name="parse").to("out", value=LONG, name="write")
    settings = config(**CONTINUE, production_exception_handler=on_production_error)
    with TopologyTestDriver(builder.build(), settings) as driver:
        driver.create_input_topic("in", key=STRING, value=LONG).pipe_values([0, 9, 5, 0])
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("seven")
        counts = {
            tuple(
                dict(name.tags)[tag] for tag in ("processor-node-id", "exception-handler", "topic")
            ): value
            for name, value in driver.metrics().items()
            if name.name == "dead-letters-total"
        }
        assert len(letters(driver)) == 3
    assert counts == {
        ("parse", "processing", LETTERS): 2,
        ("read", "deserialization", LETTERS): 1,
        ("write", "production", "unserializable"): 1,
    }


def test_unsent_dead_letters_are_not_counted() -> None:
    """A record of an aborted transaction is processed again."""
    scope = MetricsScope(ManualClock())
    handler: Any = LogAndContinueProcessingExceptionHandler()
    dead_letters = DeadLetters(
        SentRecords(), LETTERS, lambda *_: None, counts=DeadLetterCounts(scope)
    )
    context = ErrorContext("in", 1, 7, 5, (), "node", TaskId(0, 1))
    dead_letters.wrap(handler, "production", may_send=False)(context, None, ValueError("no"))
    assert scope.read() == {}
    dead_letters.wrap(handler, "production")(context, None, ValueError("no"))
    assert list(scope.read().values()) == [1]


class ForwardEverySecond(Processor[str, int, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        context.schedule(
            timedelta(seconds=1),
            PunctuationType.WALL_CLOCK_TIME,
            lambda now: context.forward(Record("k", "none", now)),
        )

    def process(self, record: Record[str, int]) -> None: ...


def test_dead_letter_of_a_punctuation_has_no_input_record() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=STRING, value=LONG)
        .process(ForwardEverySecond)
        .map_values(int)
        .to("out", key=STRING, value=LONG)
    )
    with TopologyTestDriver(builder.build(), config(**CONTINUE)) as driver:
        driver.advance_wall_clock_time(timedelta(seconds=1))
        (letter,) = letters(driver)
    assert (letter.key, letter.value) == (None, None)
    assert (error_headers(letter)["topic"], error_headers(letter)["offset"]) == ("", "-1")


def test_dead_letter_topic_must_not_be_an_input_topic() -> None:
    with pytest.raises(ConfigError, match="errors_dead_letter_queue_topic_name is 'in'"):
        check_topology(number_builder().build(), config(errors_dead_letter_queue_topic_name="in"))
