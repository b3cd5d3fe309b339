"""DataFrame functions in a test driver, which run on batches of waiting records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.row_conversion import HEADERS_TYPE, WIRE_SCHEMA, RowEncoder, map_in_arrow
from millstream.dataframes.stage_plan import StagePlan, stage_plan
from millstream.dataframes.topic_frames import apply_function, decode_rows, select_records
from millstream.errors import DataFrameError
from millstream.record import Headers
from millstream.spark.sessions.session import use_driver_python
from millstream.testing.driver_topics import CapturedRecord
from millstream.topology.physical.dataframe_stage import DataFrameStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns that Spark's Kafka source returns for a record.
_RAW_SCHEMA: Final = (
    "key binary, value binary, timestamp_ms bigint, "
    f"headers {HEADERS_TYPE}, partition int, offset bigint"
)


class _OutputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


def run_stage(
    stage: DataFrameStage,
    config: StreamsConfig,
    session: SparkSession,
    outputs: Mapping[str, deque[CapturedRecord]],
    feed: Callable[[str, bytes | None, bytes | None, int, Headers], None],
    now_ms: int,
) -> int:
    """Run a stage's function on its waiting records, and feed the results.

    The function processes the records as one batch.

    Args:
        session: the session for the function, which gets a DataFrame that is not streaming.
        outputs: the records written to each topic. Those in the stage's input topic are removed.
        now_ms: the timestamp of results that have no timestamp.

    Returns:
        The number of waiting records.

    Raises:
        DataFrameError: the function fails, or its result cannot be converted to records; or the
            stage writes to a table.
    """
    if stage.sink is not None:
        raise DataFrameError(
            f"The DataFrame function {stage.name!r} writes to {stage.sink.description}, which a "
            "test driver does not support. Check its input topic instead.",
            declared_at=stage.declared_at or None,
        )
    plan = stage_plan(stage, config)
    waiting = outputs.get(plan.input_topic, deque())
    records = list(waiting)
    waiting.clear()
    if not records:
        return 0
    assert plan.output_topic is not None
    use_driver_python(session)
    for key, value, time_ms, headers in list(_results(plan, session, records, now_ms)):
        feed(plan.output_topic, key, value, time_ms, headers)
    return len(records)


def _results(
    plan: StagePlan, session: SparkSession, records: list[CapturedRecord], now_ms: int
) -> Iterator[_OutputRecord]:
    from pyspark.sql import functions

    rows = [
        (each.key, each.value, each.timestamp, list(each.headers or ()), 0, offset)
        for offset, each in enumerate(records)
    ]
    raw: DataFrame = session.createDataFrame(rows, _RAW_SCHEMA).coalesce(1)
    raw = raw.withColumn("timestamp", functions.timestamp_millis("timestamp_ms"))
    result = select_records(apply_function(decode_rows(raw, plan), plan), plan)
    assert plan.writes is not None
    wire = map_in_arrow(result, RowEncoder(plan.writes, 1).run, WIRE_SCHEMA)
    try:
        found: list[Any] = wire.orderBy("task", "row").collect()
    except Exception as error:
        raise DataFrameError(
            f"The DataFrame function {plan.name!r} failed: {error}",
            declared_at=plan.declared_at or None,
        ) from error
    for row in found:
        headers = [(each["key"], _bytes(each["value"])) for each in row["headers"] or ()]
        time_ms = now_ms if row["timestamp_ms"] is None else row["timestamp_ms"]
        yield _OutputRecord(_bytes(row["key"]), _bytes(row["value"]), time_ms, headers)


def _bytes(data: Any) -> Any:
    return None if data is None else bytes(data)
