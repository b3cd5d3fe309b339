"""Runs each stream thread as a Spark job with a single task.

The jobs can be canceled individually.
"""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import EnvironmentMismatchError, SparkError, text_of
from millstream.spark.code.environment import checked_task, mismatch_error
from millstream.spark.connection.messages import ThreadExit, decode_value
from millstream.spark.sessions.free_slots import (
    decommissioning_enabled,
    executors,
    is_decommissioned,
)
from millstream.spark.sessions.local_session import has_jvm
from millstream.spark.sessions.session import JOB_TAG

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

#: The maximum number of task attempts to list, which is more than Spark ever makes.
_MAX_ATTEMPTS: Final = 1_000
#: The maximum lengths of excerpts from Spark's error messages in Millstream's messages.
_MAX_REASON_CHARS: Final = 300
_MAX_CHARS: Final = 1_500
#: The start of a traceback's last line, which contains the exception.
_RAISED: Final = re.compile(r"[\w.]*(Error|Exception|Interrupt): ")


class SparkJobs:
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
        preferred_host: str | None = None,
    ) -> ThreadExit:
        """Run a pickled `ThreadPlan` and wait until the thread ends.

        A thread may run for months.

        Call this on a dedicated Python thread: Spark's job tags belong to the calling thread. Only
        this job may have the tag. The preferred host is in Spark's spelling.

        Raises:
            EnvironmentMismatchError: the worker has different package versions.
            SparkError: the job failed or was canceled before the stream thread ended.
        """
        context = self._context
        # Do not interrupt the JVM task on cancellation: an interrupted task abandons its Python
        # worker, while a task that is only marked as killed kills the worker after a few seconds.
        context.setJobGroup(self._application_id, description, interruptOnCancel=False)
        for each in (JOB_TAG, self._application_id, tag):
            context.addJobTag(_legal_tag(each))
        try:
            if preferred_host is None:
                element = context.parallelize([0], 1)
            else:
                element = self._rdd_preferring(preferred_host)
            (result,) = element.mapPartitions(checked_task(versions, plan)).collect()
        except Exception as error:
            raise _to_spark_error(error) from error
        finally:
            if self.alive:
                context.removeJobTag(_legal_tag(tag))
        if isinstance(result, list):
            raise mismatch_error(result)
        thread_exit = decode_value(result)
        if not isinstance(thread_exit, ThreadExit):
            raise SparkError(f"The stream thread's result cannot be read: {thread_exit}.")
        return thread_exit

    def _rdd_preferring(self, host: str) -> RDD[int]:
        """Create an RDD of one element with a preferred host.

        PySpark has no API for this.
        """
        from pyspark import RDD

        context = self._context
        jvm: Any = context._jvm
        as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        hosts, elements = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
        hosts.append(host)
        # The element is never read: `checked_task` ignores its input.
        elements.append(jvm.scala.Tuple2(pickle.dumps([0]), as_scala(hosts).toSeq()))
        class_tag = jvm.scala.reflect.ClassTag.Any()
        java_rdd = context._jsc.sc().makeRDD(as_scala(elements).toSeq(), class_tag).toJavaRDD()
        return RDD(java_rdd, context, context.serializer)

    def cancel(self, tag: str) -> None:
        """Cancel the job with this tag if it is running.

        Spark kills the job's worker within about 5 s.
        """
        if self.alive:
            self._context.cancelJobsWithTag(_legal_tag(tag))

    def running_tasks(self, tag: str) -> int:
        """Return the number of tasks of this job that have a slot.

        The number is 0 while the task is queued.
        """
        tracker = self._context.statusTracker()
        infos = map(tracker.getStageInfo, self._stages(tag))
        return sum(stage.numActiveTasks for stage in filter(None, infos))

    def host_of(self, tag: str) -> str | None:
        """Return the host of the job's latest task, in Spark's spelling.

        Returns None until a task is launched.
        """
        task = self._last_task(tag)
        return None if task is None else str(task.host())

    def executor_of(self, tag: str) -> str | None:
        """Return Spark's executor ID of the job's latest task; None until launched."""
        task = self._last_task(tag)
        return None if task is None else str(task.executorId())

    def hosts(self) -> set[str]:
        """Return the hosts of the executors, in Spark's spelling.

        Executors that are being decommissioned are excluded.
        """
        if not self.alive:
            return set()
        return {each.host for each in executors(self._context) if not each.is_decommissioned}

    @property
    def decommissioning_enabled(self) -> bool:
        return decommissioning_enabled(self._context)

    def is_decommissioned(self, executor: str) -> bool:
        """Return whether an executor is being decommissioned, or has been."""
        return self.alive and is_decommissioned(self._context, executor)

    def _last_task(self, tag: str) -> Any:
        last: Any = None
        for stage in self._stages(tag):
            found: Any = self._context._jsc.sc().statusStore().taskList(stage, 0, _MAX_ATTEMPTS)
            for task in map(found.apply, range(found.size())):
                last = task if last is None or task.taskId() > last.taskId() else last
        return last

    def _stages(self, tag: str) -> list[int]:
        scheduler: Any = getattr(self._context, "_jsc", None)
        if scheduler is None:
            return []
        jobs = scheduler.sc().statusTracker().getJobIdsForTag(_legal_tag(tag))
        found = map(self._context.statusTracker().getJobInfo, jobs)
        return [stage for job in found if job is not None for stage in job.stageIds]

    @property
    def alive(self) -> bool:
        """Whether the session can run jobs.

        Its JVM must be running, and its context must not be stopped.
        """
        if not has_jvm(self._context):
            return False
        try:
            return not self._context._jsc.sc().isStopped()
        except Exception:
            # `isStopped` only reads a flag, so any failure means that the JVM is gone.
            return False


def _to_spark_error(error: Exception) -> SparkError:
    text = text_of(error)
    versions = re.search(r"different version: ([\d.]+) than that in driver: ([\d.]+)", text)
    if versions is not None:
        return mismatch_error([("python", versions[2], versions[1])])
    if missing := re.search(r"No module named '([\w.]+)'", text):
        return EnvironmentMismatchError(
            f"Spark's workers cannot import {missing[1]}: it is not installed on the executors. "
            "Install the driver's packages there, or ship its environment (spark.archives).",
            differences=[(missing[1], "installed", None)],
        )
    return SparkError(f"The Spark job of the stream thread ended unexpectedly: {_reason(text)}")


def _reason(text: str) -> str:
    """Extract the cause from Spark's message.

    The tracebacks of the JVM and Python are omitted.
    """
    # The exception is on the first line after the indented lines of the traceback.
    raised = re.search(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", text)
    if raised is not None:
        return f"a Python worker raised {raised[1]}"[:_MAX_REASON_CHARS]
    lost_task = re.search(r"most recent failure: Lost task[^\n]*?\): ([^\n]+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    candidates = [lost_task[1]] if lost_task is not None else lines
    return (candidates or ["unknown"])[0][:_MAX_REASON_CHARS]


def _legal_tag(tag: str) -> str:
    """Replace commas, which Spark uses to separate tags."""
    return tag.replace(",", "_") or "_"


def short_reason(error: BaseException) -> str:
    """Return the error that a Python worker raised, or else the start of the message."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return (raised[-1] if raised else " ".join(lines[:2]) or "no reason given")[:_MAX_CHARS]
