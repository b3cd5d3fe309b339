"""What a stream thread tells of its work: to the driver, and now and then to its log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from millstream.assignment.task_assignment import TaskAssignment
from millstream.clock import Clock
from millstream.metrics.frames import FrameWriter
from millstream.runtime.control import Control, HostsChanged, TasksChanged, ThreadMetrics
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.ownership.tasks import Tasks

logger = logging.getLogger(__name__)

#: Telling numbers may take one part in so many of the thread's time: with thousands of them it is
#: done less often.
_PART_OF_TIME: Final = 200


class Reports:
    """Tells numbers each time that an interval has passed, and tasks when they change.

    Args:
        settings: the intervals.
        control: the connection to the driver.
        clock: time.
        meters: measure the thread.
        refresh: lets them take in what is not told to them all the time.
        totals: the records processed, the commits made, and the ids of the tasks.
    """

    def __init__(
        self,
        settings: ThreadSettings,
        control: Control,
        clock: Clock,
        meters: ThreadMeters,
        refresh: Callable[[], None],
        totals: Callable[[], tuple[int, int, list[str]]],
    ) -> None:
        self._settings = settings
        self._control = control
        self._clock = clock
        self._meters = meters
        self._refresh = refresh
        self._totals = totals
        self._frames = FrameWriter(meters.scope)
        self._next_ms = 0
        self._last_summary_ms = 0
        self._summarized_total = 0
        self._told_changes = 0

    def begin(self) -> None:
        """The intervals begin now."""
        self._last_summary_ms = self._clock.monotonic_ms()
        self._next_ms = self._last_summary_ms + self._settings.report_interval_ms

    def tell_if_due(self, tasks: Tasks) -> None:
        """Tell what is due to be told, and of tasks that got further since they were told of."""
        if tasks.changes != self._told_changes:
            self.tell_tasks(tasks)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._refresh()
            self._control.report(ThreadMetrics(self._frames.next()))
            took_ms = self._clock.monotonic_ms() - now_ms
            self._next_ms = now_ms + max(self._settings.report_interval_ms, took_ms * _PART_OF_TIME)
        interval_ms = self._settings.summary_interval_ms
        if 0 < interval_ms <= now_ms - self._last_summary_ms:
            self._last_summary_ms = now_ms
            self._summarize()

    def all_metrics(self) -> ThreadMetrics:
        """All numbers of now."""
        self._refresh()
        return ThreadMetrics(FrameWriter(self._meters.scope).whole())

    def _summarize(self) -> None:
        processed, commits, tasks = self._totals()
        count = processed - self._summarized_total
        self._summarized_total = processed
        logger.info(
            "processed %d records and committed %d times in all; %d records since the last "
            "summary; tasks: %s",
            processed,
            commits,
            count,
            tasks,
        )

    def tell_hosts(self, assignment: TaskAssignment) -> None:
        """Tell the driver which instance has what."""
        hosts = HostsChanged(assignment.partitions_by_host, assignment.standby_partitions_by_host)
        self._control.report(hosts)

    def tell_tasks(self, tasks: Tasks) -> None:
        """Tell the driver which tasks there are, and their states."""
        self._told_changes = tasks.changes
        self._meters.tasks_are(tasks.all)
        states = {task.task_id: task.state for task in tasks.all}
        self._control.report(TasksChanged(states, tasks.standby))
