"""One run of a stage's Structured Streaming query."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.kafka_writer import (
    SENT_SCHEMA,
    AtLeastOnceWriter,
    ExactlyOnceWriter,
    QueryBatch,
    output_topic,
)
from millstream.dataframes.real_time import (
    encode_natively,
    real_time_trigger,
    sink_options,
    unsupported_operators,
)
from millstream.dataframes.row_conversion import WIRE_SCHEMA, RowEncoder, map_in_arrow
from millstream.dataframes.stage_plan import StagePlan
from millstream.dataframes.topic_frames import (
    apply_function,
    output_mode,
    read_stage,
    select_records,
)
from millstream.errors import StreamsError, text_of
from millstream.record import TopicPartition
from millstream.spark.jobs import short_reason
from millstream.spark.sessions.local_session import has_jvm
from millstream.topology.options.trigger import Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S: Final = 0.02
#: The errors of Kafka clients, in a worker or in the JVM, if no broker responds.
_UNAVAILABLE_ERRORS: Final = (
    "millstream.errors.BrokerUnavailableError",
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
)


class QueryCheckpoint:
    """The checkpoint folder of a Structured Streaming query.

    The folder may be in any file system that Spark supports, so it is accessed through Hadoop.
    """

    def __init__(self, session: SparkSession, location: str) -> None:
        self.location = location
        jvm: Any = session.sparkContext._jvm
        context: Any = session.sparkContext._jsc
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(location)
        self._files = self._path.getFileSystem(context.hadoopConfiguration())

    @property
    def query_id(self) -> str | None:
        """The ID of the checkpoint's query; None if the checkpoint does not exist yet."""
        path = self._jvm.org.apache.hadoop.fs.Path(self._path, "metadata")
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
        return str(json.loads(text)["id"])

    def archive(self, query_id: str) -> str:
        """Rename the checkpoint, so that the query starts without one.

        Returns the new name.
        """
        other = f"{self.location.rstrip('/')}.{query_id}"
        target = self._jvm.org.apache.hadoop.fs.Path(other)
        self._files.delete(target, True)
        self._files.rename(self._path, target)
        return other


class _StopRequestedError(Exception):
    """The query is stopping, so a new batch must not start."""


class _BatchFailedError(Exception):
    """A batch was not written. The cause is stored separately."""


@dataclass(eq=False, repr=False)
class StageQuery:
    """Runs a stage's query until it is stopped or fails.

    The session has the Kafka connector.
    """

    session: SparkSession
    plan: StagePlan
    config: StreamsConfig
    #: The number of partitions of the output topic; 0 if the stage has a sink.
    partitions: int
    #: The offsets at which to continue after earlier queries of the stage, by partition of the
    #: input topic, and the ID of the query that committed them. If the checkpoint belongs to a
    #: different query, the query does not continue from it.
    finished: InitVar[tuple[Mapping[int, int], str | None]]

    def __post_init__(self, finished: tuple[Mapping[int, int], str | None]) -> None:
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._checkpoint = QueryCheckpoint(self.session, self.plan.checkpoint)
        self._has_query = threading.Event()
        try:
            # This must be the last step: a later failure would leave a running query that cannot be
            # stopped.
            self._query = self._start(*finished)
        finally:
            self._has_query.set()

    @property
    def id(self) -> str:
        """The ID of the query, which is stored in the checkpoint."""
        return str(self._query.id)

    @property
    def run_id(self) -> str:
        """The ID of this run, which is also the group of its Spark jobs."""
        return str(self._query.runId)

    def _start(self, offsets: Mapping[int, int], committed_by: str | None) -> StreamingQuery:
        plan, session = self.plan, self.session
        query_id = self._checkpoint.query_id
        if query_id is not None and committed_by is not None and query_id != committed_by:
            # Another driver, with another checkpoint, has run the stage since.
            archived = self._checkpoint.archive(query_id)
            logger.warning(
                "DataFrame function %s: another query with a different checkpoint has run in the "
                "meantime, and the state of its windows and keys is not available here. The older "
                "checkpoint has been renamed to %s. Configure the same dataframe_checkpoint_dir "
                "for all drivers.",
                plan.name,
                archived,
            )
        starting = json.dumps({plan.input_topic: offsets}) if offsets else "earliest"
        frame = apply_function(read_stage(session, plan, self.config, starting), plan)
        records = frame if plan.sink is not None else select_records(frame, plan)
        is_real_time = plan.trigger.is_real_time
        if is_real_time and plan.writes is not None:
            records = encode_natively(records, plan.writes)
        mode = "update" if is_real_time else output_mode(records)
        writer = records.writeStream.queryName(plan.query_name).outputMode(mode)
        writer = writer.option("checkpointLocation", plan.checkpoint)
        writer = _set_trigger(writer, plan.trigger)
        if plan.sink is not None:
            return plan.sink.start(records, writer)
        if is_real_time and plan.output_topic is not None:
            options = sink_options(self.config, plan.output_topic)
            return writer.format("kafka").options(**options).start()
        return writer.foreachBatch(self._write).start()

    @property
    def is_active(self) -> bool:
        return self._query.isActive

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """Spark's progress report of the latest finished batch.

        None before the first batch has finished.
        """
        last = self._query.lastProgress
        return None if last is None else json.loads(last.json)

    @property
    def _last_batch(self) -> int:
        last = self._query.lastProgress
        return -1 if last is None else int(last.batchId)

    def failure(self) -> StreamsError | None:
        """Return the error of a query that has ended; None if it was expected to end."""
        error = self._query.exception()
        if self._stopping.is_set() or (error is None and self.plan.trigger.kind == "available_now"):
            return None
        if error is None:
            return self.plan.error(
                f"The query of the DataFrame function {self.plan.name!r} was stopped by other "
                "code in the Spark session. Pause or close the application instead."
            )
        # The exception from writing a batch is more specific than Spark's error.
        cause = self._error or error
        reason = unsupported_operators(text_of(cause)) or short_reason(cause)
        failure = self.plan.error(
            f"The query of the DataFrame function {self.plan.name!r} failed: {reason}"
        )
        failure.__cause__ = self._error
        failure.retriable = any(name in str(cause) for name in _UNAVAILABLE_ERRORS)
        return failure

    def stop(self, timeout_s: float) -> bool:
        """Wait for the current batch and stop the query.

        Returns whether the batch finished. An interrupted batch is repeated at the next start. If
        this method raises an error, it may be called again.
        """
        self._stopping.set()
        if not has_jvm(self.session.sparkContext):
            # The query has ended with the session.
            return False
        until = time.monotonic() + timeout_s
        try:
            self._await_end_of_batch(until)
        finally:
            in_time = time.monotonic() < until
            self._query.stop()
        return in_time

    def _await_end_of_batch(self, until: float) -> None:
        number = self._last_batch
        while self._query.isActive and time.monotonic() < until:
            if self.plan.trigger.is_real_time:
                # The next batch has started, but has processed only a few records, if any.
                if self._last_batch != number:
                    break
            # If another batch starts now, `_write` ends the query.
            elif not self._query.status["isTriggerActive"]:
                break
            time.sleep(_POLL_INTERVAL_S)

    def _write(self, frame: DataFrame, number: int) -> None:
        """Write one batch. Called by Spark."""
        if self._stopping.is_set():
            raise _StopRequestedError
        try:
            self._write_batch(frame, number)
        except Exception as error:
            self._error = error
            # Omit the traceback: Spark applies a regular expression to the whole text to detect an
            # interruption. With a long traceback, this overflows the stack, and the query hangs.
            raise _BatchFailedError(f"batch {number} failed") from None

    def _write_batch(self, frame: DataFrame, number: int) -> None:
        writes = self.plan.writes
        assert writes is not None
        encode = RowEncoder(writes, self.partitions)
        target = output_topic(writes.topic, self.config, f"{self.plan.query_name}-producer")
        if not self.config.exactly_once:
            map_in_arrow(frame, AtLeastOnceWriter(encode, target).run, SENT_SCHEMA).collect()
            return
        # Spark may start the first batch before it returns the query.
        self._has_query.wait()
        batch = QueryBatch(number, self.id, self.plan.batch_group, self.plan.query_name)
        rows = map_in_arrow(frame, encode.run, WIRE_SCHEMA)
        rows = rows.repartitionById(self.partitions, "partition")
        rows = rows.sortWithinPartitions("partition", "task", "row")
        send = ExactlyOnceWriter(target, batch)
        map_in_arrow(rows, send.run, SENT_SCHEMA).collect()


def finished_offsets(progress: Mapping[str, Any], topic: str) -> dict[TopicPartition, int]:
    """Return the offsets below which all records of a topic have been processed."""
    ends: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        end_offset = source.get("endOffset")
        offsets = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
        for number, end in (offsets or {}).get(topic, {}).items():
            ends[TopicPartition(topic, int(number))] = end
    return ends


def _set_trigger(writer: DataStreamWriter, trigger: Trigger) -> DataStreamWriter:
    interval = f"{trigger.interval_ms} milliseconds"
    if trigger.kind == "available_now":
        return writer.trigger(availableNow=True)
    if trigger.is_real_time:
        return real_time_trigger(writer, interval)
    return writer.trigger(processingTime=interval)
