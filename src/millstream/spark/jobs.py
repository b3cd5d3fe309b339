"""Running stream threads as Spark jobs: one job of one task each, that can be cancelled alone."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import EnvironmentMismatchError, SparkError, text_of
from millstream.spark.code.environment import checked_task, mismatch
from millstream.spark.connection.messages import ThreadExit, decode_value
from millstream.spark.sessions.executors import can_be_decommissioned, executors, is_leaving
from millstream.spark.sessions.local_session import has_jvm
from millstream.spark.sessions.session import JOB_TAG

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

#: More attempts than Spark makes at a task.
_MOST_ATTEMPTS: Final = 1_000
#: How much of Spark's own words about a failed job is repeated.
_REASON_CHARS: Final = 300


class SparkJobs:
    """The jobs of one application in a session.

    Args:
        session: where they run.
        application_id: becomes the jobs' group and one of their tags.
    """

    def __init__(self, session: SparkSession, application_id: str) -> None:
        self._context = session.sparkContext
        self._application_id = application_id

    def run(
        self,
        plan: bytes,
        versions: dict[str, str | None],
        *,
        tag: str,
        description: str,
        near: str | None = None,
    ) -> ThreadExit:
        """Run one stream thread and wait until it ends, which may take months.

        To be called on a Python thread of its own: the tags belong to the calling thread.

        Args:
            plan: a pickled `ThreadPlan`.
            versions: the driver's, see `environment`.
            tag: by which this job alone can be cancelled.
            description: what Spark's own pages call it.
            near: the host where it would best run, as Spark names it; None for any.

        Raises:
            EnvironmentMismatchError: the worker has other versions.
            SparkError: the job ended otherwise than by the thread's end.
        """
        context = self._context
        # Cancelled without interrupting the JVM's task: an interrupted one gives its Python
        # worker up, whereas one that is only marked has it killed after a few seconds.
        context.setJobGroup(self._application_id, description, interruptOnCancel=False)
        for each in (JOB_TAG, self._application_id, tag):
            context.addJobTag(_legal_tag(each))
        try:
            element = context.parallelize([0], 1) if near is None else self._element_near(near)
            (result,) = element.mapPartitions(checked_task(versions, plan)).collect()
        except Exception as error:
            raise _translated(error) from error
        finally:
            if self.alive:
                context.removeJobTag(_legal_tag(tag))
        if isinstance(result, list):
            raise mismatch(result)
        ended = decode_value(result)
        if not isinstance(ended, ThreadExit):
            raise SparkError(f"The stream thread's result cannot be read: {ended}.")
        return ended

    def _element_near(self, host: str) -> RDD[int]:
        """One element in one partition, which prefers a host: PySpark itself has no such thing."""
        from pyspark import RDD

        context = self._context
        jvm: Any = context._jvm
        as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        hosts, elements = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
        hosts.append(host)
        # Nobody reads it: `checked_task` leaves its input alone.
        elements.append(jvm.scala.Tuple2(pickle.dumps([0]), as_scala(hosts).toSeq()))
        of_any = jvm.scala.reflect.ClassTag.Any()
        java = context._jsc.sc().makeRDD(as_scala(elements).toSeq(), of_any).toJavaRDD()
        return RDD(java, context, context.serializer)

    def cancel(self, tag: str) -> None:
        """Cancel the job of this tag if it runs; its worker is killed within about 5 seconds."""
        if self.alive:
            self._context.cancelJobsWithTag(_legal_tag(tag))

    def running_tasks(self, tag: str) -> int:
        """How many tasks of the job of this tag have got a slot: 1, or 0 while it waits for one."""
        tracker = self._context.statusTracker()
        infos = map(tracker.getStageInfo, self._stages(tag))
        return sum(stage.numActiveTasks for stage in filter(None, infos))

    def host_of(self, tag: str) -> str | None:
        """Where the task of the job of this tag runs, or ran last, as Spark names the host; None if
        Spark does not know yet."""
        task = self._last_task(tag)
        return None if task is None else str(task.host())

    def executor_of(self, tag: str) -> str | None:
        """The executor of that task, by Spark's name for it; None if Spark does not know yet."""
        task = self._last_task(tag)
        return None if task is None else str(task.executorId())

    def hosts(self) -> set[str]:
        """The hosts where Spark has executors that stay, as it names them."""
        if not self.alive:
            return set()
        return {each.host for each in executors(self._context) if not each.is_leaving}

    @property
    def may_lose_executors(self) -> bool:
        """Whether executors are decommissioned at all, by the session's settings."""
        return can_be_decommissioned(self._context)

    def is_leaving(self, executor: str) -> bool:
        """Whether an executor is to go, or was and is gone."""
        return self.alive and is_leaving(self._context, executor)

    def _last_task(self, tag: str) -> Any:
        last: Any = None
        for stage in self._stages(tag):
            found: Any = self._context._jsc.sc().statusStore().taskList(stage, 0, _MOST_ATTEMPTS)
            for task in map(found.apply, range(found.size())):
                last = task if last is None or task.taskId() > last.taskId() else last
        return last

    def _stages(self, tag: str) -> list[int]:
        """The stages of the job of this tag."""
        scheduler: Any = getattr(self._context, "_jsc", None)
        if scheduler is None:
            return []
        tracker = self._context.statusTracker()
        found = map(
            tracker.getJobInfo, scheduler.sc().statusTracker().getJobIdsForTag(_legal_tag(tag))
        )
        return [stage for job in found if job is not None for stage in job.stageIds]

    @property
    def alive(self) -> bool:
        """Whether the session can run jobs: it is not stopped, and its JVM has not ended."""
        if not has_jvm(self._context):
            return False
        try:
            return not self._context._jsc.sc().isStopped()
        except Exception:
            # Any failure to ask a method without effects means that nobody is there to answer.
            return False


def _translated(error: Exception) -> SparkError:
    """What a failed job means."""
    text = text_of(error)
    versions = re.search(r"different version: ([\d.]+) than that in driver: ([\d.]+)", text)
    if versions is not None:
        return mismatch([("python", versions[2], versions[1])])
    missing = re.search(r"No module named '([\w.]+)'", text)
    if missing is not None:
        return EnvironmentMismatchError(
            f"Spark's workers cannot import {missing[1]}: it is not installed on the executors. "
            "Install the driver's packages there, or ship its environment (spark.archives).",
            differences=[(missing[1], "installed", None)],
        )
    return SparkError(f"The Spark job of the stream thread ended unexpectedly: {_reason(text)}")


def _reason(text: str) -> str:
    """What Spark's message says happened, without the traces of the JVM and of Python."""
    # The first line behind a trace that is not part of it: the exception.
    raised = re.search(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", text)
    if raised is not None:
        return f"a Python worker raised {raised[1]}"[:_REASON_CHARS]
    lost_task = re.search(r"most recent failure: Lost task[^\n]*?\): ([^\n]+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [lost_task[1]] if lost_task is not None else lines
    return (telling or ["unknown"])[0][:_REASON_CHARS]


def _legal_tag(tag: str) -> str:
    """Spark separates tags by commas and allows none within."""
    return tag.replace(",", "_") or "_"
