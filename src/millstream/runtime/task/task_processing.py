"""The parts of a task that are recreated when the task restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from millstream.config.streams_config import StreamsConfig
from millstream.metrics.user import ContextMetrics
from millstream.operators.concurrent.runner_context import RunnerContext
from millstream.operators.record_batch import Batch
from millstream.operators.user_calls import UserCalls
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.processor.task_context import CurrentRecord
from millstream.runtime.task.executor import ContextFactory, SinkFactory
from millstream.runtime.task.punctuations import Punctuations
from millstream.runtime.task.queues.partition_group import PartitionGroup
from millstream.topology.physical.nodes import Node


@dataclass
class CommitState:
    """The commit requests and the metadata of a task's nodes, for its next commit."""

    commit_requested: bool = False
    #: Values that operators store with the committed offsets.
    processor_metadata: dict[str, int] = field(default_factory=dict)
    _was_requested: bool = False

    def on_commit_started(self) -> None:
        """Reset the request; later requests apply to the next commit."""
        self._was_requested, self.commit_requested = self.commit_requested, False

    def commit_failed(self) -> None:
        """Restore the request, because the commit did not fulfill it."""
        self.commit_requested = self.commit_requested or self._was_requested


@dataclass(frozen=True)
class NodeTaskContext:
    """The context shared by the nodes of one task. Implements `TaskContext`."""

    config: StreamsConfig
    state_dir: Path
    #: The stream-time and the wall-clock schedules.
    by_stream: Punctuations
    by_clock: Punctuations
    metrics: ContextMetrics
    record: CurrentRecord
    stream_time_ms: Callable[[], int]
    #: Shared by all contexts of one task.
    commit_state: CommitState

    @property
    def application_id(self) -> str:
        return self.config.application_id

    @property
    def processor_metadata(self) -> dict[str, int]:
        return self.commit_state.processor_metadata

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
    ) -> Cancellable:
        punctuations = self.by_stream if kind is PunctuationType.STREAM_TIME else self.by_clock
        return punctuations.schedule(callback, interval_ms, kind, start_ms, self.stream_time_ms())

    def request_commit(self) -> None:
        self.commit_state.commit_requested = True


#: The key in the processor metadata for the stream time downstream of concurrent operators. It is
#: reserved: no processor uses this key. The time can differ from the partition times, because
#: records that were dropped upstream of these operators do not advance it.
_DOWNSTREAM_TIME: Final = "released-time:"


class NodeExecutor(Protocol):
    """Runs the nodes of a sub-topology in one task.

    The default implementation is `Executor`.
    """

    @property
    def calls(self) -> UserCalls: ...
    @property
    def busiest(self) -> str: ...
    @property
    def ordered(self) -> bool: ...
    def init(self) -> None: ...
    def run(self, batches: Sequence[tuple[str, Batch]]) -> None: ...
    def flush(self, store: str) -> None: ...
    def punctuate(self, callback: Callable[[int], None], time_ms: int) -> None: ...
    @property
    def remaining_capacity(self) -> int | None: ...
    @property
    def max_pending(self) -> int | None: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def has_completions(self) -> bool: ...
    def release(self) -> Sequence[Batch]: ...
    @property
    def awaits_delivery(self) -> bool: ...
    def on_delivered(self) -> None: ...
    def halt(self) -> None: ...
    @property
    def can_finish(self) -> bool: ...
    def close(self) -> None: ...


class ExecutorFactory(Protocol):
    """Creates the executor of a task from the parameters of `Executor`."""

    def __call__(
        self,
        nodes: Sequence[Node],
        make_context: ContextFactory,
        make_sink: SinkFactory,
        *,
        order_across_topics: bool = False,
        runner_context: RunnerContext | None = None,
    ) -> NodeExecutor: ...


@dataclass(frozen=True, slots=True)
class TaskProcessing:
    """The parts of a task that depend on the records processed since it started.

    These parts are recreated when the task restarts, because operators and processors exist only
    for one run. The stores stay open.
    """

    group: PartitionGroup
    executor: NodeExecutor
    punctuations: Punctuations
    #: The stream-time schedules downstream of concurrent operators.
    downstream_punctuations: Punctuations
    node_context: NodeTaskContext
    runner_context: RunnerContext

    @property
    def processor_metadata(self) -> Mapping[str, int]:
        """The processor metadata to commit with the offsets."""
        downstream = self.runner_context.downstream_time.stream_time
        known = self.node_context.processor_metadata
        return known if downstream < 0 else {**known, _DOWNSTREAM_TIME: downstream}

    def restore_processor_metadata(self, times: Mapping[str, int]) -> None:
        """Restore the metadata of a partition.

        The highest value of all partitions applies.
        """
        downstream, known = (
            self.runner_context.downstream_time,
            self.node_context.processor_metadata,
        )
        for name, time in times.items():
            if name == _DOWNSTREAM_TIME:
                downstream.stream_time = max(time, downstream.stream_time)
            else:
                known[name] = max(time, known.get(name, time))
