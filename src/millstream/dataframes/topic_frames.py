"""The input and output DataFrames of a stage's function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.real_time import decode_natively
from millstream.dataframes.row_conversion import HEADERS_TYPE, RowDecoder, map_in_arrow
from millstream.dataframes.stage_plan import StagePlan
from millstream.errors import DataFrameError, StreamsError
from millstream.kafka.settings.java_options import java_client_options
from millstream.kafka.settings.librdkafka_settings import isolation_level
from millstream.serdes import BYTES, STRING
from millstream.spark.columns.serde_columns import SerdeColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The maximum number of records in a batch, which limits the work that a crash repeats.
_MAX_BATCH_RECORDS: Final = 500_000
_RECORD_COLUMNS: Final = ("timestamp", "headers", "partition", "offset")


def read_stage(
    session: SparkSession, plan: StagePlan, config: StreamsConfig, starting: str
) -> DataFrame:
    """Read the input topic as a streaming DataFrame, with decoded keys and values.

    A query without a checkpoint starts at `starting`, which is `earliest` or offsets in the
    connector's JSON format.
    """
    options = {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "kafka.isolation.level": isolation_level(config, "main_consumer"),
        "subscribe": plan.input_topic,
        "startingOffsets": starting,
        "includeHeaders": "true",
        "groupIdPrefix": f"{plan.query_name}-spark",
        # The loss of unread records is an error, as it is for stream threads.
        "failOnDataLoss": "true",
    }
    if not plan.trigger.is_real_time:
        options["maxOffsetsPerTrigger"] = str(_MAX_BATCH_RECORDS)
    for name, value in java_client_options(config.client_settings("main_consumer")).items():
        options[f"kafka.{name}"] = value
    raw = session.readStream.format("kafka").options(**options).load()
    return decode_rows(raw, plan)


def decode_rows(raw: DataFrame, plan: StagePlan) -> DataFrame:
    """Decode the keys and values of rows from the connector or from a test."""
    if plan.trigger.is_real_time:
        return decode_natively(raw, plan.reads, _RECORD_COLUMNS)
    key, value = plan.reads.columns()
    types = {"key": key.spark_type, "value": value.spark_type}
    # Spark decodes these serdes without Python, and invalid UTF-8 as `StringDeserializer` does.
    native = {"key": key.serde in (STRING, BYTES), "value": value.serde in (STRING, BYTES)}
    shown = raw.selectExpr(
        *(
            f"CAST({name} AS {kind.simpleString()}) AS {name}" if native[name] else name
            for name, kind in types.items()
        ),
        *_RECORD_COLUMNS,
    )
    if all(native.values()):
        return shown
    from pyspark.sql.types import StructField, StructType

    fields = shown.schema.fields
    schema = StructType(
        [StructField(field.name, types.get(field.name, field.dataType)) for field in fields]
    )
    decode = RowDecoder(plan.reads, keys=not native["key"], values=not native["value"])
    return map_in_arrow(shown, decode.run, schema)


def apply_function(frame: DataFrame, plan: StagePlan) -> DataFrame:
    """Apply the user's function.

    Raises a `DataFrameError` if the function fails or its result is invalid.
    """
    from pyspark.sql import DataFrame as AnyFrame

    try:
        result = plan.function(frame)
    except StreamsError:
        raise
    except Exception as error:
        raise plan.error(
            f"The DataFrame function {plan.name!r} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(result, AnyFrame):
        raise plan.error(
            f"The DataFrame function {plan.name!r} returned {result!r}. The function must return a "
            "DataFrame that is derived from its argument."
        )
    if frame.isStreaming and not result.isStreaming:
        raise plan.error(
            f"The DataFrame function {plan.name!r} returned a DataFrame that is not derived from "
            "its argument. Derive the result from the function's argument."
        )
    return result


def select_records(result: DataFrame, plan: StagePlan) -> DataFrame:
    """Select key, value, timestamp_ms and headers, or raise a `DataFrameError`."""
    from pyspark.sql import functions

    assert plan.writes is not None
    key, value = plan.writes.columns()
    names = result.columns
    if "key" not in names:
        raise _result_error(
            plan, f"has no column key, only {', '.join(names)}. Select a column AS key."
        )
    if "value" in names:
        value_column = _cast_column(result, functions.col("value"), "value", value, plan)
    else:
        value_column = _struct_column(result, value, plan)
    timestamp = (
        functions.unix_millis(functions.col("timestamp").cast("timestamp"))
        if "timestamp" in names
        else functions.lit(None).cast("bigint")
    )
    headers = functions.col("headers") if "headers" in names else functions.lit(None)
    try:
        return result.select(
            _cast_column(result, functions.col("key"), "key", key, plan).alias("key"),
            value_column.alias("value"),
            timestamp.alias("timestamp_ms"),
            headers.cast(HEADERS_TYPE).alias("headers"),
        )
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        problem = f"has columns that cannot become a record: {reason}"
        raise _result_error(plan, problem) from error


def _struct_column(result: DataFrame, value: SerdeColumn, plan: StagePlan) -> Any:
    """Build the value's struct from the columns that have the names of its fields."""
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    kind = value.spark_type
    names = ", ".join(result.columns)
    if not isinstance(kind, StructType):
        raise _result_error(
            plan,
            f"has no column value, only {names}. Select a column AS value: the serde "
            f"{value.serde.name} writes {kind.simpleString()}.",
        )
    missing = [name for name in kind.names if name not in result.columns]
    if missing:
        raise _result_error(
            plan,
            f"has neither a column value nor all fields of {value.serde.name}: "
            f"{', '.join(missing)} not found in {names}.",
        )
    quoted = {field.name: f"`{field.name.replace('`', '``')}`" for field in kind.fields}
    return functions.struct(
        *(
            functions.col(quoted[field.name]).cast(field.dataType).alias(field.name)
            for field in kind.fields
        )
    )


def _cast_column(
    result: DataFrame, column: Any, name: str, wanted: SerdeColumn, plan: StagePlan
) -> Any:
    """Convert a column to a serde's type.

    Fields are matched by name, and simple types are cast.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType, StructType

    given, kind = result.schema[name].dataType, wanted.spark_type
    if given.simpleString() == kind.simpleString():
        return column
    if isinstance(given, StructType) and isinstance(kind, StructType):
        missing = [field for field in kind.names if field not in given.names]
        if not missing:
            fields = (
                column[field.name].cast(field.dataType).alias(field.name) for field in kind.fields
            )
            return functions.when(column.isNotNull(), functions.struct(*fields))
    nested = (ArrayType, MapType, StructType)
    if isinstance(given, nested) or isinstance(kind, nested):
        raise _result_error(
            plan,
            f"has a column {name} of type {given.simpleString()}, but the serde "
            f"{wanted.serde.name} writes {kind.simpleString()}.",
        )
    return column.cast(kind)


def output_mode(frame: DataFrame) -> str:
    """Return the output mode of a query.

    The mode is `append`, or `update` if the plan does not support append. The results of an
    aggregation without a watermark are never final, so such a query only emits updates.
    """
    jvm: Any = frame.sparkSession.sparkContext._jvm
    sql = jvm.org.apache.spark.sql
    plan: Any = frame._jdf.queryExecution().analyzed()
    try:
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            plan, sql.streaming.OutputMode.Append()
        )
    except Exception:
        return "update"
    return "append"


def _result_error(plan: StagePlan, problem: str) -> DataFrameError:
    return plan.error(f"The result of the DataFrame function {plan.name!r} {problem}")
