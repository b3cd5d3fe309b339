"""How many more tasks a session could run just now, and whether it would get executors for more."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.spark.sessions.executors import executors, running_on

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession


class FreeSlots(NamedTuple):
    """What a session has room for.

    Args:
        free: tasks that would get a slot at once, beside those that wait and those claimed.
        may_grow: whether a task that waits makes Spark ask for another executor.
    """

    free: int
    may_grow: bool = False


class SlotClaim:
    """Slots that a query needs all the time, also before its tasks run and between its batches.

    Others see them as taken until it is released.

    Args:
        application: the id of the Spark application.
        needed: how many slots.
    """

    def __init__(self, application: str, needed: int) -> None:
        self._application = application
        self._needed = needed
        self._run_id = ""

    def used_by(self, run_id: str) -> None:
        """Say which run of a streaming query the slots are for: its tasks are in them."""
        self._run_id = run_id

    def release(self) -> None:
        """Give the slots back. It may be called again."""
        with _claiming:
            if self in _claims:
                _claims.remove(self)

    def waits(self, application: str, tracker: Any, active: Collection[int]) -> int:
        """How many of the slots are claimed and have no task.

        Args:
            application: the id of the Spark application that is looked at.
            tracker: its status tracker.
            active: the stages whose tasks count as taken. A job tells its stages a moment before
                they are among them: a slot that was neither claimed nor taken would look free.
        """
        if application != self._application:
            return 0
        if not self._run_id:
            return self._needed
        jobs = set(tracker.getJobIdsForGroup(self._run_id)) & set(tracker.getActiveJobsIds())
        infos = [tracker.getJobInfo(job) for job in jobs]
        told = [stage for info in infos if info is not None for stage in info.stageIds]
        stages = [stage for stage in told if stage in active]
        return max(0, self._needed - _under_way(tracker, stages))


_claims: Final[list[SlotClaim]] = []
#: A claim must not come between another one's look for free slots and its own entry.
_claiming: Final = threading.Lock()


def free_slots(session: SparkSession) -> FreeSlots:
    """Ask a session: a few milliseconds, and about one for each three tasks that run.

    The executors that are there count, as of now, not those that there were at the start; those
    that are decommissioned have no slots to give. Spark tells that a task has ended a moment later
    than it happens.
    """
    with _claiming:
        return _look(session)


def claim_slots(session: SparkSession, needed: int) -> SlotClaim | FreeSlots:
    """Claim slots for a query whose tasks stay; what there is instead where that is too few.

    Args:
        session: where the query is to run.
        needed: how many tasks it has.
    """
    with _claiming:
        slots = _look(session)
        if slots.free < needed and not slots.may_grow:
            return slots
        claim = SlotClaim(session.sparkContext.applicationId, needed)
        _claims.append(claim)
        return claim


def _look(session: SparkSession) -> FreeSlots:
    context = session.sparkContext
    found = executors(context)
    leaving = [each.id for each in found if each.is_leaving]
    slots = sum(each.slots for each in found if not each.is_excluded and not each.is_leaving)
    tracker = context.statusTracker()
    active = tracker.getActiveStageIds()
    taken = _under_way(tracker, active) - sum(running_on(context, each) for each in leaving)
    claimed = sum(each.waits(context.applicationId, tracker, active) for each in _claims)
    conf = context.getConf()
    dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    most = float(conf.get("spark.dynamicAllocation.maxExecutors", "inf"))
    may_grow = dynamic and len(found) - len(leaving) < most
    return FreeSlots(max(0, slots - taken - claimed), may_grow)


def _under_way(tracker: Any, stages: Collection[int]) -> int:
    """How many tasks run, or wait and will run next.

    Spark's count of those that run may be ten seconds old where nothing has happened since.
    """
    infos = map(tracker.getStageInfo, stages)
    return sum(info.numTasks - info.numCompletedTasks for info in infos if info is not None)
