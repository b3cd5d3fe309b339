"""The DataFrames of a stage: what its function gets, and what becomes of what it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.config import StreamsConfig
from millstream.errors import DataFrameError, StreamsError
from millstream.kafka.settings.clients import isolation_level
from millstream.kafka.settings.java_options import java_client_options
from millstream.serdes import BYTES, STRING
from millstream.spark.columns.serde_columns import Column
from millstream.structured.arrow_map import map_in_arrow
from millstream.structured.plan import StagePlan
from millstream.structured.real_time import decoded_natively
from millstream.structured.rows import HEADERS_TYPE, Decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How many records a batch has at most: a backlog is worked off in steps that a crash repeats.
_MOST_RECORDS: Final = 500_000
_PLACE: Final = ("timestamp", "headers", "partition", "offset")


def read_stage(
    session: SparkSession, plan: StagePlan, config: StreamsConfig, starting: str
) -> DataFrame:
    """The input topic as a streaming DataFrame, keys and values decoded.

    Args:
        session: has the Kafka connector.
        plan: of the stage.
        config: the settings.
        starting: where a query without a checkpoint begins: `earliest`, or the connector's JSON.

    Raises:
        ConfigError: the settings cannot be told to a client of Java's.
    """
    options = {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "kafka.isolation.level": isolation_level(config, "main_consumer"),
        "subscribe": plan.input_topic,
        "startingOffsets": starting,
        "includeHeaders": "true",
        "groupIdPrefix": f"{plan.query_name}-spark",
        # What is gone before it was read is an error here as everywhere.
        "failOnDataLoss": "true",
    }
    if not plan.trigger.is_real_time:
        options["maxOffsetsPerTrigger"] = str(_MOST_RECORDS)
    for name, value in java_client_options(config.client_settings("main_consumer")).items():
        options[f"kafka.{name}"] = value
    raw = session.readStream.format("kafka").options(**options).load()
    return decoded(raw, plan)


def decoded(raw: DataFrame, plan: StagePlan) -> DataFrame:
    """Rows of the connector, or of a test, with keys and values as columns."""
    if plan.trigger.is_real_time:
        return decoded_natively(raw, plan.reads, _PLACE)
    key, value = plan.reads.columns()
    native = {"key": _is_native(key), "value": _is_native(value)}
    shown = raw.selectExpr(
        *(
            f"CAST({name} AS {column.spark_type.simpleString()}) AS {name}"
            if native[name]
            else name
            for name, column in (("key", key), ("value", value))
        ),
        *_PLACE,
    )
    if all(native.values()):
        return shown
    from pyspark.sql.types import StructField, StructType

    types = {"key": key.spark_type, "value": value.spark_type}
    schema = StructType(
        [
            StructField(field.name, types.get(field.name, field.dataType))
            for field in shown.schema.fields
        ]
    )
    decode = Decode(plan.reads, keys=not native["key"], values=not native["value"])
    return map_in_arrow(shown, decode.run, schema)


def _is_native(column: Column) -> bool:
    """Whether Spark itself reads it of bytes, without Python. Of text that is no UTF-8 it makes
    what Java's `StringDeserializer` makes."""
    return column.serde in (STRING, BYTES)


def transformed(frame: DataFrame, plan: StagePlan) -> DataFrame:
    """What the user's function makes of a DataFrame.

    Raises:
        DataFrameError: it raised, or returned something else.
    """
    from pyspark.sql import DataFrame as AnyFrame

    try:
        result = plan.function(frame)
    except StreamsError:
        raise
    except Exception as error:
        raise DataFrameError(
            f"The DataFrame function {plan.name!r} raised {type(error).__name__}: {error}",
            declared_at=plan.declared_at or None,
        ) from error
    if not isinstance(result, AnyFrame):
        raise DataFrameError(
            f"The DataFrame function {plan.name!r} returned {result!r}. It must return the "
            "DataFrame that it has made of the one it got.",
            declared_at=plan.declared_at or None,
        )
    if frame.isStreaming and not result.isStreaming:
        raise DataFrameError(
            f"The DataFrame function {plan.name!r} returned a DataFrame that does not come from "
            "the one it got. Make it of the function's argument.",
            declared_at=plan.declared_at or None,
        )
    return result


def as_records(result: DataFrame, plan: StagePlan) -> DataFrame:
    """The columns that become a record: key, value, timestamp_ms and headers.

    Raises:
        DataFrameError: a column is missing, or cannot be what the serde writes.
    """
    from pyspark.sql import functions

    assert plan.writes is not None
    key, value = plan.writes.columns()
    names = result.columns
    if "key" not in names:
        raise _wrong(plan, f"has no column key, but {_listed(names)}. Select one AS key.")
    if "value" in names:
        value_column = _fitting(result, functions.col("value"), "value", value, plan)
    else:
        value_column = _packed(result, value, plan)
    timestamp = (
        functions.unix_millis(functions.col("timestamp").cast("timestamp"))
        if "timestamp" in names
        else functions.lit(None).cast("bigint")
    )
    headers = functions.col("headers") if "headers" in names else functions.lit(None)
    try:
        return result.select(
            _fitting(result, functions.col("key"), "key", key, plan).alias("key"),
            value_column.alias("value"),
            timestamp.alias("timestamp_ms"),
            headers.cast(HEADERS_TYPE).alias("headers"),
        )
    except Exception as error:
        raise _wrong(plan, f"has columns that are no record: {_first_line(error)}") from error


def _packed(result: DataFrame, value: Column, plan: StagePlan) -> Any:
    """The fields of the value's struct, of columns of their names."""
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    kind = value.spark_type
    if not isinstance(kind, StructType):
        raise _wrong(
            plan,
            f"has no column value, but {_listed(result.columns)}. Select one AS value: the serde "
            f"{value.serde.name} writes {kind.simpleString()}.",
        )
    missing = [name for name in kind.names if name not in result.columns]
    if missing:
        raise _wrong(
            plan,
            f"has neither a column value nor all fields of {value.serde.name}: there is no "
            f"{_listed(missing)} among {_listed(result.columns)}.",
        )
    return functions.struct(
        *(
            functions.col(_quoted(field.name)).cast(field.dataType).alias(field.name)
            for field in kind.fields
        )
    )


def _fitting(result: DataFrame, column: Any, name: str, wanted: Column, plan: StagePlan) -> Any:
    """A column with the type of a serde: fields by name, plain types cast."""
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
        raise _wrong(
            plan,
            f"has a column {name} of {given.simpleString()}, but the serde {wanted.serde.name} "
            f"writes {kind.simpleString()}.",
        )
    return column.cast(kind)


def output_mode(frame: DataFrame) -> str:
    """How results leave: `append`, or `update` where a plan gives them no other way.

    An aggregation without a watermark never ends, so it can only tell what has changed.
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


def _wrong(plan: StagePlan, problem: str) -> DataFrameError:
    return DataFrameError(
        f"What the DataFrame function {plan.name!r} returned {problem}",
        declared_at=plan.declared_at or None,
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
