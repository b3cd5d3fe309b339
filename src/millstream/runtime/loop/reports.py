"""Sends the reports of a stream thread to the driver, and logs summaries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from millstream.clock import Clock
from millstream.metrics.metric_frames import FrameWriter
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.task_management.task_manager import TaskManager
from millstream.runtime.thread_control import Control, TasksChanged, ThreadMetrics

logger = logging.getLogger(__name__)

#: Metrics reports may take the thread's time divided by this number, so threads with thousands of
#: metrics report less often.
_REPORT_TIME_DIVISOR: Final = 200


class ThreadReporter:
    """Reports metrics at intervals, and tasks when they change."""

    def __init__(
        self,
        settings: ThreadSettings,
        control: Control,
        clock: Clock,
        meters: ThreadMeters,
        refresh: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._control = control
        self._clock = clock
        self._meters = meters
        self._refresh = refresh
        self._frames = FrameWriter(meters.scope)
        self._next_ms = 0
        self._last_summary_ms = 0
        self._summarized_total = 0
        self._reported_changes = 0

    def begin(self) -> None:
        self._last_summary_ms = self._clock.monotonic_ms()
        self._next_ms = self._last_summary_ms + self._settings.report_interval_ms

    def report_if_due(self, tasks: TaskManager, processed: int, commits: int) -> None:
        """Send due reports and log due summaries; report the tasks if they have changed."""
        if tasks.changes != self._reported_changes:
            self.report_tasks(tasks)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._refresh()
            self._control.report(ThreadMetrics(self._frames.next()))
            took_ms = self._clock.monotonic_ms() - now_ms
            self._next_ms = now_ms + max(
                self._settings.report_interval_ms, took_ms * _REPORT_TIME_DIVISOR
            )
        interval_ms = self._settings.summary_interval_ms
        if 0 < interval_ms <= now_ms - self._last_summary_ms:
            self._last_summary_ms = now_ms
            logger.info(
                "processed %d records and committed %d times in total; %d records since the last "
                "summary; tasks: %s",
                processed,
                commits,
                processed - self._summarized_total,
                [str(task.task_id) for task in tasks.all],
            )
            self._summarized_total = processed

    def all_metrics(self) -> ThreadMetrics:
        self._refresh()
        return ThreadMetrics(FrameWriter(self._meters.scope).full())

    def report_tasks(self, tasks: TaskManager) -> None:
        self._reported_changes = tasks.changes
        self._meters.set_tasks(tasks.all)
        states = {task.task_id: task.state for task in tasks.all}
        self._control.report(TasksChanged(states, tasks.standby))
