"""Mistakes of processors, handlers and tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import (
    LETTERS,
    Case,
    DeadLettered,
    Dropped,
    Family,
    Input,
    Outcome,
    Raises,
    config,
    ms,
    process,
    serdes,
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
    """Run a processor that calls a function with its context and each record."""

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

    return process(build, Input(), **settings)


def starting(work: Any) -> Any:
    """Run a processor that calls a function in init()."""

    class Starts(ms.Processor):  # type: ignore[misc]
        def init(self, context: Any) -> None:
            super().init(context)
            work(context)

        def process(self, record: Any) -> None: ...

    return with_processor(Starts)


def case(id: str, description: str, run: Any, outcome: Outcome) -> Case:
    return Case(id, description, run, outcome)


def raises(*parts: str) -> Raises:
    return Raises(ProcessingError, ["User code failed", *parts])


def fails(*_: Any) -> Any:
    raise LookupError("missing")


class NoSuper(ms.Processor):  # type: ignore[misc]
    """Overrides init() without storing its context."""

    def init(self, context: Any) -> None: ...

    def process(self, record: Any) -> None:
        self.context.forward(record)


class FixedKey(ms.FixedKeyProcessor):  # type: ignore[misc]
    """Forwards a record with another key."""

    def process(self, record: Any) -> None:
        self.context.forward(ms.Record("other", record.value, record.timestamp))


def fixed_key(builder: Any) -> None:
    builder.stream("in", **TEXT).process_values(FixedKey).to("out", **TEXT)


def punctuated() -> Any:
    """Create a processor with a stream-time punctuator that raises."""

    class Schedules(ms.Processor):  # type: ignore[misc]
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(SECOND, ms.PunctuationType.STREAM_TIME, fails)

        def process(self, record: Any) -> None: ...

    return Schedules


def used_later() -> None:
    """Use a store of a closed driver."""
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
    "An invalid call raises an error in the processor, and the processing handler is called.",
    [
        case(
            "no-store",
            "a store that is not connected",
            processing(lambda c, r: c.get_state_store("kept")),
            raises("no access to store 'kept'", "stores="),
        ),
        case(
            "misspelled-store",
            "a misspelled store",
            processing(lambda c, r: c.get_state_store("kep"), stores=("kept",)),
            raises("'kep'", "kept"),
        ),
        case(
            "child",
            "a record forwarded to an unknown child",
            processing(lambda c, r: c.forward(r, "nobody")),
            raises("'nobody'", "to-out"),
        ),
        case(
            "no-record",
            "text forwarded instead of a record",
            processing(lambda c, r: c.forward("x")),
            raises("takes a Record", "'x'"),
        ),
        case(
            "fixed-key",
            "another key forwarded by process_values()",
            process(fixed_key, Input()),
            raises("FixedKeyRecord", "process()"),
        ),
        case(
            "forward-init",
            "a record forwarded in init()",
            starting(lambda c: c.forward(ms.Record("k", "v", 0))),
            Raises(IllegalStateError, "not in init()"),
        ),
        case(
            "no-super",
            "init() without super().init()",
            with_processor(NoSuper),
            raises("super().init(context)"),
        ),
        case(
            "init",
            "an init() that raises",
            starting(fails),
            Raises(StreamsError, ["could not be initialized", "LookupError: missing"]),
        ),
        case(
            "store-key",
            "a key that a store's serde cannot serialize",
            processing(lambda c, r: c.get_state_store("kept").put(5, 5), stores=("kept",)),
            raises("STRING"),
        ),
        case(
            "store-value",
            "a value that a store's serde cannot serialize",
            processing(lambda c, r: c.get_state_store("kept").put("k", "x"), stores=("kept",)),
            raises("LONG"),
        ),
        case(
            "changed-record",
            "a record that is modified in place",
            processing(lambda c, r: setattr(r, "value", 5)),
            raises("with_value(...)"),
        ),
        case(
            "interval",
            "a punctuation interval of 0 seconds",
            starting(lambda c: c.schedule(timedelta(0), ms.PunctuationType.STREAM_TIME, fails)),
            Raises(StreamsError, "1 millisecond"),
        ),
        case(
            "interval-number",
            "a number as the interval",
            starting(lambda c: c.schedule(5, ms.PunctuationType.STREAM_TIME, fails)),
            Raises(StreamsError, "timedelta"),
        ),
        case(
            "kind",
            "text as the kind of a punctuation",
            starting(lambda c: c.schedule(SECOND, "wall", fails)),
            Raises(StreamsError, "PunctuationType"),
        ),
        case(
            "punctuator",
            "a punctuator that raises",
            with_processor(punctuated()),
            raises("LookupError: missing"),
        ),
        case(
            "punctuator-continue",
            "the same with LogAndContinueProcessingExceptionHandler",
            with_processor(punctuated(), **CONTINUES),
            Dropped(1, []),
        ),
        case(
            "punctuator-queue",
            "the same with a dead-letter queue, which gets an empty record",
            with_processor(punctuated(), errors_dead_letter_queue_topic_name=LETTERS, **CONTINUES),
            DeadLettered(1, []),
        ),
        case(
            "read-only",
            "a write to a global store by a task",
            process(lambda b: writes_global(b), Input()),
            raises("can only be read"),
        ),
        case(
            "closed-store",
            "a store that is used after its task was closed",
            used_later,
            Raises(InvalidStateStoreError, "kept"),
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
    """Run a failing function with a handler that returns, or raises, `answer`."""

    def handler(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def build(builder: Any) -> None:
        builder.stream("in", **TEXT).map_values(fails).to("out", **TEXT)

    return process(build, Input(), processing_exception_handler=handler, **more)


def letters(topic: Any) -> Any:
    letter = ms.DeadLetter(topic, b"k", b"v", 0)
    return ms.HandlerResponse.CONTINUE.with_dead_letters(letter)


def for_global_table(builder: Any) -> None:
    builder.global_table("in", key=serdes.STRING, value=serdes.LONG)
    builder.stream("other", **TEXT).to("out")


HANDLERS = Family(
    "Exception handlers",
    "An invalid response means FAIL. The error describes the failure and the handler's problem.",
    [
        case(
            "raises",
            "a handler that raises",
            handled(KeyError("x")),
            raises("LookupError: missing", "The exception handler itself failed: KeyError: 'x'"),
        ),
        case(
            "none",
            "a handler that returns None",
            handled(None),
            raises("LookupError: missing", "returned None", "HandlerResponse.CONTINUE"),
        ),
        case(
            "text",
            "a handler that returns text",
            handled("CONTINUE"),
            raises("returned 'CONTINUE'"),
        ),
        case(
            "retry",
            "RETRY for an error that is not retriable",
            handled(ms.HandlerResponse.RETRY),
            raises("RETRY, which only applies to errors from Kafka"),
        ),
        case(
            "decision",
            "a decision without a response",
            handled(ms.HandlerDecision(None)),
            raises("LookupError: missing", "not a HandlerResponse"),
        ),
        case("letter", "a custom dead letter", handled(letters(LETTERS)), DeadLettered(1, [])),
        case(
            "letter-topic",
            "a dead letter for an illegal topic",
            handled(letters("a b")),
            raises("LookupError: missing", "'a b'", "ASCII letters"),
        ),
        case(
            "letters-text",
            "text instead of dead letters",
            handled(ms.HandlerDecision(ms.HandlerResponse.CONTINUE, ("x",))),
            raises("'x' is not a DeadLetter"),
        ),
        case(
            "letter-text",
            "a dead letter with text instead of bytes",
            handled(
                ms.HandlerResponse.CONTINUE.with_dead_letters(ms.DeadLetter(LETTERS, "k", "v", 0))
            ),
            raises("bytes or None"),
        ),
        case(
            "global",
            "a dead letter for a record of a global table, which is not sent",
            process(
                for_global_table,
                Input(),
                deserialization_exception_handler=lambda *_: letters(LETTERS),
            ),
            Dropped(1, []),
        ),
    ],
)


def driver(work: Any) -> Any:
    """Run a function with a test driver."""

    def run() -> Any:
        builder = ms.StreamsBuilder()
        builder.stream("in", **TEXT).to("out")
        with TopologyTestDriver(builder.build(), config()) as made:
            return work(made)

    return run


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
    "The test driver",
    "Errors of `TopologyTestDriver` itself.",
    [
        case(
            "unread",
            "input for a topic that the topology does not read",
            driver(lambda d: d.create_input_topic("inn", **TEXT).pipe_input("k", "v")),
            Raises(ValueError, ["does not read 'inn'", "in"]),
        ),
        case(
            "negative", "a negative timestamp", piped(timestamp=-1), Raises(ValueError, "negative")
        ),
        case(
            "fraction", "a fraction as a timestamp", piped(timestamp=1.5), Raises(TypeError, "1.5")
        ),
        case(
            "value",
            "input that its serde cannot serialize",
            piped(value=5),
            Raises(SerializationError, "STRING"),
        ),
        case(
            "empty",
            "output of an unknown topic",
            driver(lambda d: d.create_output_topic("out", **TEXT).read_value()),
            Raises(LookupError, "out"),
        ),
        case(
            "store",
            "an unknown store",
            driver(lambda d: d.get_state_store("kept")),
            Raises(UnknownStateStoreError, "kept"),
        ),
        case(
            "backwards",
            "a clock that is set back",
            driver(lambda d: d.advance_wall_clock_time(-SECOND)),
            Raises(ValueError, "forward"),
        ),
        case(
            "closed",
            "a closed driver",
            driver(closed),
            Raises(IllegalStateError, "closed"),
        ),
    ],
)
