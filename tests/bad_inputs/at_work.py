"""What processors, handlers and tests may not do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import (
    LETTERS,
    Case,
    Dropped,
    Family,
    In,
    Letter,
    Outcome,
    Refused,
    config,
    ms,
    serdes,
    through,
)
from bad_inputs.nulls import TEXT
from millstream.errors import (
    IllegalStateError,
    InvalidStateStoreError,
    ProcessingError,
    SerializationError,
    StreamsError,
    UnknownStateStoreError,
)
from millstream.testing import TopologyTestDriver

SECOND = timedelta(seconds=1)


def processing(work: Any, *, stores: tuple[str, ...] = (), **settings: Any) -> Any:
    """A processor that does that with its context and each record."""

    class Works(ms.Processor):  # type: ignore[misc]
        def process(self, record: Any) -> None:
            work(self.context, record)

    return with_processor(Works, stores=stores, **settings)


def with_processor(supplier: Any, *, stores: tuple[str, ...] = (), **settings: Any) -> Any:
    def build(builder: Any) -> None:
        builder.add_state_store(
            ms.Stores.key_value_builder(
                ms.Stores.in_memory_key_value("kept"), key=serdes.STRING, value=serdes.LONG
            )
        )
        stream = builder.stream("in", **TEXT).process(supplier, stores=stores)
        stream.to("out", name="to-out", **TEXT)

    return through(build, In(), **settings)


def starting(work: Any) -> Any:
    """A processor that does that in its init()."""

    class Starts(ms.Processor):  # type: ignore[misc]
        def init(self, context: Any) -> None:
            super().init(context)
            work(context)

        def process(self, record: Any) -> None: ...

    return with_processor(Starts)


def case(id: str, what: str, do: Any, outcome: Outcome) -> Case:
    return Case(id, what, do, outcome)


def refused(*told: str) -> Refused:
    return Refused(ProcessingError, ["User code failed", *told])


def fails(*_: Any) -> Any:
    raise LookupError("missing")


class NoSuper(ms.Processor):  # type: ignore[misc]
    """Overrides init() and does not keep its context."""

    def init(self, context: Any) -> None: ...

    def process(self, record: Any) -> None:
        self.context.forward(record)


class FixedKey(ms.FixedKeyProcessor):  # type: ignore[misc]
    """Forwards a record of another key."""

    def process(self, record: Any) -> None:
        self.context.forward(ms.Record("other", record.value, record.timestamp))


def fixed_key(builder: Any) -> None:
    builder.stream("in", **TEXT).process_values(FixedKey).to("out", **TEXT)


def punctuated() -> Any:
    """A punctuator that raises, by stream time."""

    class Schedules(ms.Processor):  # type: ignore[misc]
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(SECOND, ms.PunctuationType.STREAM_TIME, fails)

        def process(self, record: Any) -> None: ...

    return Schedules


def used_later() -> None:
    """A store of a closed driver."""
    builder = ms.StreamsBuilder()
    builder.table("in", store=ms.Materialized("kept"), **TEXT)
    with TopologyTestDriver(builder.build(), config()) as made:
        kept: Any = made.get_state_store("kept")
    kept.get("k")


CONTINUES: dict[str, Any] = {
    "processing_exception_handler": ms.LogAndContinueProcessingExceptionHandler()
}

PROCESSORS = Family(
    "Processors",
    "A wrong call is an error of the processor, and its handler is asked.",
    [
        case(
            "no-store",
            "a store that is not connected",
            processing(lambda c, r: c.get_state_store("kept")),
            refused("no access to store 'kept'", "stores="),
        ),
        case(
            "misspelt-store",
            "a misspelt store",
            processing(lambda c, r: c.get_state_store("kep"), stores=("kept",)),
            refused("'kep'", "kept"),
        ),
        case(
            "child",
            "a record forwarded to a child there is not",
            processing(lambda c, r: c.forward(r, "nobody")),
            refused("'nobody'", "to-out"),
        ),
        case(
            "no-record",
            "text forwarded in place of a record",
            processing(lambda c, r: c.forward("x")),
            refused("takes a Record", "'x'"),
        ),
        case(
            "fixed-key",
            "another key forwarded by process_values()",
            through(fixed_key, In()),
            refused("FixedKeyRecord", "process()"),
        ),
        case(
            "forward-init",
            "a record forwarded in init()",
            starting(lambda c: c.forward(ms.Record("k", "v", 0))),
            Refused(IllegalStateError, "not in init()"),
        ),
        case(
            "no-super",
            "init() without super().init()",
            with_processor(NoSuper),
            refused("super().init(context)"),
        ),
        case(
            "init",
            "an init() that raises",
            starting(fails),
            Refused(StreamsError, ["could not be initialized", "LookupError: missing"]),
        ),
        case(
            "store-key",
            "a key that a store's serde does not take",
            processing(lambda c, r: c.get_state_store("kept").put(5, 5), stores=("kept",)),
            refused("STRING"),
        ),
        case(
            "store-value",
            "a value that it does not take",
            processing(lambda c, r: c.get_state_store("kept").put("k", "x"), stores=("kept",)),
            refused("LONG"),
        ),
        case(
            "changed-record",
            "a record that is changed in place",
            processing(lambda c, r: setattr(r, "value", 5)),
            refused("with_value(...)"),
        ),
        case(
            "interval",
            "a punctuation every 0 seconds",
            starting(lambda c: c.schedule(timedelta(0), ms.PunctuationType.STREAM_TIME, fails)),
            Refused(StreamsError, "1 millisecond"),
        ),
        case(
            "interval-number",
            "a number as the interval",
            starting(lambda c: c.schedule(5, ms.PunctuationType.STREAM_TIME, fails)),
            Refused(StreamsError, "timedelta"),
        ),
        case(
            "kind",
            "text as the kind of a punctuation",
            starting(lambda c: c.schedule(SECOND, "wall", fails)),
            Refused(StreamsError, "PunctuationType"),
        ),
        case(
            "punctuator",
            "a punctuator that raises",
            with_processor(punctuated()),
            refused("LookupError: missing"),
        ),
        case(
            "punctuator-continue",
            "the same with LogAndContinueProcessingExceptionHandler",
            with_processor(punctuated(), **CONTINUES),
            Dropped(1, []),
        ),
        case(
            "punctuator-queue",
            "the same with a dead-letter queue, which gets an empty letter",
            with_processor(punctuated(), errors_dead_letter_queue_topic_name=LETTERS, **CONTINUES),
            Letter(1, []),
        ),
        case(
            "read-only",
            "a global store that is written by a task",
            through(lambda b: writes_global(b), In()),
            refused("can only be read"),
        ),
        case(
            "closed-store",
            "a store after its task has closed",
            used_later,
            Refused(InvalidStateStoreError, "kept"),
        ),
    ],
)


def writes_global(builder: Any) -> None:
    builder.global_table("world", store=ms.Materialized("all"), **TEXT)

    class Writes(ms.Processor):  # type: ignore[misc]
        def process(self, record: Any) -> None:
            self.context.get_state_store("all").put("k", "v")

    builder.stream("in", **TEXT).process(Writes).to("out", **TEXT)


def handled(answer: Any, **more: Any) -> Any:
    """A function fails, and a handler says that."""

    def handler(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def build(builder: Any) -> None:
        builder.stream("in", **TEXT).map_values(fails).to("out", **TEXT)

    return through(build, In(), processing_exception_handler=handler, **more)


def letters(topic: Any) -> Any:
    letter = ms.DeadLetter(topic, b"k", b"v", 0)
    return ms.HandlerResponse.CONTINUE.with_dead_letters(letter)


def for_global_table(builder: Any) -> None:
    builder.global_table("in", key=serdes.STRING, value=serdes.LONG)
    builder.stream("other", **TEXT).to("out")


HANDLERS = Family(
    "Exception handlers",
    "No answer of use means FAIL; the error tells what failed and what is wrong with the handler.",
    [
        case(
            "raises",
            "a handler that raises",
            handled(KeyError("x")),
            refused("LookupError: missing", "The exception handler failed itself: KeyError: 'x'"),
        ),
        case(
            "none",
            "a handler that answers nothing",
            handled(None),
            refused("LookupError: missing", "answered None", "HandlerResponse.CONTINUE"),
        ),
        case(
            "text",
            "a handler that answers text",
            handled("CONTINUE"),
            refused("answered 'CONTINUE'"),
        ),
        case(
            "retry",
            "RETRY where trying again cannot help",
            handled(ms.HandlerResponse.RETRY),
            refused("RETRY, which only helps where Kafka failed"),
        ),
        case(
            "decision",
            "a decision without an answer",
            handled(ms.HandlerDecision(None)),
            refused("LookupError: missing", "no HandlerResponse"),
        ),
        case("letter", "a dead letter of one's own", handled(letters(LETTERS)), Letter(1, [])),
        case(
            "letter-topic",
            "a dead letter for an illegal topic",
            handled(letters("a b")),
            refused("LookupError: missing", "'a b'", "ASCII letters"),
        ),
        case(
            "letters-text",
            "text in place of dead letters",
            handled(ms.HandlerDecision(ms.HandlerResponse.CONTINUE, ("x",))),
            refused("'x' is no DeadLetter"),
        ),
        case(
            "letter-text",
            "a dead letter of text",
            handled(
                ms.HandlerResponse.CONTINUE.with_dead_letters(ms.DeadLetter(LETTERS, "k", "v", 0))
            ),
            refused("bytes or None"),
        ),
        case(
            "global",
            "a dead letter of a global table's record, which is not sent",
            through(
                for_global_table,
                In(),
                deserialization_exception_handler=lambda *_: letters(LETTERS),
            ),
            Dropped(1, []),
        ),
    ],
)


def driver(work: Any) -> Any:
    """A test driver that is used like that."""

    def do() -> Any:
        builder = ms.StreamsBuilder()
        builder.stream("in", **TEXT).to("out")
        with TopologyTestDriver(builder.build(), config()) as made:
            return work(made)

    return do


def piped(**record: Any) -> Any:
    return driver(
        lambda d: d.create_input_topic("in", **TEXT).pipe_input(
            record.get("key", "k"), record.get("value", "v"), timestamp=record.get("timestamp", 0)
        )
    )


def closed(made: Any) -> None:
    topic = made.create_input_topic("in", **TEXT)
    made.close()
    topic.pipe_input("k", "v")


TESTING = Family(
    "Tests with the test driver",
    "A test that asks for what is not there is told so.",
    [
        case(
            "unread",
            "input for a topic that nobody reads",
            driver(lambda d: d.create_input_topic("inn", **TEXT).pipe_input("k", "v")),
            Refused(ValueError, ["does not read 'inn'", "in"]),
        ),
        case(
            "negative", "a negative timestamp", piped(timestamp=-1), Refused(ValueError, "negative")
        ),
        case("fraction", "seconds as a timestamp", piped(timestamp=1.5), Refused(TypeError, "1.5")),
        case(
            "value",
            "input that its serde does not take",
            piped(value=5),
            Refused(SerializationError, "STRING"),
        ),
        case(
            "empty",
            "output that is not there",
            driver(lambda d: d.create_output_topic("out", **TEXT).read_value()),
            Refused(LookupError, "out"),
        ),
        case(
            "store",
            "a store that is not there",
            driver(lambda d: d.get_state_store("kept")),
            Refused(UnknownStateStoreError, "kept"),
        ),
        case(
            "backwards",
            "a clock that goes back",
            driver(lambda d: d.advance_wall_clock_time(-SECOND)),
            Refused(ValueError, "forward"),
        ),
        case(
            "closed",
            "a driver that is closed",
            driver(closed),
            Refused(IllegalStateError, "closed"),
        ),
    ],
)
