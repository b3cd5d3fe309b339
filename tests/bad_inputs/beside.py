"""Functions of `map_async` and `map_batches` that cannot be taken, or give what they should not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pyarrow as pa

from bad_inputs.case import (
    Accepted,
    Case,
    Dropped,
    Family,
    In,
    Letter,
    Outcome,
    Refused,
    ms,
    serdes,
    started,
)
from bad_inputs.functions import CONTINUES, QUEUE, fails, with_stream
from bad_inputs.nulls import TEXT
from millstream.errors import ConfigError, ProcessingError, TopologyError


async def waits(value: Any) -> Any:
    return value


async def never(value: Any) -> Any:
    await asyncio.Event().wait()


async def fails_later(value: Any) -> Any:
    raise LookupError("missing")


async def generates(value: Any) -> Any:
    yield value


DEMANDED = pa.schema([pa.field("price", pa.int64(), nullable=False)])


class Anonymous:
    """Two that are alike are not equal."""


def declared(id: str, what: str, error: type[Exception], operation: Any, *told: str) -> Case:
    """Refused where it is written, which the error names."""
    do = started(lambda b: operation(b.stream("in", **TEXT)).to("out", **TEXT))
    return Case(id, what, do, Refused(error, [*told, "bad_inputs/beside.py:"]))


def case(id: str, what: str, operation: Any, outcome: Outcome, *given: In, **settings: Any) -> Case:
    do = with_stream(lambda s, b: operation(s), *given, **settings)
    return Case(id, what, do, outcome)


def failing(id: str, what: str, operation: Any, *told: str) -> Case:
    return case(id, what, operation, Refused(ProcessingError, ["User code failed", *told]))


def in_real_time(value: Any = serdes.STRING, **settings: Any) -> None:
    """A DataFrame function in real time, in an application that is made and not started."""
    builder = ms.StreamsBuilder()
    rows = builder.stream("in", **TEXT)
    trigger = ms.Trigger.real_time()
    rows.transform_dataframe(list, name="t", value=value, trigger=trigger).to("out")
    config = ms.StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092", **settings)
    ms.KafkaStreams(builder.build(), config)


ASYNC = Family(
    "Values that wait",
    "What `map_async` refuses in the line that is wrong, and what is told like a function that "
    "raises.",
    [
        declared(
            "generator",
            "an asynchronous generator",
            TypeError,
            lambda s: s.map_async(generates),
            "is an asynchronous generator",
        ),
        declared(
            "arguments",
            "a function that takes no key, with_key=True",
            TypeError,
            lambda s: s.map_async(waits, with_key=True),
            "mapper(key, value)",
        ),
        declared(
            "concurrency",
            "concurrency=0",
            ConfigError,
            lambda s: s.map_async(waits, concurrency=0),
            "concurrency from 1",
        ),
        declared(
            "threads",
            "a plain function on 5,000 threads",
            ConfigError,
            lambda s: s.map_async(str, concurrency=5_000),
            "at most 2000",
        ),
        declared(
            "ordering",
            'ordering="keys"',
            ConfigError,
            lambda s: s.map_async(waits, ordering="keys"),
            "knows the orderings",
        ),
        declared(
            "timeout",
            "a timeout for a plain function",
            ConfigError,
            lambda s: s.map_async(str, timeout=timedelta(seconds=1)),
            "which nothing can cancel",
        ),
        failing(
            "raises",
            "an async def function that raises",
            lambda s: s.map_async(fails_later),
            "LookupError: missing",
        ),
        failing(
            "late",
            "a call that takes too long",
            lambda s: s.map_async(never, timeout=timedelta(milliseconds=5)),
            "no result within 5 ms",
        ),
        failing(
            "around",
            "a lambda that gives a coroutine",
            lambda s: s.map_async(lambda v: waits(v)),
            "coroutine in place of a result",
            "Give it itself",
        ),
        failing(
            "keys",
            "keys of a class without __eq__, whose order is to be kept",
            lambda s: s.select_key(lambda k, v: Anonymous()).map_async(waits),
            "has no __eq__",
        ),
        case(
            "continue",
            "with LogAndContinueProcessingExceptionHandler",
            lambda s: s.map_async(fails_later),
            Dropped(1, []),
            **CONTINUES,
        ),
        case(
            "queue",
            "with a dead-letter queue",
            lambda s: s.map_async(fails_later),
            Letter(1, []),
            **QUEUE,
        ),
        case(
            "none",
            "a function that gives None",
            lambda s: s.map_async(lambda v: None),
            Accepted([("k", "None")]),
        ),
    ],
)

BATCHES = Family(
    "Values in batches",
    "The same of `map_batches`.",
    [
        declared(
            "schema",
            "a schema that is none of Arrow's",
            TypeError,
            lambda s: s.map_batches(list, schema={"a": int}),
            "takes a pyarrow.Schema",
        ),
        declared(
            "concurrency",
            "a concurrency for a plain function",
            ConfigError,
            lambda s: s.map_batches(list, concurrency=2),
            "a concurrency for a plain function",
        ),
        declared(
            "max-records",
            "max_records=0",
            ConfigError,
            lambda s: s.map_batches(list, max_records=0),
            "max_records from 1",
        ),
        failing("raises", "a function that raises", lambda s: s.map_batches(fails), "missing"),
        failing(
            "count",
            "fewer rows than records",
            lambda s: s.map_batches(lambda b: []),
            "got 1 rows and gave 0",
        ),
        failing(
            "null",
            "a row of null",
            lambda s: s.map_batches(lambda b: [None]),
            "gave no value (null) for this record",
        ),
        failing(
            "none",
            "a function that forgets to return",
            lambda s: s.map_batches(lambda b: None),
            "the function gave NoneType",
        ),
        failing(
            "scalar",
            "a dict of numbers in place of columns",
            lambda s: s.map_batches(lambda b: {"x": 1}),
            "gave int as the column 'x'",
        ),
        failing(
            "twice",
            "two columns of one name",
            lambda s: s.map_batches(lambda b: pa.table([[1], [2]], names=["x", "x"])),
            "several columns called 'x'",
        ),
        failing(
            "no-fields",
            "values without any field",
            lambda s: s.map_values(lambda v: {}).map_batches(list),
            "there are no columns",
        ),
        failing(
            "type",
            "a DataType as the schema of dicts",
            lambda s: s.map_values(lambda v: {"x": 1}).map_batches(list, schema=pa.int64()),
            "values without fields",
        ),
        failing(
            "missing",
            "a field that the schema demands is missing",
            lambda s: s.map_values(lambda v: {"prize": 1}).map_batches(list, schema=DEMANDED),
            "nullable=False of the column 'price'",
        ),
        failing(
            "fits-not",
            "values that are not of the schema's type",
            lambda s: s.map_batches(list, schema=pa.int64()),
            "column 'value' cannot be made of these values",
        ),
        case(
            "continue",
            "with LogAndContinueProcessingExceptionHandler",
            lambda s: s.map_batches(fails),
            Dropped(1, []),
            **CONTINUES,
        ),
        case(
            "nothing",
            "a record without a value goes past the function",
            lambda s: s.map_values(lambda v: None).map_batches(fails),
            Accepted([("k", "None")]),
        ),
    ],
)

DATAFRAMES = Family(
    "DataFrame functions",
    "What `transform_dataframe` refuses in the line that is wrong. What a function gives that is "
    "no record is refused when its query starts: see [Spark SQL in a topology](dataframes.md).",
    [
        declared(
            "name",
            "no name",
            TopologyError,
            lambda s: s.transform_dataframe(list, name=""),
            "needs a name: its topics, its checkpoint",
        ),
        declared(
            "illegal-name",
            "a name that no topic can have",
            TopologyError,
            lambda s: s.transform_dataframe(list, name="a/b"),
            "a character that topics cannot have",
        ),
        declared(
            "trigger",
            "a text in place of a trigger",
            TopologyError,
            lambda s: s.transform_dataframe(list, name="t", trigger="1 second"),
            "takes a Trigger, but got '1 second'",
        ),
        declared(
            "batch",
            "batches of 100 ms in real time",
            TopologyError,
            lambda s: s.transform_dataframe(list, name="t", trigger=ms.Trigger.real_time("100 ms")),
            "takes batches of at least 5 seconds",
        ),
        Case(
            "exactly-once",
            "real time in an application that is exactly once",
            lambda: in_real_time(processing_guarantee="exactly_once_v2"),
            Refused(ConfigError, ["writes at least once", "bad_inputs/beside.py:"]),
        ),
        Case(
            "real-time-serde",
            "real time with a serde that only Python reads",
            lambda: in_real_time(value=serdes.JSON),
            Refused(ConfigError, ["cannot be written without Python", "bad_inputs/beside.py:"]),
        ),
        declared(
            "serde",
            "a type in place of a serde",
            TypeError,
            lambda s: s.transform_dataframe(list, name="t", value=str),
            "needs a Serde as its value",
        ),
        declared(
            "coroutine",
            "an async def function",
            TypeError,
            lambda s: s.transform_dataframe(waits, name="t"),
            "needs a plain function as its function",
        ),
    ],
)
