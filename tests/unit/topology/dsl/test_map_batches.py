"""Declarations of `map_batches`, and its place in a topology."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from millstream import KStream, Materialized, StreamsBuilder, StreamsConfig
from millstream.errors import ConfigError
from millstream.operators import arrow
from millstream.serdes import JSON, LONG, STRING
from millstream.testing import TopologyTestDriver

SECOND = timedelta(seconds=1)


def stream(builder: StreamsBuilder | None = None) -> KStream[str, int]:
    return (builder or StreamsBuilder()).stream("in", key=STRING, value=LONG)


def plain(batch: Any) -> Any:
    return batch


#: The sizes of the batches of the async function.
sizes: list[int] = []


async def waits(batch: Any) -> Any:
    sizes.append(batch.num_rows)
    await asyncio.sleep(0)
    return [value + 1 for value in batch["value"].to_pylist()]


async def generates(batch: Any) -> Any:
    yield batch


class Model:
    """Its instances are callable."""

    def __call__(self, batch: Any) -> Any:
        return batch


DUPLICATE_NAMES = pa.schema([("a", pa.int64()), ("a", pa.int64())])


@pytest.mark.parametrize(
    ("function", "options", "error", "message"),
    [
        ("no function", {}, TypeError, "needs a function as its mapper"),
        (lambda key, batch: batch, {}, TypeError, r"calls its mapper as mapper\(batch\)"),
        (plain, {"max_records": 0}, ConfigError, "max_records from 1 to 100000, but got 0"),
        (plain, {"max_records": True}, ConfigError, "max_records from 1"),
        (plain, {"schema": {"a": int}}, TypeError, r"takes a pyarrow.Schema"),
        (plain, {"concurrency": 2}, ConfigError, "a concurrency for a plain function"),
        (plain, {"timeout": SECOND}, ConfigError, "a timeout for a plain function"),
        (waits, {"concurrency": 0}, ConfigError, "concurrency from 1"),
        (waits, {"timeout": timedelta(0)}, ConfigError, "timeout"),
        (plain, {"schema": DUPLICATE_NAMES}, ConfigError, "duplicate column names: a, a"),
        (generates, {}, TypeError, "generates is an asynchronous generator"),
        (Model, {}, TypeError, r"the class Model as its mapper.* Model\(\.\.\.\)"),
    ],
)
def test_invalid_arguments_are_rejected_at_their_declaration(
    function: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Before any record is read."""
    with pytest.raises(error, match=message) as caught:
        stream().map_batches(function, **options)
    assert "test_map_batches.py:" in str(caught.value)


def test_error_about_missing_pyarrow_contains_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow is an extra of the package."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(arrow, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install 'millstream\[arrow\]'"):
        stream().map_batches(plain)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_map_batches_between_stores(guarantee: str) -> None:
    """Counts in front of it pass through it, and the store behind it receives all records of a key
    in order, with a plain function and with an async function."""
    builder = StreamsBuilder()
    thrice = stream(builder).flat_map_values(lambda value: [value] * 3)
    counts = thrice.group_by_key().count(store="counts").to_stream()
    for name, mapper in (
        ("plain", lambda b: [v + 1 for v in b["value"].to_pylist()]),
        ("async", waits),
    ):
        (
            counts.map_batches(mapper, schema=pa.int64())
            .group_by_key(key=STRING, value=LONG)
            .aggregate(
                list,
                lambda _, value, seen: [*seen, value],
                store=Materialized(f"seen-{name}", value=JSON),
            )
        )
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="unused:9092",
        processing_guarantee=guarantee,
        statestore_cache_max_bytes=0,
    )
    sizes.clear()
    with TopologyTestDriver(builder.build(), config) as driver:
        records = driver.create_input_topic("in", key=STRING, value=LONG)
        for number in range(4):
            records.pipe_input("ab"[number % 2], number)
        assert sizes == [3, 3, 3, 3]
        for name in ("plain", "async"):
            seen = driver.get_state_store(f"seen-{name}")
            assert [seen.get(key).value for key in "ab"] == [[2, 3, 4, 5, 6, 7]] * 2
