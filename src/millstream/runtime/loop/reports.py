"""What a stream thread tells of its work: to the driver, and now and then to its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from millstream.clock import Clock
from millstream.runtime.control import Control, TasksChanged, ThreadMetrics
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.work import Work

logger = logging.getLogger(__name__)


class Reports:
    """Tells numbers each time that an interval has passed, and tasks when they change.

    Args:
        settings: the intervals.
        control: the connection to the driver.
        clock: time.
        metrics: the numbers of now.
    """

    def __init__(
        self,
        settings: ThreadSettings,
        control: Control,
        clock: Clock,
        metrics: Callable[[], ThreadMetrics],
    ) -> None:
        self._settings = settings
        self._control = control
        self._clock = clock
        self._metrics = metrics
        self._last_ms = 0
        self._last_summary_ms = 0
        self._summarized_total = 0

    def begin(self) -> None:
        """The intervals begin now."""
        self._last_ms = self._last_summary_ms = self._clock.monotonic_ms()

    def tell_if_due(self) -> None:
        """Tell what is due to be told."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_ms >= self._settings.report_interval_ms:
            self._last_ms = now_ms
            self._control.report(self._metrics())
        interval_ms = self._settings.summary_interval_ms
        if 0 < interval_ms <= now_ms - self._last_summary_ms:
            self._last_summary_ms = now_ms
            self._summarize()

    def _summarize(self) -> None:
        now = self._metrics()
        count = now.processed_total - self._summarized_total
        self._summarized_total = now.processed_total
        logger.info(
            "processed %d records and committed %d times in all; %d records since the last "
            "summary; tasks: %s",
            now.processed_total,
            now.commits_total,
            count,
            list(now.tasks),
        )

    def tell_tasks(self, tasks: Iterable[Work]) -> None:
        """Tell the driver which tasks there are, and their states."""
        self._control.report(TasksChanged({task.task_id: task.state for task in tasks}))
