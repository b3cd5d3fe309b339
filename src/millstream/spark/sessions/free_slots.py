"""Lists executors, counts free task slots, and reserves slots for queries.

Spark decommissions an executor (`spark.decommission.enabled`) when its node is drained, its spot
instance is reclaimed, or dynamic allocation removes it. The executor then gets no new tasks,
continues its running tasks, and may be killed at any time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class ExecutorInfo(NamedTuple):
    id: str
    #: The host name or IP address, as Spark writes it.
    host: str
    #: The number of tasks that the executor can run at a time.
    slots: int
    #: Whether Spark schedules no tasks on the executor because too many have failed.
    is_excluded: bool
    is_decommissioned: bool


def executors(context: SparkContext) -> list[ExecutorInfo]:
    """Return the current executors.

    On a cluster, this omits the driver, which Spark also lists.
    """
    found: Any = context._jsc.sc().statusStore().executorList(True)
    may_leave = decommissioning_enabled(context)
    return [
        ExecutorInfo(
            str(each.id()),
            str(each.hostPort()).rpartition(":")[0],
            int(each.maxTasks()),
            bool(each.isExcluded()),
            may_leave and is_decommissioned(context, str(each.id())),
        )
        for each in map(found.apply, range(found.size()))
        if each.maxTasks() > 0
    ]


def decommissioning_enabled(context: SparkContext) -> bool:
    return context.getConf().get("spark.decommission.enabled", "false").lower() == "true"


def is_decommissioned(context: SparkContext, executor: str) -> bool:
    """Return whether an executor is being decommissioned, or has been."""
    scheduler: Any = context._jsc.sc().taskScheduler()
    return bool(scheduler.getExecutorDecommissionState(executor).isDefined())


def running_on(context: SparkContext, executor: str) -> int:
    """Return the number of tasks that are running on an executor."""
    running: Any = context._jsc.sc().taskScheduler().runningTasksByExecutors()
    return int(running.apply(executor)) if running.contains(executor) else 0


class FreeSlots(NamedTuple):
    #: The number of slots that are neither in use, nor needed by a queued task, nor claimed.
    free: int
    #: Whether Spark can request another executor for a queued task.
    may_grow: bool = False


@dataclass(eq=False)
class SlotClaim:
    """Reserves slots for a query, even before its tasks run and between its batches.

    The slots count as taken until the claim is released.
    """

    #: The ID of the Spark application.
    application: str
    needed: int
    #: The run ID of the streaming query that uses the slots; empty until the query runs.
    run_id: str = ""

    def release(self) -> None:
        """Release the slots. Idempotent."""
        with _claims_lock:
            if self in _claims:
                _claims.remove(self)

    def count_unused(self, application: str, tracker: Any, active: Collection[int]) -> int:
        """Return the number of claimed slots without a task.

        Spark reports the stages of a job a moment before they are active. Only stages in `active`
        are counted; otherwise, the slots of the other stages would appear to be free.
        """
        if application != self.application:
            return 0
        if not self.run_id:
            return self.needed
        jobs = set(tracker.getJobIdsForGroup(self.run_id)) & set(tracker.getActiveJobsIds())
        infos = [tracker.getJobInfo(job) for job in jobs]
        all_stages = [stage for info in infos if info is not None for stage in info.stageIds]
        stages = [stage for stage in all_stages if stage in active]
        return max(0, self.needed - _unfinished_tasks(tracker, stages))


_claims: Final[list[SlotClaim]] = []
#: Makes counting the free slots and adding a claim atomic.
_claims_lock: Final = threading.Lock()


def free_slots(session: SparkSession) -> FreeSlots:
    """Count the free slots.

    This takes a few ms, plus about 1 ms per three running tasks. Only existing executors that are
    not being decommissioned count. Spark reports the end of a task with a short delay.
    """
    with _claims_lock:
        return _count_slots(session)


def claim_slots(session: SparkSession, needed: int) -> SlotClaim | FreeSlots:
    """Claim slots for long-running tasks.

    If too few slots are free, returns the free slots instead.
    """
    with _claims_lock:
        slots = _count_slots(session)
        if slots.free < needed and not slots.may_grow:
            return slots
        claim = SlotClaim(session.sparkContext.applicationId, needed)
        _claims.append(claim)
        return claim


def _count_slots(session: SparkSession) -> FreeSlots:
    context = session.sparkContext
    found = executors(context)
    leaving = [each.id for each in found if each.is_decommissioned]
    slots = sum(each.slots for each in found if not each.is_excluded and not each.is_decommissioned)
    tracker = context.statusTracker()
    active = tracker.getActiveStageIds()
    taken = _unfinished_tasks(tracker, active) - sum(running_on(context, each) for each in leaving)
    claimed = sum(each.count_unused(context.applicationId, tracker, active) for each in _claims)
    conf = context.getConf()
    dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    max_executors = float(conf.get("spark.dynamicAllocation.maxExecutors", "inf"))
    may_grow = dynamic and len(found) - len(leaving) < max_executors
    return FreeSlots(max(0, slots - taken - claimed), may_grow)


def _unfinished_tasks(tracker: Any, stages: Collection[int]) -> int:
    """Return the number of tasks of these stages that are running or queued.

    Spark's count of running tasks is not used, because it may be 10 s old if no new events arrive.
    """
    infos = map(tracker.getStageInfo, stages)
    return sum(info.numTasks - info.numCompletedTasks for info in infos if info is not None)
