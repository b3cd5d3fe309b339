"""Objects that a serde cannot serialize."""

from __future__ import annotations

import decimal
from typing import Any

from bad_inputs.case import (
    LETTERS,
    Accepted,
    Case,
    DeadLettered,
    Dropped,
    Family,
    Input,
    Outcome,
    Raises,
    ms,
    process,
    serdes,
)
from bad_inputs.deserialization import JSON_OF, LIST, MSGPACK_OF
from millstream.errors import SerializationError


def write(serde: Any, thing: Any, **settings: Any) -> Any:
    """Write a record with this value to a topic."""

    def build(builder: Any) -> None:
        stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
        stream.map_values(lambda value: thing).to("out", value=serde)

    return process(build, Input(), **settings)


def case(id: str, description: str, serde: Any, thing: Any, outcome: Outcome | str) -> Case:
    expected = outcome
    if isinstance(expected, str):
        expected = Raises(SerializationError, ["could not be serialized", expected, "value=..."])
    return Case(id, description, write(serde, thing), expected)


def windowed_keys(builder: Any) -> None:
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    stream.to("out", key=serdes.session_windowed(serdes.STRING))


def unwritable_keys(builder: Any) -> None:
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    stream.select_key(lambda key, value: 5).to("out", key=serdes.STRING)


def without_operation(builder: Any) -> None:
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).to("out", value=serdes.LONG)


CYCLIC: list[Any] = []
CYCLIC.append(CYCLIC)
CONTINUES = {"processing_exception_handler": ms.LogAndContinueProcessingExceptionHandler()}


def return_continue(context: Any, record: Any, error: Any) -> Any:
    return ms.HandlerResponse.CONTINUE


FAMILY = Family(
    "Objects that cannot be serialized",
    "The production handler is called, then the processing handler. By default, the thread ends.",
    [
        case("string-int", "a number as STRING", serdes.STRING, 5, "STRING"),
        case("string-bytes", "bytes as STRING", serdes.STRING, b"x", "STRING"),
        case("bytes-text", "text as BYTES", serdes.BYTES, "x", "BYTES"),
        case("long-text", "digits as LONG", serdes.LONG, "5", "it requires int"),
        case("long-float", "a float as LONG", serdes.LONG, 5.0, "it requires int"),
        case("long-bool", "a bool as LONG", serdes.LONG, True, "it requires int"),
        case("long-large", "2^63 as LONG", serdes.LONG, 2**63, "it requires integers from"),
        case(
            "integer-large", "2^31 as INTEGER", serdes.INTEGER, 2**31, "it requires integers from"
        ),
        case("short-large", "-32,769 as SHORT", serdes.SHORT, -32_769, "it requires integers from"),
        case("double-text", "text as DOUBLE", serdes.DOUBLE, "0.5", "it requires float"),
        case("double-decimal", "a Decimal as DOUBLE", serdes.DOUBLE, decimal.Decimal(1), "float"),
        case("float-large", "10^39 as FLOAT", serdes.FLOAT, 1e39, "too large for 32 bits"),
        case(
            "double-int", "an integer of 400 digits as DOUBLE", serdes.DOUBLE, 10**400, "too large"
        ),
        case("boolean-int", "1 as BOOLEAN", serdes.BOOLEAN, 1, "BOOLEAN"),
        case("uuid-text", "text as UUID", serdes.UUID, "x", "UUID"),
        case("void-object", "anything as VOID", serdes.VOID, 5, "only None"),
        case("json-set", "a set as JSON", serdes.JSON, {1}, "JSON"),
        case("json-circle", "a list that contains itself, as JSON", serdes.JSON, CYCLIC, "JSON"),
        case("json-nan", "NaN as JSON", serdes.JSON, float("nan"), Accepted([("k", "null")])),
        case("json-key", "a dict with a tuple as a key, as JSON", serdes.JSON, {(1, 2): 3}, "JSON"),
        case("typed-other", "an object of another class with json_of", JSON_OF, 5, "json_of"),
        case("msgpack-other", "the same with msgpack_of", MSGPACK_OF, "x", "msgpack_of"),
        case("list-no-list", "a number as a list", LIST, 5, "list"),
        case("list-element", "a list with one wrong element", LIST, ["a", 5], "element 1"),
        case(
            "surrogate",
            "text with a lone surrogate",
            serdes.STRING,
            "\ud800",
            Accepted([("k", "?")]),
        ),
        Case(
            "windowed-plain",
            "a plain key with a windowed serde",
            process(windowed_keys, Input()),
            Raises(SerializationError, "it requires Windowed"),
        ),
        Case(
            "key",
            "a key of the wrong type",
            process(unwritable_keys, Input()),
            Raises(SerializationError, ["The key of a record for topic 'out'", "key=..."]),
        ),
        Case(
            "straight",
            "different serdes for input and output, without an operation in between",
            process(without_operation, Input(), **CONTINUES),
            Raises(SerializationError, "could not be serialized"),
        ),
        Case(
            "continue",
            "an object that cannot be serialized, with LogAndContinueProcessingExceptionHandler",
            write(serdes.LONG, "x", **CONTINUES),
            Dropped(1, []),
        ),
        Case(
            "production",
            "the same, with a production handler that returns CONTINUE",
            process(without_operation, Input(), production_exception_handler=return_continue),
            Dropped(1, []),
        ),
        Case(
            "queue",
            "the same, with a dead-letter queue",
            write(serdes.LONG, "x", errors_dead_letter_queue_topic_name=LETTERS, **CONTINUES),
            DeadLettered(1, []),
        ),
    ],
)
