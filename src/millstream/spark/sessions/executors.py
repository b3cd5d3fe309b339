"""Which executors a session has just now, and which of them are to go.

Spark decommissions an executor (`spark.decommission.enabled`) when its node is drained, its spot
instance is called back, or dynamic allocation does without it: it gets no more tasks, runs what it
has until that ends, and may be killed any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark import SparkContext


class Executor(NamedTuple):
    """An executor.

    Args:
        id: Spark's name for it.
        host: where it is, as Spark names that.
        slots: how many tasks it runs at a time.
        is_excluded: whether Spark gives it no tasks because too many have failed there.
        is_leaving: whether it is decommissioned.
    """

    id: str
    host: str
    slots: int
    is_excluded: bool
    is_leaving: bool


def executors(context: SparkContext) -> list[Executor]:
    """Those that there are; the driver of a cluster, which is listed but runs nothing, is left out.

    Args:
        context: of a classic session.
    """
    found: Any = context._jsc.sc().statusStore().executorList(True)
    may_leave = can_be_decommissioned(context)
    return [
        Executor(
            str(each.id()),
            str(each.hostPort()).rpartition(":")[0],
            int(each.maxTasks()),
            bool(each.isExcluded()),
            may_leave and is_leaving(context, str(each.id())),
        )
        for each in map(found.apply, range(found.size()))
        if each.maxTasks() > 0
    ]


def can_be_decommissioned(context: SparkContext) -> bool:
    """Whether the session's executors are decommissioned at all, by its settings."""
    return context.getConf().get("spark.decommission.enabled", "false").lower() == "true"


def is_leaving(context: SparkContext, executor: str) -> bool:
    """Whether an executor is decommissioned, or was and is gone.

    Args:
        context: of a classic session.
        executor: its id.
    """
    scheduler: Any = context._jsc.sc().taskScheduler()
    return bool(scheduler.getExecutorDecommissionState(executor).isDefined())


def running_on(context: SparkContext, executor: str) -> int:
    """How many tasks an executor runs, as of now.

    Args:
        context: of a classic session.
        executor: its id.
    """
    running: Any = context._jsc.sc().taskScheduler().runningTasksByExecutors()
    return int(running.apply(executor)) if running.contains(executor) else 0
