"""The last result of a table-table join belongs to the last rows, even if caches overflow.

Two tables with caches for a few rows are updated in turn, with batches of all sizes. The test
compares the last outputs with the rows.
"""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from support.batches.drivers import QueuedDriver

from millstream import Materialized, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING

KEYS, RECORDS = 200, 4_000


@pytest.mark.parametrize("batch_size", [1, 2, 37, 500])
@pytest.mark.parametrize("cache_bytes", [2_000, 5_000, 10**6])
def test_last_result_belongs_to_the_last_rows(batch_size: int, cache_bytes: int) -> None:
    builder = StreamsBuilder()
    tables = [
        builder.table(name, key=STRING, value=LONG, store=Materialized(name)) for name in "ab"
    ]
    tables[0].join(tables[1], lambda left, right: left * RECORDS + right).to_stream().to(
        "out", key=STRING, value=LONG
    )
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="not-used:9092",
        statestore_cache_max_bytes=cache_bytes,
    )
    draw = random.Random(3)
    rows: dict[str, dict[bytes, int]] = {"a": {}, "b": {}}
    with closing(QueuedDriver(builder.build(), config, batch_size=batch_size)) as driver:
        for number in range(RECORDS):
            table, key = "ab"[number % 2], b"%d" % draw.randrange(KEYS)
            rows[table][key] = number
            driver.feed(table, key, LONG.serialize(table, number), number)
        driver.finish()
        last = {each.key: each.value for each in driver.outputs["out"]}
    expected = {
        key: LONG.serialize("out", left * RECORDS + rows["b"][key])
        for key, left in rows["a"].items()
        if key in rows["b"]
    }
    assert last == expected
