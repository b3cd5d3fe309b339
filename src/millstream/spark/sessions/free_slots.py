"""How many more tasks a session could run just now, and whether it would get executors for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FreeSlots(NamedTuple):
    """What a session has room for.

    Args:
        free: tasks that would get a slot at once.
        may_grow: whether a task that waits makes Spark ask for another executor.
    """

    free: int
    may_grow: bool = False


def free_slots(session: SparkSession) -> FreeSlots:
    """Ask a session: a few milliseconds, and about one for each three tasks that run.

    The executors that are there count, as of now, not those that there were at the start. Spark
    tells it to its listeners a moment later than it happens.
    """
    context = session.sparkContext
    scheduler = context._jsc.sc()
    executors = scheduler.statusStore().executorList(True)
    found = [executors.apply(number) for number in range(executors.size())]
    # On a cluster the driver is listed, too, and runs nothing.
    found = [each for each in found if each.maxTasks() > 0]
    slots = sum(int(each.maxTasks()) for each in found if not each.isExcluded())
    tracker = context.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    running = sum(stage.numActiveTasks for stage in stages if stage is not None)
    conf = context.getConf()
    dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    most = float(conf.get("spark.dynamicAllocation.maxExecutors", "inf"))
    return FreeSlots(max(0, slots - running), dynamic and len(found) < most)
