"""Runs stages in Spark's real-time mode, without Python functions.

For the restrictions of this mode, see `spark.sql.streaming.realTimeMode.*` and the error conditions
STREAMING_REAL_TIME_MODE of Spark 4.2. The tasks run for a whole batch, so each task needs its own
slot. The only supported sink is the Kafka connector's, which cannot set a record's timestamp, so
the timestamp is sent in a header.
"""

from __future__ import annotations

import re
import time
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.row_conversion import HEADERS_TYPE, StageSerdes
from millstream.dataframes.sql_codecs import NoSqlCodecError, SqlCodec, sql_codec
from millstream.errors import ConfigError, DataFrameError
from millstream.kafka.settings.java_options import java_client_options
from millstream.spark.sessions.free_slots import SlotClaim, claim_slots
from millstream.topology.physical.dataframe_stage import TIME_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Producer settings, other than connection settings, that have the same meaning in Java.
_PRODUCER_SETTINGS: Final = ("acks", "compression.type", "max.request.size", "delivery.timeout.ms")
#: The timeout for claiming slots. The tasks of a query that has ended occupy their slots for a
#: moment.
_SLOT_TIMEOUT_S: Final = 5.0
_POLL_INTERVAL_S: Final = 0.1
_UNSUPPORTED: Final = re.compile(
    r"The operator\(s\): (.+?) (?:is|are) not in the operator allowlist"
)
_NO_HEADERS: Final = f"CAST(array() AS {HEADERS_TYPE})"


def check_real_time(
    name: str, reads: StageSerdes, writes: StageSerdes, config: StreamsConfig, declared_at: str
) -> None:
    """Raise a `ConfigError` if a stage cannot use real-time mode.

    The stage's function is not checked.
    """
    where = declared_at or None
    if config.exactly_once:
        raise ConfigError(
            f"The DataFrame function {name!r} has Trigger.real_time(), but the application uses "
            f"{config.processing_guarantee}: Spark's real-time mode writes at least once, without "
            "transactions. Set processing_guarantee='at_least_once', or use "
            "Trigger.processing_time(...).",
            declared_at=where,
        )
    for serdes, done, is_output in ((reads, "read", False), (writes, "written", True)):
        for what, column in zip(("key", "value"), serdes.columns(), strict=True):
            try:
                sql_codec(column.serde, exact=is_output and what == "key")
            except NoSqlCodecError as error:
                raise ConfigError(
                    f"The DataFrame function {name!r} has Trigger.real_time(), but its {what}s "
                    f"cannot be {done} without Python, which Spark's real-time mode does not "
                    f"support: {error}. Set {'' if is_output else 'input_'}{what}= to a serde that "
                    "Spark supports (STRING, BYTES, LONG and the other numbers, BOOLEAN, UUID; for "
                    "values also json_of(...) of plain fields), or use "
                    "Trigger.processing_time(...).",
                    declared_at=where,
                ) from error


def decode_natively(raw: DataFrame, reads: StageSerdes, others: tuple[str, ...]) -> DataFrame:
    """Decode keys and values of the connector's rows with Spark functions.

    The columns in `others` are kept.
    """
    columns = _sql_codecs(reads, exact_keys=False)
    # Decode in a separate step, because the checks use the decoded value more than once.
    decoded = raw.selectExpr(
        *(f"{column.decode(name)} AS {name}" for name, column in columns.items()),
        *(f"{name} IS NULL AS no_{name}" for name in columns),
        *others,
    )
    return decoded.selectExpr(
        *(
            f"{column.validate(name, f'no_{name}', reads.name, name)} AS {name}"
            for name, column in columns.items()
        ),
        *others,
    )


def encode_natively(records: DataFrame, writes: StageSerdes) -> DataFrame:
    """Encode records for the connector's sink, with the timestamp in a header.

    The records have key, value, timestamp_ms and headers.
    """
    header = (
        f"array(named_struct('key', '{TIME_HEADER}', "
        "'value', unhex(lpad(hex(timestamp_ms), 16, '0'))))"
    )
    return records.selectExpr(
        *(
            f"{column.encode_validated(name, writes.name, name)} AS {name}"
            for name, column in _sql_codecs(writes, exact_keys=True).items()
        ),
        f"CASE WHEN timestamp_ms IS NULL THEN headers "
        f"ELSE concat(coalesce(headers, {_NO_HEADERS}), {header}) END AS headers",
    )


def _sql_codecs(serdes: StageSerdes, *, exact_keys: bool) -> dict[str, SqlCodec]:
    key, value = serdes.columns()
    return {"key": sql_codec(key.serde, exact=exact_keys), "value": sql_codec(value.serde)}


def sink_options(config: StreamsConfig, topic: str) -> dict[str, str]:
    """Return the options of the sink.

    Raises a `ConfigError` if a setting has no counterpart in Java.
    """
    settings = config.client_settings("producer")
    supported: dict[str, str] = {
        name: str(settings[name]) for name in _PRODUCER_SETTINGS if name in settings
    }
    options = {"bootstrap.servers": config.bootstrap_servers}
    options |= supported
    options |= java_client_options(settings)
    return {"topic": topic, **{f"kafka.{name}": value for name, value in options.items()}}


def real_time_trigger(writer: DataStreamWriter, interval: str) -> DataStreamWriter:
    """Set the real-time trigger; `interval` is the length of a batch.

    Raises a `DataFrameError` if PySpark is older than 4.2.
    """
    # The type stubs of Spark 4.2 lack the parameter.
    trigger: Any = writer.trigger
    if "realTime" not in signature(trigger).parameters:
        raise DataFrameError(
            "This version of PySpark has no real-time mode. Install pyspark 4.2, or use "
            "Trigger.processing_time(...)."
        )
    triggered: DataStreamWriter = trigger(realTime=interval)
    return triggered


def claim_stage_slots(session: SparkSession, needed: int, name: str, declared_at: str) -> SlotClaim:
    """Claim slots for all tasks of a query.

    A queued task would not read its partition. The caller must release the claim when the query has
    ended. Raises a `DataFrameError` if there are too few free slots.
    """
    until = time.monotonic() + _SLOT_TIMEOUT_S
    while True:
        slots = claim_slots(session, needed)
        if isinstance(slots, SlotClaim):
            return slots
        if time.monotonic() > until:
            break
        time.sleep(_POLL_INTERVAL_S)
    raise DataFrameError(
        f"The DataFrame function {name!r} has Trigger.real_time(), which permanently needs "
        f"{needed} task slots of the Spark session, one for each input partition, but only "
        f"{slots.free} are free. Give KafkaStreams a session with {needed - slots.free} more "
        "slots, run fewer stream threads, or use Trigger.processing_time(...).",
        declared_at=declared_at or None,
    )


def unsupported_operators(account: str) -> str | None:
    """Describe the operators that real-time mode does not support.

    The description is based on Spark's message. Returns None if the error has another cause.
    """
    found = _UNSUPPORTED.search(account)
    if found is None:
        return None
    names = sorted({each.rpartition(".")[2] for each in found[1].split(", ")})
    return (
        f"Spark's real-time mode does not support these operators of the plan: "
        f"{', '.join(names)}. The mode supports filters, Spark's column functions, explode, and "
        "joins with tables that are small enough to broadcast, but no Python functions, shuffles, "
        "aggregations or other state. Change the function, or use Trigger.processing_time(...)."
    )
