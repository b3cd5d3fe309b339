"""How a stage's query goes on: numbers of its batches, for metrics and whoever looks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

StageState = Literal["waiting", "running", "standby", "paused", "failed", "ended", "closed"]

DATAFRAME_GROUP: Final = "stream-dataframe-metrics"


class StageStatus(msgspec.Struct, frozen=True):
    """How a stage is.

    Args:
        name: of the stage.
        state: `running`; `waiting` for its topics or for who runs it; `standby` while another
            driver runs it; `paused`; `failed` until it is started again; `ended` if it had all that
            was available; `closed`.
        batch: the number of the last batch that ended; -1 before there was one.
        rows: how many records were read since this driver runs it.
        rows_per_s: how many of them a second in the last batch that had any.
        batch_ms: how long that batch took.
        lag: how many records of the input topic wait.
        restarts: how often the query was started again after an error.
    """

    name: str
    state: StageState = "waiting"
    batch: int = -1
    rows: int = 0
    rows_per_s: float = 0.0
    batch_ms: int = 0
    lag: int = 0
    restarts: int = 0


class StageMeters:
    """Follows a stage's query; told by one thread, asked by any.

    Args:
        name: of the stage.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._status = StageStatus(name)

    @property
    def status(self) -> StageStatus:
        """How the stage is."""
        return self._status

    def becomes(self, state: StageState) -> None:
        """The stage is in another state."""
        self._set(state=state)

    def restarts(self) -> None:
        """The query is started again after an error."""
        self._set(restarts=self._status.restarts + 1)

    def take(self, progress: Mapping[str, Any]) -> None:
        """A batch has ended: what Spark says of it."""
        number, rows = int(progress["batchId"]), int(progress["numInputRows"])
        known = self._status
        if number == known.batch:
            return
        lag = sum(
            int(source.get("metrics", {}).get("maxOffsetsBehindLatest") or 0)
            for source in progress["sources"]
        )
        changed: dict[str, Any] = {"batch": number, "rows": known.rows + rows, "lag": lag}
        if rows:
            changed["rows_per_s"] = float(progress.get("processedRowsPerSecond") or 0.0)
            duration = progress.get("durationMs", {}).get("triggerExecution", 0)
            changed["batch_ms"] = int(duration)
        self._set(**changed)

    def _set(self, **changed: Any) -> None:
        with self._lock:
            self._status = msgspec.structs.replace(self._status, **changed)
