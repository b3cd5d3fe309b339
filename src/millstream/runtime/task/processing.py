"""What a task needs to process: made when it starts, thrown away when it stops."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.runtime.task.engine_task import EngineTask
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.partition_group import PartitionGroup
from millstream.runtime.task.punctuations import Punctuations


@dataclass(frozen=True, slots=True)
class Processing:
    """The parts of a task that know the records it has seen since it started.

    A task that starts again gets new ones, around the stores that stay open: operators and
    processors are made for one life only.

    Args:
        group: its input queues.
        executor: its nodes.
        punctuations: what its processors want to be called for, by time.
        engine_task: the task as its nodes see it.
    """

    group: PartitionGroup
    executor: Executor
    punctuations: Punctuations
    engine_task: EngineTask
