"""Stages in Spark's real-time mode: what they may be, and how they read and write without Python.

Sources: `spark.sql.streaming.realTimeMode.*` and the conditions STREAMING_REAL_TIME_MODE of Spark
4.2. Its tasks stay for a whole batch, so that each needs a slot of its own; its only sink here is
the connector's own, which cannot say a record's time to Kafka: it goes into a header.
"""

from __future__ import annotations

import re
import time
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError, DataFrameError
from millstream.kafka.settings.java_options import java_client_options
from millstream.spark.sessions.free_slots import SlotClaim, claim_slots
from millstream.structured.native import NativeColumn, NotNativeError, native_column
from millstream.structured.rows import HEADERS_TYPE, Serdes
from millstream.topology.physical.dataframe_stage import TIME_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Settings of producers that mean the same to Java's, besides those of connections.
_OF_PRODUCERS: Final = ("acks", "compression.type", "max.request.size", "delivery.timeout.ms")
#: Tasks of a query that has just ended keep their slots for a moment.
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.1
_REFUSED: Final = re.compile(r"The operator\(s\): (.+?) (?:is|are) not in the operator allowlist")
_NO_HEADERS: Final = f"CAST(array() AS {HEADERS_TYPE})"


def check_real_time(
    name: str, reads: Serdes, writes: Serdes, config: StreamsConfig, declared_at: str
) -> None:
    """See that a stage can be in real time, as far as that can be said without its function.

    Raises:
        ConfigError: the application is exactly once, or Spark itself cannot read or write a serde.
    """
    where = declared_at or None
    if config.exactly_once:
        raise ConfigError(
            f"The DataFrame function {name!r} has Trigger.real_time(), and the application is "
            f"{config.processing_guarantee}: Spark's real-time mode writes at least once, and not "
            "in transactions. Set processing_guarantee='at_least_once', or give "
            "Trigger.processing_time(...).",
            declared_at=where,
        )
    for serdes, done, is_output in ((reads, "read", False), (writes, "written", True)):
        for what, column in zip(("key", "value"), serdes.columns(), strict=True):
            try:
                native_column(column.serde, exact=is_output and what == "key")
            except NotNativeError as error:
                raise ConfigError(
                    f"The DataFrame function {name!r} has Trigger.real_time(), but its {what}s "
                    f"cannot be {done} without Python, which Spark's real-time mode does not take: "
                    f"{error}. Give {'' if is_output else 'input_'}{what}= a serde that Spark "
                    "itself knows (STRING, BYTES, LONG and the other numbers, BOOLEAN, UUID; for "
                    "values also json_of(...) of plain fields), or Trigger.processing_time(...).",
                    declared_at=where,
                ) from error


def decoded_natively(raw: DataFrame, reads: Serdes, others: tuple[str, ...]) -> DataFrame:
    """Rows of the connector with keys and values as columns, by Spark's own functions.

    Args:
        raw: of the connector.
        reads: the serdes.
        others: the columns that stay as they are.
    """
    columns = _native(reads, exact_keys=False)
    # In two steps: what is decoded is looked at more than once, and decoded once.
    decoded = raw.selectExpr(
        *(f"{column.decode(name)} AS {name}" for name, column in columns.items()),
        *(f"{name} IS NULL AS no_{name}" for name in columns),
        *others,
    )
    return decoded.selectExpr(
        *(
            f"{column.checked(name, f'no_{name}', reads.name, name)} AS {name}"
            for name, column in columns.items()
        ),
        *others,
    )


def encoded_natively(records: DataFrame, writes: Serdes) -> DataFrame:
    """Records as the connector's sink takes them, times in a header.

    Args:
        records: key, value, timestamp_ms, headers.
        writes: the serdes.
    """
    header = (
        f"array(named_struct('key', '{TIME_HEADER}', "
        "'value', unhex(lpad(hex(timestamp_ms), 16, '0'))))"
    )
    return records.selectExpr(
        *(
            f"{column.bytes_of(name, writes.name, name)} AS {name}"
            for name, column in _native(writes, exact_keys=True).items()
        ),
        f"CASE WHEN timestamp_ms IS NULL THEN headers "
        f"ELSE concat(coalesce(headers, {_NO_HEADERS}), {header}) END AS headers",
    )


def _native(serdes: Serdes, *, exact_keys: bool) -> dict[str, NativeColumn]:
    key, value = serdes.columns()
    return {
        "key": native_column(key.serde, exact=exact_keys),
        "value": native_column(value.serde),
    }


def sink_options(config: StreamsConfig, topic: str) -> dict[str, str]:
    """What the connector's sink is told.

    Raises:
        ConfigError: the settings cannot be told to a client of Java's.
    """
    settings = config.client_settings("producer")
    known: dict[str, str] = {
        name: str(settings[name]) for name in _OF_PRODUCERS if name in settings
    }
    options = {"bootstrap.servers": config.bootstrap_servers}
    options |= known
    options |= java_client_options(settings)
    return {"topic": topic, **{f"kafka.{name}": value for name, value in options.items()}}


def real_time_trigger(writer: DataStreamWriter, interval: str) -> DataStreamWriter:
    """A query's trigger.

    Args:
        writer: of the query.
        interval: how long a batch is, as Spark takes it.

    Raises:
        DataFrameError: this Spark has none for Python.
    """
    # The type stubs of Spark 4.2 do not know it.
    trigger: Any = writer.trigger
    if "realTime" not in signature(trigger).parameters:
        raise DataFrameError(
            "This PySpark has no real-time mode. Install pyspark 4.2, or give "
            "Trigger.processing_time(...)."
        )
    triggered: DataStreamWriter = trigger(realTime=interval)
    return triggered


def claimed_slots(session: SparkSession, needed: int, name: str, declared_at: str) -> SlotClaim:
    """See that all tasks of a query can run at once: of one that waits nothing would be read.

    Args:
        session: where it is to run.
        needed: how many tasks it has.
        name: the stage's.
        declared_at: file and line of the user's program.

    Returns:
        What keeps the slots for it, to be released where the query has ended.

    Raises:
        DataFrameError: there are too few.
    """
    until = time.monotonic() + _PATIENCE_S
    while True:
        slots = claim_slots(session, needed)
        if isinstance(slots, SlotClaim):
            return slots
        if time.monotonic() > until:
            break
        time.sleep(_LOOK_S)
    raise DataFrameError(
        f"The DataFrame function {name!r} has Trigger.real_time(), which needs {needed} free task "
        f"slots of the Spark session, one for each partition that it reads, all the time; "
        f"{slots.free} are free. Give KafkaStreams a session with {needed - slots.free} more, run "
        "fewer stream threads, or give Trigger.processing_time(...).",
        declared_at=declared_at or None,
    )


def refusal(account: str) -> str | None:
    """Of Spark's account of an error: which part of a plan real-time mode does not take, and what
    to do; None if it says nothing of the kind."""
    found = _REFUSED.search(account)
    if found is None:
        return None
    names = sorted({each.rpartition(".")[2] for each in found[1].split(", ")})
    return (
        f"Spark's real-time mode does not take what its plan has: {', '.join(names)}. It takes "
        "filters, columns made by Spark's own functions, explode, and joins with tables that are "
        "small enough to broadcast; no Python function, shuffle, aggregation or other state. "
        "Change the function, or give Trigger.processing_time(...)."
    )
