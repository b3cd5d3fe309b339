"""The DataFrame functions of a topology under test: batches of what waits for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from millstream.config import StreamsConfig
from millstream.errors import DataFrameError
from millstream.record import Headers
from millstream.spark.sessions.session import use_this_python
from millstream.structured.arrow_map import map_in_arrow
from millstream.structured.frames import as_records, decoded, transformed
from millstream.structured.plan import StagePlan, stage_plan
from millstream.structured.rows import HEADERS_TYPE, WIRE_SCHEMA, Encode
from millstream.testing.driver_topics import Captured
from millstream.topology.physical.dataframe_stage import DataFrameStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What the connector gives of a record.
_RAW_SCHEMA: Final = (
    "key binary, value binary, timestamp_ms bigint, "
    f"headers {HEADERS_TYPE}, partition int, offset bigint"
)

_Outgoing = tuple[bytes | None, bytes | None, int, Headers]


def run_stage(
    stage: DataFrameStage,
    config: StreamsConfig,
    session: SparkSession,
    outputs: Mapping[str, deque[Captured]],
    feed: Callable[[str, bytes | None, bytes | None, int, Headers], None],
    now_ms: int,
) -> int:
    """Hand what waits for a stage to its function, as one batch, and feed what it gives.

    Args:
        stage: of the topology.
        config: settings.
        session: where the function runs, on a DataFrame that is no stream.
        outputs: what was written to each topic; the records are taken out.
        feed: takes a record for a topic that the topology reads.
        now_ms: the time of records without one.

    Returns:
        How many records were waiting.

    Raises:
        DataFrameError: the function fails, or gives no records; or the stage writes to a table.
    """
    if stage.sink is not None:
        raise DataFrameError(
            f"The DataFrame function {stage.name!r} writes to {stage.sink.description}, which a "
            "test driver does not. Look at its input topic instead.",
            declared_at=stage.declared_at or None,
        )
    plan = stage_plan(stage, config)
    waiting = outputs.get(plan.input_topic, deque())
    records = list(waiting)
    waiting.clear()
    if not records:
        return 0
    assert plan.output_topic is not None
    use_this_python(session)
    for key, value, time_ms, headers in list(_results(plan, session, records, now_ms)):
        feed(plan.output_topic, key, value, time_ms, headers)
    return len(records)


def _results(
    plan: StagePlan, session: SparkSession, records: list[Captured], now_ms: int
) -> Iterator[_Outgoing]:
    from pyspark.sql import functions

    rows = [
        (each.key, each.value, each.timestamp, list(each.headers or ()), 0, offset)
        for offset, each in enumerate(records)
    ]
    raw: DataFrame = session.createDataFrame(rows, _RAW_SCHEMA).coalesce(1)
    raw = raw.withColumn("timestamp", functions.timestamp_millis("timestamp_ms"))
    result = as_records(transformed(decoded(raw, plan), plan), plan)
    assert plan.writes is not None
    wire = map_in_arrow(result, Encode(plan.writes, 1).run, WIRE_SCHEMA)
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
        yield _bytes(row["key"]), _bytes(row["value"]), time_ms, headers


def _bytes(data: Any) -> Any:
    return None if data is None else bytes(data)
