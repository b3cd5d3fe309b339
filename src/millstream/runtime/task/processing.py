"""What a task needs to process: made when it starts, thrown away when it stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from millstream.operators.batch import Batch
from millstream.runtime.task.engine_task import EngineTask
from millstream.runtime.task.executor import ContextFactory, SinkFactory
from millstream.runtime.task.partition_group import PartitionGroup
from millstream.runtime.task.punctuations import Punctuations
from millstream.topology.physical.nodes import Node


class NodeExecutor(Protocol):
    """Runs the nodes of a sub-topology in one task. `Executor` is the one of applications."""

    @property
    def ordered(self) -> bool:
        """Whether records must come with their place in depth-first order."""
        ...

    def init(self) -> None:
        """Start the operators. Their stores must be open and restored."""
        ...

    def run(self, batches: Sequence[tuple[str, Batch]]) -> None:
        """Work on one task batch: what each source node has read, from one origin."""
        ...

    def flush(self, store: str) -> None:
        """Let the nodes hand on what the cache of a store holds back, each with its effects."""
        ...

    def punctuate(self, callback: Callable[[int], None], time_ms: int) -> None:
        """Call a node's punctuator, and work on what it forwards."""
        ...

    def close(self) -> None:
        """Close the operators."""
        ...


class ExecutorFactory(Protocol):
    """Makes what runs the nodes of a task; takes what `Executor` takes."""

    def __call__(
        self,
        nodes: Sequence[Node],
        make_context: ContextFactory,
        make_sink: SinkFactory,
        *,
        order_across_topics: bool = False,
    ) -> NodeExecutor: ...


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
    executor: NodeExecutor
    punctuations: Punctuations
    engine_task: EngineTask
