"""`map_batches` has the same results as `map_values`, with any boundaries of batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from support.batches.drivers import QueuedDriver

from millstream import LogAndContinueProcessingExceptionHandler, StreamsBuilder, StreamsConfig
from millstream.serdes import JSON, STRING

CONFIG = StreamsConfig(
    application_id="app",
    bootstrap_servers="unused:9092",
    processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
)
SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])

values = st.none() | st.fixed_dictionaries(
    {"n": st.integers(-(2**40), 2**40), "word": st.text(max_size=3) | st.none()}
)
records = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), values, st.integers(0, 50)), max_size=30
)


def one(value: Any) -> Any:
    if value is None:
        return None
    if value["n"] % 7 == 0:
        raise ValueError("not of seven")
    return {"n": value["n"] * 2, "word": value["word"]}


def many(batch: Any) -> Any:
    """The same function for columns; failing rows return None, which only skips these rows."""
    rows = batch.to_pylist()
    return [None if row["n"] % 7 == 0 else one(row) for row in rows]


async def many_async(batch: Any) -> Any:
    await asyncio.sleep(0)
    return many(batch)


@given(records, st.integers(1, 9), st.integers(1, 9), st.integers(1, 3))
def test_results_do_not_depend_on_batch_boundaries(
    given_records: list[tuple[Any, Any, int]], step: int, batch_size: int, concurrency: int
) -> None:
    """Keys, timestamps, order, headers and missing values equal those of record-at-a-time
    processing, with any size of steps and batches, in the loop and concurrently."""
    builder = StreamsBuilder()
    source = builder.stream("in", key=STRING, value=JSON)
    source.map_values(one).to("one", value=JSON)
    source.map_batches(many, max_records=batch_size, schema=SCHEMA).to("many", value=JSON)
    later = source.map_batches(
        many_async, max_records=batch_size, schema=SCHEMA, concurrency=concurrency
    )
    later.to("later", value=JSON)
    driver = QueuedDriver(builder.build(), CONFIG, batch_size=step)
    with driver:
        for number, (key, value, timestamp) in enumerate(given_records):
            driver.feed(
                "in",
                None if key is None else STRING.serialize("in", key),
                None if value is None else JSON.serialize("in", value),
                timestamp,
                (("number", str(number).encode()),),
            )
        driver.finish()
        written = {
            topic: [record._replace(topic="") for record in found]
            for topic, found in driver.written().items()
        }
    expected = written.get("one", [])
    assert written.get("many", []) == expected
    assert written.get("later", []) == expected
