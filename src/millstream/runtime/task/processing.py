"""What a task needs to process: made when it starts, thrown away when it stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.operators.apart.equipment import Equipment
from millstream.operators.batch import Batch
from millstream.operators.interruption import UserCalls
from millstream.runtime.task.engine_task import EngineTask
from millstream.runtime.task.executor import ContextFactory, SinkFactory
from millstream.runtime.task.punctuations import Punctuations
from millstream.runtime.task.queues.partition_group import PartitionGroup
from millstream.topology.physical.nodes import Node

#: Where the stream time behind operators that work beside the loop is among the times of
#: processors, of which none has such a name. It is not that of the partitions: records that were
#: left out in front of these operators do not count there.
_RELEASED: Final = "released-time:"


class NodeExecutor(Protocol):
    """Runs the nodes of a sub-topology in one task. `Executor` is the one of applications."""

    @property
    def calls(self) -> UserCalls:
        """The user functions of all nodes."""
        ...

    @property
    def busiest(self) -> str:
        """The nodes at work; after a batch, the ones that took most of its time."""
        ...

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

    @property
    def room(self) -> int | None:
        """How many records may be taken before something in flight is finished; None for any."""
        ...

    @property
    def most_pending(self) -> int | None:
        """How many records of a partition may be in flight, or done behind one that is; None for
        any number."""
        ...

    @property
    def in_flight(self) -> int:
        """How many records are worked on beside the loop."""
        ...

    @property
    def has_landed(self) -> bool:
        """Whether `release` may have something to do."""
        ...

    def release(self) -> Sequence[Batch]:
        """Work on what has come of records in flight; those that are not in flight any more."""
        ...

    @property
    def awaits_sent(self) -> bool:
        """Whether records wait for what they have sent to arrive."""
        ...

    def sent(self) -> None:
        """Everything that was sent has arrived, or was refused."""
        ...

    def halt(self) -> None:
        """Begin nothing more of what is in flight."""
        ...

    @property
    def may_land(self) -> bool:
        """Whether anything in flight may still come to its end: after `halt` only what runs."""
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
        equipment: Equipment | None = None,
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
        behind: the same by stream time, for those behind operators that work beside the loop.
        engine_task: the task as its nodes see it.
        equipment: for operators whose work goes on beside the loop.
        lands: whether nothing may be in flight at a commit.
    """

    group: PartitionGroup
    executor: NodeExecutor
    punctuations: Punctuations
    behind: Punctuations
    engine_task: EngineTask
    equipment: Equipment
    lands: bool

    @property
    def remembered(self) -> Mapping[str, int]:
        """What is to be found again after a restart, for the metadata of offsets."""
        released = self.equipment.time.stream_time
        known = self.engine_task.remembered
        return known if released < 0 else {**known, _RELEASED: released}

    def remember(self, times: Mapping[str, int]) -> None:
        """Find this again, of one of the partitions; of several the latest counts."""
        released, known = self.equipment.time, self.engine_task.remembered
        for name, time in times.items():
            if name == _RELEASED:
                released.stream_time = max(time, released.stream_time)
            else:
                known[name] = max(time, known.get(name, time))
