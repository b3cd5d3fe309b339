"""Reads stores from the tasks that own their partitions.

The application's driver queries the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from millstream.errors import StateStoreNotAvailableError, UnsupportedOperationError
from millstream.lake.changelogs import METADATA
from millstream.lake.store_rows import StoreRowConverter, timestamps
from millstream.lake.store_table import StoreTable
from millstream.query.state_queries import StateQueries
from millstream.query.views import QueryableStoreType, QueryableStoreTypes
from millstream.record import UNKNOWN, ValueAndTimestamp
from millstream.spark.columns.serde_columns import column_of
from millstream.state.queries.requests.queries import (
    Query,
    RangeQuery,
    TimestampedRangeQuery,
    WindowRangeQuery,
)
from millstream.state.queries.requests.query_results import StateQueryRequest, StateQueryResult
from millstream.windowed import MAX_TIME_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS: Final = 10_000


class _StoreEntry(NamedTuple):
    """An entry of a store.

    The partition is None if all partitions are queried together.
    """

    partition: int | None
    key: Any
    value: Any


def query_owners(
    spark: SparkSession, table: StoreTable, queries: StateQueries, *, is_global: bool
) -> DataFrame:
    """Query the owners of a store and return its rows.

    The rows must fit into the driver's memory.

    Raises:
        UnsupportedOperationError: the store is versioned, and can only be queried by key.
        StateStoreNotAvailableError: some partitions did not respond.
        InvalidStateStoreError: the application is not running.
    """
    if table.shape == "versioned":
        raise UnsupportedOperationError(
            f"Store {table.store} is versioned, and its owners can only be queried for known keys. "
            "Omit source='owners' to read the changelog."
        )
    position: dict[str, dict[int, int]] = {}
    if table.shape == "session" or is_global:
        entries = _by_view(table, queries)
    else:
        answer = queries.query(StateQueryRequest.in_store(table.store).with_query(_query(table)))
        _check_complete(table, answer)
        position = answer.position.as_dict()
        entries = _by_partition(answer)
    schema = StoreRowConverter(table).schema
    batches = list(_batches(table, entries, schema))
    frame: DataFrame = spark.createDataFrame(pa.Table.from_batches(batches, schema))
    return frame.withMetadata("key", {METADATA: json.dumps(position, separators=(",", ":"))})


def _query(table: StoreTable) -> Query:
    if table.shape == "window":
        return WindowRangeQuery(0, MAX_TIME_MS)
    return TimestampedRangeQuery() if table.timestamped else RangeQuery()


def _check_complete(table: StoreTable, answer: StateQueryResult) -> None:
    for partition, result in answer.partition_results.items():
        if not result.is_success:
            raise StateStoreNotAvailableError(
                f"Partition {partition} of store {table.store} did not respond: "
                f"{result.failure_message} Retry, or omit source='owners' to read the changelog."
            )


def _by_partition(answer: StateQueryResult) -> Iterator[_StoreEntry]:
    for partition, result in answer.partition_results.items():
        with result.result as pairs:
            for key, value in pairs:
                yield _StoreEntry(partition, key, value)


def _by_view(table: StoreTable, queries: StateQueries) -> Iterator[_StoreEntry]:
    kind: QueryableStoreType[Any] = QueryableStoreTypes.key_value()
    if table.shape == "session":
        kind = QueryableStoreTypes.session()
    elif table.timestamped:
        kind = QueryableStoreTypes.timestamped_key_value()
    view = queries.store(table.store, kind, None, stale=False)
    pairs = view.fetch_range(None, None) if table.shape == "session" else view.all()
    with pairs:
        for key, value in pairs:
            yield _StoreEntry(None, key, value)


def _batches(table: StoreTable, entries: Iterable[_StoreEntry], schema: Any) -> Iterator[Any]:
    entries = iter(entries)
    key_column, value_column = column_of(table.key), column_of(table.value)
    while chunk := list(islice(entries, _BATCH_ROWS)):
        keys = [entry.key for entry in chunk]
        values = [_value_of(entry.value) for entry in chunk]
        times = pa.array([_time_of(entry.value) for entry in chunk], pa.int64())
        columns = {
            "value": value_column.array_of(table.topic, values),
            "timestamp": timestamps(times),
            "partition": pa.array([entry.partition for entry in chunk], pa.int32()),
            "offset": pa.nulls(len(chunk), pa.int64()),
        }
        if table.suffix_bytes:
            windows = [key.window for key in keys]
            keys = [key.key for key in keys]
            starts, ends = [each.start_ms for each in windows], [each.end_ms for each in windows]
            columns["window_start"] = timestamps(pa.array(starts, pa.int64()))
            columns["window_end"] = timestamps(pa.array(ends, pa.int64()))
        columns["key"] = key_column.array_of(table.topic, keys)
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, ValueAndTimestamp) else value


def _time_of(value: Any) -> int:
    return value.timestamp if isinstance(value, ValueAndTimestamp) else UNKNOWN
