"""Functions that raise, or return invalid results."""

from __future__ import annotations

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
from bad_inputs.nulls import KEPT, NEAR, SECOND, TEXT, table, text
from millstream.errors import ProcessingError, SerializationError

CONTINUES = {"processing_exception_handler": ms.LogAndContinueProcessingExceptionHandler()}
QUEUE = {**CONTINUES, "errors_dead_letter_queue_topic_name": LETTERS}


def fails(*_: Any) -> Any:
    raise LookupError("missing")


def with_stream(operation: Any, *records: Input, **settings: Any) -> Any:
    """Process a record with an operation on a stream."""
    return process(
        lambda b: text(operation(b.stream("in", **TEXT), b)), *(records or (Input(),)), **settings
    )


def raising(id: str, description: str, operation: Any, *records: Input) -> Case:
    parts = ["User code failed", "LookupError: missing", "processing_exception_handler=", "node K"]
    return Case(id, description, with_stream(operation, *records), Raises(ProcessingError, parts))


def case(id: str, description: str, operation: Any, outcome: Outcome, **settings: Any) -> Case:
    return Case(id, description, with_stream(operation, **settings), outcome)


def shape(id: str, description: str, operation: Any, *parts: str) -> Case:
    return Case(id, description, with_stream(operation), Raises(ProcessingError, parts))


def grouped(stream: Any) -> Any:
    return stream.group_by_key()


def to_topic(topic: Any) -> Any:
    def operation(stream: Any, builder: Any) -> Any:
        stream.to(topic, **TEXT)
        return stream

    return operation


def partitioned(partition: Any) -> Any:
    def operation(stream: Any, builder: Any) -> Any:
        stream.to("out", partitioner=partition, **TEXT)
        return stream.filter(lambda key, value: False)

    return operation


def repartitioned(partition: Any) -> Any:
    def operation(stream: Any, builder: Any) -> Any:
        return stream.repartition(partitions=4, partitioner=partition, **TEXT)

    return operation


def half(value: Any) -> Any:
    yield "a"
    raise LookupError("missing")


async def later() -> str:
    return "x"


RAISES = Family(
    "Functions that raise",
    "The processing handler is called. By default, the thread ends.",
    [
        raising("map-values", "in map_values()", lambda s, b: s.map_values(fails)),
        raising("filter", "in filter()", lambda s, b: s.filter(fails)),
        raising("peek", "in peek()", lambda s, b: s.peek(fails)),
        raising("select-key", "in select_key()", lambda s, b: s.select_key(fails)),
        raising("flat-map", "in a generator, halfway", lambda s, b: s.flat_map_values(half)),
        raising(
            "split",
            "in a branch's predicate",
            lambda s, b: next(iter(s.split().branch(fails).default_branch().values())),
        ),
        raising(
            "group-by", "in group_by()", lambda s, b: s.group_by(fails, key=serdes.STRING).count()
        ),
        raising(
            "initializer",
            "in an initializer",
            lambda s, b: grouped(s).aggregate(lambda: fails(), lambda k, v, a: a, store=KEPT),
        ),
        raising(
            "aggregator",
            "in an aggregator",
            lambda s, b: grouped(s).aggregate(str, fails, store=KEPT),
        ),
        raising(
            "reducer",
            "in a reducer, which is not called for the first record",
            lambda s, b: grouped(s).reduce(fails),
            Input(),
            Input(),
        ),
        raising(
            "merger",
            "in a session merger",
            lambda s, b: (
                grouped(s)
                .windowed_by(ms.SessionWindows(SECOND))
                .aggregate(str, lambda k, v, a: v, fails, store=KEPT)
            ),
            Input(),
            Input(),
        ),
        raising("joiner", "in a joiner", lambda s, b: s.left_join(table(b), fails)),
        raising(
            "stream-joiner", "in a joiner of streams", lambda s, b: s.outer_join(s, fails, NEAR)
        ),
        raising("table", "in map_values() of a table", lambda s, b: s.to_table().map_values(fails)),
        Case(
            "partitioner",
            "in a partitioner",
            with_stream(partitioned(fails)),
            Raises(ProcessingError, ["The partitioner of a sink failed", "LookupError: missing"]),
        ),
        Case(
            "topic",
            "in a topic function",
            with_stream(to_topic(lambda k, v, c: fails())),
            Raises(ProcessingError, ["The topic function of a sink failed", "LookupError"]),
        ),
        case(
            "continue",
            "with LogAndContinueProcessingExceptionHandler",
            lambda s, b: s.map_values(fails),
            Dropped(1, []),
            **CONTINUES,
        ),
        case(
            "queue",
            "with a dead-letter queue",
            lambda s, b: s.map_values(fails),
            DeadLettered(1, []),
            **QUEUE,
        ),
        Case(
            "exit",
            "with SystemExit",
            with_stream(lambda s, b: s.map_values(lambda v: exit(3))),
            Raises(SystemExit, "3"),
        ),
        case(
            "recursion",
            "with infinite recursion",
            lambda s, b: s.map_values(endless),
            Raises(ProcessingError, "RecursionError"),
        ),
    ],
)


def endless(value: Any) -> Any:
    return endless(value)


SHAPES = Family(
    "Functions with invalid results",
    "Handled like functions that raise.",
    [
        shape(
            "map-value",
            "map() without a key",
            lambda s, b: s.map(lambda k, v: 5),
            "must return (key, value) tuples",
            "int",
        ),
        shape(
            "map-triple",
            "map() that returns three items",
            lambda s, b: s.map(lambda k, v: (k, v, v)),
            "must return (key, value) tuples",
        ),
        shape(
            "map-list",
            "map() that returns a list of two items",
            lambda s, b: s.map(lambda k, v: [k, v]),
            "must return (key, value) tuples",
        ),
        shape(
            "map-none",
            "map() that returns None",
            lambda s, b: s.map(lambda k, v: None),
            "must return (key, value) tuples",
        ),
        shape(
            "flat-none",
            "flat_map_values() that returns None",
            lambda s, b: s.flat_map_values(lambda v: None),
            "an iterable",
        ),
        shape(
            "flat-number",
            "flat_map_values() that returns a number",
            lambda s, b: s.flat_map_values(lambda v: 5),
            "an iterable",
        ),
        shape(
            "flat-text",
            "flat_map_values() that returns text",
            lambda s, b: s.flat_map_values(lambda v: "ab"),
            "iterable",
        ),
        shape(
            "flat-pairs",
            "flat_map() that does not return pairs",
            lambda s, b: s.flat_map(lambda k, v: [1]),
            "must return (key, value) tuples",
        ),
        shape(
            "coroutine",
            "a lambda that returns a coroutine",
            lambda s, b: s.map_values(lambda v: later()),
            "coroutine",
        ),
        shape(
            "partition-text",
            "a partitioner that returns text",
            partitioned(lambda *_: "0"),
            "partitioner",
            "'0'",
        ),
        shape(
            "partition-large",
            "a partitioner that returns a nonexistent partition",
            repartitioned(lambda *_: 7),
            "it chose partition 7",
            "0 to 3",
        ),
        shape(
            "partition-negative",
            "a partitioner that returns -1",
            partitioned(lambda *_: -1),
            "it chose partition -1",
        ),
        shape(
            "topic-none",
            "a topic function that returns None",
            to_topic(lambda k, v, c: None),
            "must return a topic name",
            "None",
        ),
        shape(
            "topic-number",
            "a topic function that returns a number",
            to_topic(lambda k, v, c: 5),
            "must return a topic name",
            "5",
        ),
        shape(
            "topic-illegal",
            "a topic function that returns an illegal name",
            to_topic(lambda k, v, c: "a b/c"),
            "'a b/c'",
        ),
        case(
            "predicate",
            "a predicate that returns text, which is true",
            lambda s, b: s.filter(lambda k, v: "no"),
            Accepted([("k", "v")]),
        ),
        case(
            "aggregate-none",
            "an aggregator that returns None, which deletes the key",
            lambda s, b: grouped(s).aggregate(str, lambda k, v, a: None, store=KEPT),
            Accepted([]),
        ),
        case(
            "unhashable",
            "lists as keys of count()",
            lambda s, b: s.select_key(lambda k, v: [1]).group_by_key(key=serdes.JSON).count(),
            Accepted([("[1]", "1")]),
        ),
        Case(
            "key-type",
            "a key that the serde of its group cannot serialize",
            with_stream(
                lambda s, b: s.select_key(lambda k, v: 5).group_by_key(key=serdes.STRING).count()
            ),
            Raises(SerializationError, ["STRING", "repartition"]),
        ),
    ],
)
