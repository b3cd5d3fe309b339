"""Functions of `map_async`, `map_batches` and DataFrames that are invalid or return bad results."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pyarrow as pa

from bad_inputs.case import (
    Accepted,
    Case,
    DeadLettered,
    Dropped,
    Family,
    Input,
    Outcome,
    Raises,
    check_start,
    ms,
    serdes,
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


REQUIRED = pa.schema([pa.field("price", pa.int64(), nullable=False)])


class Anonymous:
    """Has no `__eq__`."""


def declared(
    id: str, description: str, error: type[Exception], operation: Any, *parts: str
) -> Case:
    """Create a case that fails at the line of the call, which the error contains."""
    run = check_start(lambda b: operation(b.stream("in", **TEXT)).to("out", **TEXT))
    return Case(id, description, run, Raises(error, [*parts, "bad_inputs/batch_functions.py:"]))


def case(
    id: str, description: str, operation: Any, outcome: Outcome, *given: Input, **settings: Any
) -> Case:
    run = with_stream(lambda s, b: operation(s), *given, **settings)
    return Case(id, description, run, outcome)


def failing(id: str, description: str, operation: Any, *parts: str) -> Case:
    return case(id, description, operation, Raises(ProcessingError, ["User code failed", *parts]))


def in_real_time(value: Any = serdes.STRING, **settings: Any) -> None:
    """Create an application with a DataFrame function in real-time mode, without starting it."""
    builder = ms.StreamsBuilder()
    rows = builder.stream("in", **TEXT)
    trigger = ms.Trigger.real_time()
    rows.transform_dataframe(list, name="t", value=value, trigger=trigger).to("out")
    config = ms.StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092", **settings)
    ms.KafkaStreams(builder.build(), config)


ASYNC = Family(
    "map_async",
    "Rejected at the line of the call, or handled like functions that raise.",
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
            "with_key=True and a function without a parameter for the key",
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
            "takes ordering= as one of",
        ),
        declared(
            "timeout",
            "a timeout for a plain function",
            ConfigError,
            lambda s: s.map_async(str, timeout=timedelta(seconds=1)),
            "which cannot be canceled",
        ),
        failing(
            "raises",
            "an async def function that raises",
            lambda s: s.map_async(fails_later),
            "LookupError: missing",
        ),
        failing(
            "late",
            "a call that exceeds its timeout",
            lambda s: s.map_async(never, timeout=timedelta(milliseconds=5)),
            "no result within 5 ms",
        ),
        failing(
            "around",
            "a lambda that returns a coroutine",
            lambda s: s.map_async(lambda v: waits(v)),
            "coroutine instead of a result",
            "Pass the async function itself",
        ),
        failing(
            "keys",
            "keys of a class without __eq__, with ordering by key",
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
            DeadLettered(1, []),
            **QUEUE,
        ),
        case(
            "none",
            "a function that returns None",
            lambda s: s.map_async(lambda v: None),
            Accepted([("k", "None")]),
        ),
    ],
)

BATCHES = Family(
    "map_batches",
    "Rejected at the line of the call, or handled like functions that raise.",
    [
        declared(
            "schema",
            "a schema that is not from pyarrow",
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
            "got 1 rows and returned 0",
        ),
        failing(
            "null",
            "a null row",
            lambda s: s.map_batches(lambda b: [None]),
            "the function returned null for this record",
        ),
        failing(
            "none",
            "a function without a return statement",
            lambda s: s.map_batches(lambda b: None),
            "the function returned NoneType",
        ),
        failing(
            "scalar",
            "a dict of numbers instead of columns",
            lambda s: s.map_batches(lambda b: {"x": 1}),
            "returned int as the column 'x'",
        ),
        failing(
            "twice",
            "two columns with the same name",
            lambda s: s.map_batches(lambda b: pa.table([[1], [2]], names=["x", "x"])),
            "several columns named 'x'",
        ),
        failing(
            "no-fields",
            "values without fields",
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
            "a missing field that the schema requires",
            lambda s: s.map_values(lambda v: {"prize": 1}).map_batches(list, schema=REQUIRED),
            "column 'price' has nullable=False",
        ),
        failing(
            "fits-not",
            "values that do not have the schema's type",
            lambda s: s.map_batches(list, schema=pa.int64()),
            "column 'value' cannot be created from these values",
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
            "a record without a value, which bypasses the function",
            lambda s: s.map_values(lambda v: None).map_batches(fails),
            Accepted([("k", "None")]),
        ),
    ],
)

DATAFRAMES = Family(
    "DataFrame functions",
    "Rejected by `transform_dataframe` at the line of the call. The columns of the result are "
    "checked when the query starts: see [DataFrame functions](dataframes.md).",
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
            "a name that is not a legal topic name",
            TopologyError,
            lambda s: s.transform_dataframe(list, name="a/b"),
            "a character that is not legal in topic names",
        ),
        declared(
            "trigger",
            "text instead of a trigger",
            TopologyError,
            lambda s: s.transform_dataframe(list, name="t", trigger="1 second"),
            "takes a Trigger, but got '1 second'",
        ),
        declared(
            "batch",
            "batches of 100 ms in real-time mode",
            TopologyError,
            lambda s: s.transform_dataframe(list, name="t", trigger=ms.Trigger.real_time("100 ms")),
            "takes batches of at least 5 seconds",
        ),
        Case(
            "exactly-once",
            "real-time mode with exactly-once",
            lambda: in_real_time(processing_guarantee="exactly_once_v2"),
            Raises(ConfigError, ["writes at least once", "bad_inputs/batch_functions.py:"]),
        ),
        Case(
            "real-time-serde",
            "real-time mode with a serde that requires Python",
            lambda: in_real_time(value=serdes.JSON),
            Raises(
                ConfigError, ["cannot be written without Python", "bad_inputs/batch_functions.py:"]
            ),
        ),
        declared(
            "serde",
            "a type instead of a serde",
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
