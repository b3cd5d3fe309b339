"""The code of a stream thread, as it is shipped to a Spark worker."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.kafka.settings.clients import client_setting
from millstream.runtime.build_thread import build_thread
from millstream.runtime.control import ThreadOutcome
from millstream.runtime.loop.watchdog import Watchdog
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.thread_identity import ThreadIdentity
from millstream.spark.connection.control import ControlChannel
from millstream.spark.connection.messages import ThreadExit
from millstream.spark.worker.garbage import collecting_seldom
from millstream.spark.worker.worker_logging import LogFilters
from millstream.spark.worker.worker_task import AttemptInfo
from millstream.topology.physical.topology import Topology

#: How long a thread may keep Python's lock while another one wants it.
_SWITCH_S: Final = 0.0005


@dataclass(frozen=True)
class StreamThreadMain:
    """Builds a stream thread in the worker and runs it to its end. Pickled with all it holds.

    Args:
        topology: what to compute.
        config: settings.
        driver_id: of the application instance; its threads on one host share a state directory.
        thread_name: `<client id>-StreamThread-<index>`.
        thread_index: from 1.
        restore_audience: who wants to know in the driver what is restored.
        log_filters: of the driver.
    """

    topology: Topology
    config: StreamsConfig
    driver_id: uuid.UUID
    thread_name: str
    thread_index: int
    restore_audience: RestoreAudience
    log_filters: LogFilters = field(default_factory=LogFilters.of_this_process)

    def __call__(self, channel: ControlChannel, attempt: AttemptInfo) -> ThreadExit:
        identity = ThreadIdentity(self.thread_name, self.thread_index, self.driver_id)
        with collecting_seldom(), _giving_way(), self.log_filters.added():
            thread = build_thread(
                self.topology, self.config, identity, channel, self.restore_audience
            )
            limit_ms = int(client_setting(self.config, "main_consumer", "max.poll.interval.ms"))
            with Watchdog(
                self.thread_name,
                lambda: thread.rounds,
                limit_ms,
                channel.report,
                SystemClock(),
                thread.look,
                thread.look_ms,
                lambda: thread.overdue_ms,
            ):
                outcome = thread.run()
        return thread_exit(outcome, channel.lost_reason or channel.stop_signal)


def thread_exit(outcome: ThreadOutcome, stopped_by: str | None) -> ThreadExit:
    """What the driver is told of a thread's end.

    A thread that was not closed by its user runs again elsewhere, whatever it could not do on its
    way out: that work is repeated, and says nothing about the user's code or the cluster.

    Args:
        outcome: how it ended.
        stopped_by: what stopped it, if it was not asked by its driver.
    """
    story = tuple(outcome.story)
    if outcome.error is not None:
        return ThreadExit("error", outcome.error, story)
    if stopped_by is not None:
        failed = outcome.close_error
        reason = stopped_by if failed is None else f"{stopped_by}; while closing: {failed}"
        return ThreadExit("lost", failed, story, reason)
    if outcome.close_error is not None:
        return ThreadExit("error", outcome.close_error, story)
    return ThreadExit("closed", None, story, has_drained=outcome.has_drained)


@contextmanager
def _giving_way() -> Iterator[None]:
    """Let other threads of the process have Python's lock after half a millisecond.

    Those that bring questions about stores and take the answers away want it a few hundred times a
    second, and by default wait 5 ms each time while the loop computes: at a thousand questions a
    second to a busy thread an answer took 47 ms at the median, and 11 with this. While nobody asks
    it costs nothing.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
