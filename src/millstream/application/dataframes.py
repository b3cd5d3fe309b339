"""The DataFrame functions of one application instance, which live as long as its threads do."""

from __future__ import annotations

import logging
import queue
from typing import TYPE_CHECKING, Final

from millstream.application.judge import Judge
from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.metrics.values import Metric
from millstream.structured.keeper import StageKeeper
from millstream.structured.lake.sink import connectors_of
from millstream.structured.plan import stage_plan
from millstream.structured.progress import DATAFRAME_GROUP, StageStatus
from millstream.topology.options.lake import LakeTable
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

_MOST_PATIENCE_S: Final = 10.0


class DataFrameStages:
    """Starts, pauses and stops them with the application.

    Args:
        topology: has the stages.
        config: settings.
        judge: decides about an error of a stage, by asking the user's handler.

    Raises:
        ConfigError: a stage is to be in real time, and cannot.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, judge: Judge) -> None:
        self._stages = list(topology.dataframe_stages.values())
        self._config = config
        for stage in self._stages:
            if stage.trigger.is_real_time:
                stage_plan(stage, config)
        self._judge = judge
        self._failures: queue.SimpleQueue[StreamsError] = queue.SimpleQueue()
        self._keepers: list[StageKeeper] = []
        self._paused = False

    @property
    def connectors(self) -> list[str]:
        """What a session has to be started with for them: of tables of the lake, their formats."""
        tables = (stage.sink for stage in self._stages if isinstance(stage.sink, LakeTable))
        return connectors_of(tables)

    def start(self, session: SparkSession) -> None:
        """Look after the stages from now on.

        Raises:
            ConfigError: a serde is missing.
        """
        plans = [stage_plan(stage, self._config) for stage in self._stages]
        for plan in plans:
            keeper = StageKeeper(plan, self._config, session, self._failures.put)
            keeper.pause(self._paused)
            self._keepers.append(keeper)
            keeper.start()

    def pause(self, paused: bool) -> None:
        """Stop the queries, or let them go on."""
        self._paused = paused
        for keeper in self._keepers:
            keeper.pause(paused)

    def look(self) -> None:
        """Called a few times a second: let the judge decide about what has failed."""
        while not self._failures.empty():
            self._judge.listener_failed(self._failures.get())

    def close(self, timeout_ms: int) -> None:
        """Stop all queries, each at the end of its batch if that comes soon."""
        patience_s = min(timeout_ms / 2_000, _MOST_PATIENCE_S)
        for keeper in self._keepers:
            keeper.begin_to_close(patience_s)
        for keeper in self._keepers:
            if not keeper.await_closed(patience_s + _MOST_PATIENCE_S):
                logger.warning(
                    "The query of the DataFrame function %s is still being stopped, and runs in "
                    "the Spark session until then",
                    keeper.meters.status.name,
                )

    @property
    def statuses(self) -> list[StageStatus]:
        """How each stage is; empty before the start."""
        return [keeper.meters.status for keeper in self._keepers]

    def metrics(self) -> list[Metric]:
        """The numbers of all stages."""
        return [metric for status in self.statuses for metric in _metrics_of(status)]


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
