"""What a stream thread needs to know of the configuration: intervals and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: How often a thread tells its metrics at most.
_REPORT_MS: Final = 500
#: What one report costs the driver, by which the threads of an application may not take more than
#: a part of one of its processors, however many they are: 500 reports a second from all of them.
_REPORT_OF_ALL_MS: Final = 2


def report_interval_ms(threads: int) -> int:
    """How often a stream thread tells its driver its metrics, where there are so many threads.

    Example:
        >>> report_interval_ms(4), report_interval_ms(1_000)
        (500, 2000)
    """
    return max(_REPORT_MS, _REPORT_OF_ALL_MS * threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    """Intervals and bounds of one stream thread; all times in milliseconds.

    Args:
        name: the thread's name, `<client id>-StreamThread-<index>`.
        poll_ms: how long a poll waits for the first record.
        commit_interval_ms: at least this long between two commits.
        max_poll_records: how many records a poll takes at most.
        max_batch_records: how many records go through a task at once.
        max_task_idle_ms: how long a task waits for an input partition without records.
        linger_ms: how long what is sent may wait for more.
        poll_pause_ms: how long records are processed before the next poll.
        report_interval_ms: how often metrics go to the driver.
        summary_interval_ms: how often a summary is logged; 0 or less for never.
    """

    name: str
    poll_ms: int
    commit_interval_ms: int
    max_poll_records: int
    max_batch_records: int
    max_task_idle_ms: int
    linger_ms: float = 0
    poll_pause_ms: int = 1_000
    report_interval_ms: int = _REPORT_MS
    summary_interval_ms: int = 120_000
