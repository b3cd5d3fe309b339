"""Stream threads leave executors that are to go before these do.

An executor that Spark decommissions is gone soon, with all that still runs there. A thread that
commits, leaves the group and goes on elsewhere costs a rebalance. One that dies with its executor
is missed only after the session timeout, and what it had not committed is done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from millstream.clock import Clock
from millstream.spark.hosted_thread import HostedThread
from millstream.spark.jobs import SparkJobs
from millstream.spark.sessions.free_slots import FreeSlots, SlotClaim
from millstream.spark.worker.worker_logging import short_name

logger = logging.getLogger(__name__)

#: Nodes are given up with half a minute's notice or more.
_EVERY_MS: Final = 1_000


class Departures:
    """Moves stream threads off executors that are to go, each as soon as there is a slot for it.

    Where there is none a thread works on for as long as its executor does.

    Args:
        jobs: tells where threads run, and which executors go.
        claim: asks for one slot for a thread that is to move.
        clock: for intervals.
    """

    def __init__(
        self, jobs: SparkJobs, claim: Callable[[], SlotClaim | FreeSlots], clock: Clock
    ) -> None:
        self._jobs = jobs
        self._claim = claim
        self._clock = clock
        self._is_needed = jobs.may_lose_executors
        self._next_ms = 0
        #: By the tag of its job, the executor of a thread.
        self._executors: dict[str, str] = {}
        self._without_room: set[str] = set()

    def look(self, threads: Iterable[HostedThread]) -> None:
        """See whether some are to move. May be called often, by one Python thread."""
        now_ms = self._clock.monotonic_ms()
        if not self._is_needed or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS
        running = {thread.running_tag: thread for thread in threads}
        self._executors = {
            tag: executor
            for tag in running
            if tag is not None
            and (executor := self._executors.get(tag) or self._jobs.executor_of(tag)) is not None
        }
        self._without_room &= self._executors.keys()
        leaving = {each for each in set(self._executors.values()) if self._jobs.is_leaving(each)}
        for tag, executor in self._executors.items():
            if executor in leaving:
                self._let_go(running[tag], tag, executor)

    def _let_go(self, thread: HostedThread, tag: str, executor: str) -> None:
        claim = self._claim()
        if isinstance(claim, SlotClaim):
            thread.move(f"its executor {executor} is decommissioned.", claim)
        elif tag not in self._without_room:
            self._without_room.add(tag)
            logger.warning(
                "%s is on executor %s, which is decommissioned, and no other executor has a free "
                "task slot: it works on until its executor is gone, or a slot is free. Give the "
                "application some slots to spare.",
                short_name(thread.name),
                executor,
            )
