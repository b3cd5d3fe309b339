"""The DataFrame functions and lake histories of one application instance."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.application.failure_policy import FailurePolicy
from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.lake.history_writer import HistoryWriter
from millstream.dataframes.progress import DATAFRAME_GROUP, StageStatus
from millstream.dataframes.stage_plan import connectors_of, stage_plan
from millstream.dataframes.stage_supervisor import StageSupervisor
from millstream.errors import ConfigError, StreamsError
from millstream.metrics.values import Metric
from millstream.operators.arrow import import_pyarrow
from millstream.topology.options.lake import LakeTable
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

_MAX_CLOSE_TIMEOUT_S: Final = 10.0
_ISOLATION: Final = "isolation.level"


class DataFrameStages:
    """Starts, pauses and stops the DataFrame stages with the application.

    Raises:
        ConfigError: a stage does not support its real-time trigger.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, failure_policy: FailurePolicy
    ) -> None:
        self._stages = list(topology.dataframe_stages.values())
        self._config = config
        for stage in self._stages:
            if stage.trigger.is_real_time:
                stage_plan(stage, config)
        self._failure_policy = failure_policy
        self._failures: queue.SimpleQueue[StreamsError] = queue.SimpleQueue()
        self._supervisors: list[StageSupervisor] = []
        self._paused = False

    @property
    def connectors(self) -> list[str]:
        tables = (stage.sink for stage in self._stages if isinstance(stage.sink, LakeTable))
        return connectors_of(tables)

    def start(self, session: SparkSession) -> None:
        """Start supervising the stages.

        Raises:
            ConfigError: a serde is missing.
            ImportError: pyarrow is not installed. The workers have the same packages, or their
                threads fail with an `EnvironmentMismatchError`.
        """
        if self._stages:
            import_pyarrow("Running DataFrame functions")
        plans = [stage_plan(stage, self._config) for stage in self._stages]
        for plan in plans:
            supervisor = StageSupervisor(plan, self._config, session, self._failures.put)
            supervisor.pause(self._paused)
            self._supervisors.append(supervisor)
            supervisor.start()

    def pause(self, paused: bool) -> None:
        self._paused = paused
        for supervisor in self._supervisors:
            supervisor.pause(paused)

    def tick(self) -> None:
        """Pass the errors of stages to the failure policy. Called several times a second."""
        while not self._failures.empty():
            self._failure_policy.listener_failed(self._failures.get())

    def close(self, timeout_ms: int) -> None:
        """Stop all queries.

        Each query may take up to half of `timeout_ms`, at most 10 s, to finish its current batch.
        """
        timeout_s = min(timeout_ms / 2_000, _MAX_CLOSE_TIMEOUT_S)
        for supervisor in self._supervisors:
            supervisor.request_close(timeout_s)
        for supervisor in self._supervisors:
            if not supervisor.await_closed(timeout_s + _MAX_CLOSE_TIMEOUT_S):
                logger.warning(
                    "The query of the DataFrame function %s has not stopped yet, and may continue "
                    "to run in the Spark session",
                    supervisor.tracker.status.name,
                )

    def metrics(self) -> list[Metric]:
        return [
            metric
            for supervisor in self._supervisors
            for metric in _metrics_of(supervisor.tracker.status)
        ]


def _metrics_of(status: StageStatus) -> list[Metric]:
    labels = {"dataframe-id": status.name}
    values: dict[str, float | str] = {
        "state": status.state,
        "batch-id": status.batch,
        "rows-total": status.rows,
        "rows-rate": status.rows_per_s,
        "batch-duration-ms": status.batch_ms,
        "records-lag": status.lag,
        "restarts-total": status.restarts,
    }
    return [Metric(name, labels, value, DATAFRAME_GROUP) for name, value in values.items()]


class LakeHistories:
    """Writes the histories of a topology to their topics, unless already written."""

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self._histories = list(topology.lake_histories.values())
        self._config = config

    @property
    def connectors(self) -> list[str]:
        return connectors_of(self._histories)

    def write(self, session: SparkSession, is_cancelled: Callable[[], bool]) -> None:
        """Write all incomplete histories, until `is_cancelled` returns True.

        Raises:
            StreamsError: a history cannot be written; see `HistoryWriter.write`.
            ImportError: pyarrow is not installed.
        """
        if self._histories:
            import_pyarrow("Reading lake tables")
        for history in self._histories:
            if not is_cancelled():
                HistoryWriter(history, self._config, session, is_cancelled).write()


def with_read_committed(topology: Topology, config: StreamsConfig) -> StreamsConfig:
    """Return the settings; with histories, the isolation level is `read_committed`.

    A killed writer of a history leaves uncommitted records behind, which must not be read.

    Raises:
        ConfigError: `isolation.level` is set to `read_uncommitted`.
    """
    if not topology.lake_histories or config.exactly_once:
        return config
    if config.client_settings("main_consumer").get(_ISOLATION) == "read_uncommitted":
        raise ConfigError(
            "isolation.level is read_uncommitted, but stream_from_lake() writes its rows in "
            "transactions: rows of an aborted transaction would be read, too. Remove the setting."
        )
    return config.replace(main_consumer={**config.main_consumer, _ISOLATION: "read_committed"})
