"""Dead letters hold the input record as it was read, and what went wrong with it."""

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
from millstream.runtime.check import check_topology
from millstream.runtime.task.dead_letters import DeadLetters
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


def told(letter: Record[Any, Any]) -> dict[str, str]:
    """What the headers say, but for the stack trace."""
    start = "__streams.errors."
    return {
        name.removeprefix(start): (value or b"").decode()
        for name, value in letter.headers
        if name.startswith(start) and name != f"{start}stacktrace"
    }


def numbers(function: Callable[[Any], Any] = str) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).map_values(function).to("out", value=STRING)
    return builder


def test_what_cannot_be_read() -> None:
    with TopologyTestDriver(numbers().build(), config(**CONTINUE)) as driver:
        records = driver.create_input_topic("in", key=STRING, value=STRING)
        records.pipe_input("k", "seven", timestamp=70, headers=[("h", b"1")])
        (letter,) = letters(driver)
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"seven", 70)
    assert letter.headers[0] == ("h", b"1")
    about = told(letter)
    assert (about["topic"], about["partition"], about["offset"]) == ("in", "0", "0")
    assert about["exception"]
    assert about["message"]
    assert "Traceback" in (dict(letter.headers)["__streams.errors.stacktrace"] or b"").decode()


def test_what_user_code_fails_on() -> None:
    """The input record, though the one that failed was made of it."""

    def divided(number: int) -> str:
        return str(100 // number)

    topology = numbers(divided).build()
    with TopologyTestDriver(topology, config(**CONTINUE)) as driver:
        driver.create_input_topic("in", key=STRING, value=LONG).pipe_values([5, 0, 4])
        found = driver.create_output_topic("out", key=STRING, value=STRING).read_values()
        (letter,) = letters(driver)
    assert found == ["20", "25"]
    assert (letter.key, letter.value) == (None, bytes(8))
    assert told(letter) == {
        "exception": "ZeroDivisionError",
        "message": "integer division or modulo by zero",
        "topic": "in",
        "partition": "0",
        "offset": "1",
    }


def test_records_of_several_topics_are_told_apart() -> None:
    def fails(value: str) -> str:
        if value.startswith("bad"):
            raise ValueError(value)
        return value

    builder = StreamsBuilder()
    builder.stream(["a", "b"], key=STRING, value=STRING).map_values(fails).to("out", value=STRING)
    topology = builder.build()
    with TopologyTestDriver(topology, config(**CONTINUE)) as driver:
        one, other = (driver.create_input_topic(t, key=STRING, value=STRING) for t in "ab")
        for turn, topic in enumerate([one, other, other, one]):
            topic.pipe_input(f"k{turn}", f"bad{turn}" if turn % 2 else "good")
        found = [(letter.key, letter.value, told(letter)["topic"]) for letter in letters(driver)]
    assert found == [(b"k1", b"bad1", "b"), (b"k3", b"bad3", "a")]


class Sent:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def partition_count(self, topic: str) -> int:
        return 1

    def send_many(self, *columns: Any) -> None:
        self.records.append(columns)

    def send_watched(self, *columns: Any) -> None:
        """Nothing that is written here fails: like `send_many`, without who watches."""
        self.send_many(*columns[:-1])


@pytest.mark.parametrize(
    "handler", [LogAndFailExceptionHandler(), LogAndFailProcessingExceptionHandler()]
)
def test_handlers_that_fail_send_them_too(handler: Any) -> None:
    """Before the thread ends."""
    sent = Sent()
    asking = DeadLetters(sent, LETTERS, lambda place, offset: (b"k", b"%d" % offset)).asking(
        handler
    )
    context = ErrorContext("in", 1, 7, 5, (), "node", TaskId(0, 1))
    assert asking(context, None, ValueError("no")) is HandlerResponse.FAIL
    ((topic, _, keys, values, timestamps, _),) = sent.records
    assert (topic, keys, values, timestamps) == (LETTERS, [b"k"], [b"7"], [5])


@pytest.mark.parametrize("answer", [None, "CONTINUE", HandlerResponse])
def test_a_handler_that_answers_nothing_fails_and_sends_nothing(answer: Any) -> None:
    sent = Sent()
    asking = DeadLetters(sent, LETTERS, lambda *_: None).asking(lambda *_: answer)
    context = ErrorContext("in", 1, 7, 5, (), "node", TaskId(0, 1))
    assert asking(context, None, ValueError("no")) is HandlerResponse.FAIL
    assert sent.records == []


def test_a_handler_of_the_users_sends_what_it_likes() -> None:
    """Wherever it likes, with the bytes of the input record at hand, and without the setting."""

    def handler(context: ErrorContext, record: Any, error: Exception) -> HandlerDecision:
        value = b"not a number: " + (context.source_value or b"")
        first = DeadLetter("mine", context.source_key, value, 5, (("why", b"?"),))
        return HandlerResponse.CONTINUE.with_dead_letters(
            first, DeadLetter.of(context, error, "standard")
        )

    settings = config(
        errors_dead_letter_queue_topic_name=None, deserialization_exception_handler=handler
    )
    with TopologyTestDriver(numbers().build(), settings) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "x", timestamp=1)
        mine = driver.create_output_topic("mine", key=BYTES, value=BYTES).read_record()
        standard = driver.create_output_topic("standard", key=BYTES, value=BYTES).read_record()
    assert mine == Record(b"k", b"not a number: x", 5, (("why", b"?"),))
    assert standard.value == b"x"


class OnceInAWhile(Processor[str, int, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        context.schedule(
            timedelta(seconds=1),
            PunctuationType.WALL_CLOCK_TIME,
            lambda now: context.forward(Record("k", "none", now)),
        )

    def process(self, record: Record[str, int]) -> None: ...


def test_a_punctuation_has_no_input_record() -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=STRING, value=LONG)
        .process(OnceInAWhile)
        .map_values(int)
        .to("out", key=STRING, value=LONG)
    )
    with TopologyTestDriver(builder.build(), config(**CONTINUE)) as driver:
        driver.advance_wall_clock_time(timedelta(seconds=1))
        (letter,) = letters(driver)
    assert (letter.key, letter.value) == (None, None)
    assert (told(letter)["topic"], told(letter)["offset"]) == ("", "-1")


def test_the_queue_is_not_read_by_who_fills_it() -> None:
    with pytest.raises(ConfigError, match="errors_dead_letter_queue_topic_name is 'in'"):
        check_topology(numbers().build(), config(errors_dead_letter_queue_topic_name="in"))
