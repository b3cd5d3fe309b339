"""One run of a stage's query in Structured Streaming, from its start to its end."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from millstream.config import StreamsConfig
from millstream.config_checks import transaction_timeout_ms
from millstream.errors import DataFrameError, StreamsError, text_of
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition
from millstream.spark.sessions.local_session import has_jvm
from millstream.structured.account import reason_told
from millstream.structured.arrow_map import map_in_arrow
from millstream.structured.checkpoints import Checkpoint
from millstream.structured.frames import as_records, output_mode, read_stage, transformed
from millstream.structured.plan import StagePlan
from millstream.structured.real_time import (
    encoded_natively,
    real_time_trigger,
    refusal,
    sink_options,
)
from millstream.structured.rows import WIRE_SCHEMA, Encode
from millstream.structured.sending import SENT_SCHEMA, Batch, Send, SendOnce, Target
from millstream.topology.options.trigger import Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

logger = logging.getLogger(__name__)

#: A batch may take longer than the transactions of stream threads, which commit all the time.
_LEAST_TRANSACTION_MS: Final = 60_000
_LEAST_TIMEOUT_MS: Final = 60_000
_LOOK_S: Final = 0.02
#: What Kafka's clients raise, in a worker or in the JVM, when no broker answers.
_NO_ANSWER: Final = (
    "millstream.errors.BrokerUnavailableError",
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
)


class _StopAskedError(Exception):
    """The query is to stop, and no batch is to begin any more."""


class _BatchFailedError(Exception):
    """A batch was not written; why is kept apart."""


class StageQuery:
    """Runs a stage, until it is stopped or fails.

    Args:
        session: where it runs; has the Kafka connector.
        plan: of the stage.
        config: settings of the application.
        partitions: how many the output topic has; 0 if there is a sink.
        finished: how far earlier queries of the stage are, by partition of the input topic, and the
            id of the one that said so; a checkpoint of another one is not followed on.
    """

    def __init__(
        self,
        session: SparkSession,
        plan: StagePlan,
        config: StreamsConfig,
        partitions: int,
        finished: tuple[Mapping[int, int], str | None],
    ) -> None:
        self._session = session
        self._plan = plan
        self._config = config
        self._partitions = partitions
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._checkpoint = Checkpoint(session, plan.checkpoint)
        self._is_known = threading.Event()
        try:
            # Last: if anything failed behind it, the query would run and nothing could stop it.
            self._query = self._start(*finished)
        finally:
            self._is_known.set()

    @property
    def id(self) -> str:
        """The id of the query, which Spark keeps in the checkpoint."""
        return str(self._query.id)

    @property
    def run_id(self) -> str:
        """The id of this run, which is also the group of its Spark jobs."""
        return str(self._query.runId)

    def _start(self, offsets: Mapping[int, int], noted_by: str | None) -> StreamingQuery:
        plan, session = self._plan, self._session
        known = self._checkpoint.query_id
        if known is not None and noted_by is not None and known != noted_by:
            # Another driver with another checkpoint was the last to run the stage.
            aside = self._checkpoint.put_aside(known)
            logger.warning(
                "DataFrame function %s: another query has gone on from here, which kept its notes "
                "elsewhere; what it remembered by windows and keys is not known here. The older "
                "checkpoint is kept as %s. Give all drivers one dataframe_checkpoint_dir.",
                plan.name,
                aside,
            )
        starting = json.dumps({plan.input_topic: offsets}) if offsets else "earliest"
        frame = transformed(read_stage(session, plan, self._config, starting), plan)
        records = frame if plan.sink is not None else as_records(frame, plan)
        is_real_time = plan.trigger.is_real_time
        if is_real_time and plan.writes is not None:
            records = encoded_natively(records, plan.writes)
        mode = "update" if is_real_time else output_mode(records)
        writer = (
            records.writeStream.queryName(plan.query_name)
            .option("checkpointLocation", plan.checkpoint)
            .outputMode(mode)
        )
        writer = _triggered(writer, plan.trigger)
        if plan.sink is not None:
            return plan.sink.start(records, writer)
        if is_real_time and plan.output_topic is not None:
            options = sink_options(self._config, plan.output_topic)
            return writer.format("kafka").options(**options).start()
        return writer.foreachBatch(self._write).start()

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self._query.isActive

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """What Spark says of the last batch that ended, or None before there was one."""
        last = self._query.lastProgress
        return None if last is None else json.loads(last.json)

    @property
    def _last_batch(self) -> int:
        last = self._query.lastProgress
        return -1 if last is None else int(last.batchId)

    def failure(self) -> StreamsError | None:
        """Of a query that has ended: why; None if it was to end."""
        error = self._query.exception()
        if self._stopping.is_set() or (
            error is None and self._plan.trigger.kind == "available_now"
        ):
            return None
        if error is None:
            return DataFrameError(
                f"The query of the DataFrame function {self._plan.name!r} was stopped by somebody "
                "else in the Spark session. Pause or close the application instead.",
                declared_at=self._plan.declared_at or None,
            )
        # What the writing of a batch raised tells more than what Spark makes of it.
        cause = self._error or error
        told = refusal(text_of(cause)) or reason_told(cause)
        failure = DataFrameError(
            f"The query of the DataFrame function {self._plan.name!r} failed: {told}",
            declared_at=self._plan.declared_at or None,
        )
        failure.__cause__ = self._error
        failure.retriable = any(name in str(cause) for name in _NO_ANSWER)
        return failure

    def stop(self, patience_s: float) -> bool:
        """Let the batch under way come to its end, then stop; whether it came there in time.

        What is given up in its midst is done again at the next start. May be called again if it
        has raised an error.
        """
        self._stopping.set()
        if not has_jvm(self._session.sparkContext):
            # The query has ended with the session.
            return False
        until = time.monotonic() + patience_s
        try:
            self._await_end_of_batch(until)
        finally:
            in_time = time.monotonic() < until
            self._query.stop()
        return in_time

    def _await_end_of_batch(self, until: float) -> None:
        number = self._last_batch
        while self._query.isActive and time.monotonic() < until:
            if self._plan.trigger.is_real_time:
                # The next batch has begun, and has had few records at most.
                if self._last_batch != number:
                    break
            # A batch that begins from now on ends the query (`_write`).
            elif not self._query.status["isTriggerActive"]:
                break
            time.sleep(_LOOK_S)

    def _write(self, frame: DataFrame, number: int) -> None:
        """Write one batch; called by Spark."""
        if self._stopping.is_set():
            raise _StopAskedError
        try:
            self._write_batch(frame, number)
        except Exception as error:
            self._error = error
            # Spark looks through the whole text for an interruption, with an expression that
            # overflows the stack where traces are long, and the query then hangs.
            raise _BatchFailedError(f"batch {number} failed") from None

    def _write_batch(self, frame: DataFrame, number: int) -> None:
        writes = self._plan.writes
        assert writes is not None
        encode = Encode(writes, self._partitions)
        if not self._config.exactly_once:
            target = self._target("producer")
            map_in_arrow(frame, Send(encode, target).run, SENT_SCHEMA).collect()
            return
        # Spark may begin the first batch before it returns the query.
        self._is_known.wait()
        batch = Batch(number, self.id, self._plan.marks, self._plan.query_name)
        rows = map_in_arrow(frame, encode.run, WIRE_SCHEMA)
        rows = rows.repartitionById(self._partitions, "partition")
        rows = rows.sortWithinPartitions("partition", "task", "row")
        send = SendOnce(self._target("producer"), batch)
        map_in_arrow(rows, send.run, SENT_SCHEMA).collect()

    def _target(self, role: str) -> Target:
        writes, config = self._plan.writes, self._config
        assert writes is not None
        settings = librdkafka_settings(config, "producer", f"{self._plan.query_name}-{role}")
        if config.exactly_once:
            settings["transaction.timeout.ms"] = max(
                transaction_timeout_ms(config), _LEAST_TRANSACTION_MS
            )
        timeout_ms = max(_LEAST_TIMEOUT_MS, config.task_timeout_ms)
        return Target(writes.topic, settings, timeout_ms, config.speedups)


def finished_by(progress: Mapping[str, Any], topic: str) -> dict[TopicPartition, int]:
    """The offsets before which all records of a topic are done with."""
    ends: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        told = source.get("endOffset")
        offsets = json.loads(told) if isinstance(told, str) else told
        for name, places in (offsets or {}).items():
            if name == topic:
                ends |= {TopicPartition(topic, int(number)): end for number, end in places.items()}
    return ends


def _triggered(writer: DataStreamWriter, trigger: Trigger) -> DataStreamWriter:
    interval = f"{trigger.interval_ms} milliseconds"
    if trigger.kind == "available_now":
        return writer.trigger(availableNow=True)
    if trigger.is_real_time:
        return real_time_trigger(writer, interval)
    return writer.trigger(processingTime=interval)
