"""The state and progress of a stage's query, for metrics and the console."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

StageState = Literal["waiting", "running", "standby", "paused", "failed", "ended", "closed"]

DATAFRAME_GROUP: Final = "stream-dataframe-metrics"


class StageStatus(msgspec.Struct, frozen=True):
    """The state and progress of a stage.

    The states are `running`; `waiting` for the stage's topics or the election; `standby` while
    another driver runs the stage; `paused`; `failed` until the restart; `ended` after processing
    all available records; and `closed`.
    """

    name: str
    state: StageState = "waiting"
    #: The number of the latest finished batch; -1 before the first one.
    batch: int = -1
    #: The number of records that this driver has read.
    rows: int = 0
    #: Records per second in the latest batch with records, and the duration of that batch.
    rows_per_s: float = 0.0
    batch_ms: int = 0
    #: The number of unprocessed records in the input partition that has the most of them.
    lag: int = 0
    restarts: int = 0


class StageTracker:
    """Tracks the status of a stage.

    One thread updates the status; any thread may read it.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self.status = StageStatus(name)

    def set_state(self, state: StageState) -> None:
        self._set(state=state)

    def count_restart(self) -> None:
        self._set(restarts=self.status.restarts + 1)

    def update(self, progress: Mapping[str, Any]) -> None:
        number, rows = int(progress["batchId"]), int(progress["numInputRows"])
        status = self.status
        if number == status.batch:
            return
        lag = sum(
            int(source.get("metrics", {}).get("maxOffsetsBehindLatest") or 0)
            for source in progress["sources"]
        )
        changed: dict[str, Any] = {"batch": number, "rows": status.rows + rows, "lag": lag}
        if rows:
            changed["rows_per_s"] = float(progress.get("processedRowsPerSecond") or 0.0)
            changed["batch_ms"] = int(progress.get("durationMs", {}).get("triggerExecution", 0))
        self._set(**changed)

    def _set(self, **changed: Any) -> None:
        with self._lock:
            self.status = msgspec.structs.replace(self.status, **changed)
