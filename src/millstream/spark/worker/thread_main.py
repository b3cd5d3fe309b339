"""The code of a stream thread, which the driver ships to a Spark worker."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from millstream.clock import SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.settings.librdkafka_settings import client_setting
from millstream.runtime.build_thread import build_thread
from millstream.runtime.client_process import ThreadIdentity
from millstream.runtime.loop.watchdog import Watchdog
from millstream.runtime.task_management.restore_reports import RestoreReportOptions
from millstream.runtime.thread_control import ThreadOutcome
from millstream.spark.connection.control_client import ControlChannel
from millstream.spark.connection.messages import Hello, ThreadExit
from millstream.spark.worker.process_setup import infrequent_gc
from millstream.spark.worker.worker_logging import LogFilters
from millstream.topology.physical.topology import Topology

#: How long a thread may hold Python's global interpreter lock while another thread waits for it.
_SWITCH_INTERVAL_S: Final = 0.0005


@dataclass(frozen=True)
class StreamThreadMain:
    """Builds a stream thread in the worker and runs it. Pickled in the driver."""

    topology: Topology
    config: StreamsConfig
    #: Identifies the application instance; its threads on one host share a state directory.
    driver_id: uuid.UUID
    thread_name: str
    thread_index: int
    restore_options: RestoreReportOptions
    log_filters: LogFilters = field(default_factory=LogFilters.capture)

    def __call__(self, channel: ControlChannel, attempt: Hello) -> ThreadExit:
        identity = ThreadIdentity(self.thread_name, self.thread_index, self.driver_id)
        with infrequent_gc(), _short_switch_interval(), self.log_filters.install():
            thread = build_thread(
                self.topology, self.config, identity, channel, self.restore_options
            )
            limit_ms = int(client_setting(self.config, "main_consumer", "max.poll.interval.ms"))
            with Watchdog(
                self.thread_name,
                lambda: thread.rounds,
                limit_ms,
                channel.report,
                SystemClock(),
                thread.check_batch_time,
                thread.check_interval_ms,
                lambda: thread.overdue_ms,
            ):
                outcome = thread.run()
        return thread_exit(outcome, channel.lost_reason or channel.stop_signal)


def thread_exit(outcome: ThreadOutcome, stopped_by: str | None) -> ThreadExit:
    """Convert a thread's outcome to the `ThreadExit` for the driver.

    A thread that the user did not close is restarted elsewhere, even if the thread failed to close:
    the unfinished work is repeated, and the failure does not indicate a problem in the user's code
    or the cluster. `stopped_by` is the reason, or None if the driver closed the thread.
    """
    history = tuple(outcome.history)
    if outcome.error is not None:
        return ThreadExit("error", outcome.error, history)
    if stopped_by is not None:
        failed = outcome.close_error
        reason = stopped_by if failed is None else f"{stopped_by}; while closing: {failed}"
        return ThreadExit("lost", failed, history, reason)
    if outcome.close_error is not None:
        return ThreadExit("error", outcome.close_error, history)
    return ThreadExit("closed", None, history, has_drained=outcome.has_drained)


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    """Hand the global interpreter lock to waiting threads after half a millisecond.

    The threads that transport interactive queries and their results need the lock a few hundred
    times per second, and by default wait 5 ms each time while the loop computes. At 1,000 queries
    per second to a busy thread, this setting reduced the median latency from 47 ms to 11 ms.
    Without queries, it costs nothing.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
