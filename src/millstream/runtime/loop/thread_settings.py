"""The intervals and limits of a stream thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The minimum interval between metrics reports of a thread.
_REPORT_MS: Final = 500
#: The driver's time budget for one report. It limits the threads of an application to 500 reports
#: per second in total, which take a fraction of one of the driver's CPUs.
_REPORT_COST_MS: Final = 2


def report_interval_ms(threads: int) -> int:
    """Return the metrics report interval of each thread, for this number of threads.

    Example:
        >>> report_interval_ms(4), report_interval_ms(1_000)
        (500, 2000)
    """
    return max(_REPORT_MS, _REPORT_COST_MS * threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    """The intervals and limits of one stream thread; all times in milliseconds.

    Args:
        name: `<client id>-StreamThread-<index>`.
        poll_ms: how long a poll waits for the first record.
        max_task_idle_ms: how long a task waits for an input partition without records.
        poll_pause_ms: how long records are processed before the next poll.
        summary_interval_ms: the interval of summaries in the log; 0 or less for none.
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
