"""Where a stream thread has its state, and whether it is started there again.

Spark places a task anywhere unless its data says where it is. A thread's state is on the disk of
the host where it ran last, so the job that starts it again asks for that host; Spark then waits for
a free slot there for `spark.locality.wait` (3 s) before it takes another one.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from millstream.spark.jobs import SparkJobs
from millstream.spark.worker.worker_logging import short_name

logger = logging.getLogger(__name__)

#: For how long a host whose executor is gone is waited for: a cluster manager starts another one.
_RETURN_S: Final = 5.0
_LOOK_S: Final = 0.25


class Placement:
    """The host of one stream thread, as Spark names it, over all its jobs.

    Args:
        name: of the thread.
        jobs: tells where jobs run.
    """

    def __init__(self, name: str, jobs: SparkJobs) -> None:
        self._name = short_name(name)
        self._jobs = jobs
        #: Where the thread ran last, and has its state; None if it never ran.
        self.host: str | None = None
        self._looked_at: str | None = None

    def await_host(self, given_up: threading.Event) -> None:
        """Wait a moment if there is no executor on the host, so that it may come back.

        Args:
            given_up: ends the wait.
        """
        until = time.monotonic() + _RETURN_S
        while self.host is not None and not self._has_executor(self.host):
            if given_up.wait(_LOOK_S) or time.monotonic() >= until:
                return

    def look(self, tag: str) -> None:
        """See where the job of this tag runs, whose thread has registered. May be called often."""
        if self._looked_at == tag:
            return
        landed = self._jobs.host_of(tag)
        if landed is None:
            return
        self._looked_at = tag
        wanted, self.host = self.host, landed
        if wanted is None:
            logger.debug("%s has its state on %s from now on", self._name, landed)
        elif wanted == landed:
            logger.info("%s is back on %s, where its state is", self._name, landed)
        else:
            logger.warning(
                "%s was started again on %s, not on %s, where its state is: %s. What no standby "
                "has at hand is restored from the changelogs. Give each host a task slot to spare, "
                "or set num_standby_replicas.",
                self._name,
                landed,
                wanted,
                "no task slot was free there within spark.locality.wait"
                if self._has_executor(wanted)
                else "Spark has no executor there any more",
            )

    def _has_executor(self, host: str) -> bool:
        return host in self._jobs.hosts()
