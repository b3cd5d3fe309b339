"""The interface between operators and the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from millstream.clock import Clock
from millstream.config.streams_config import StreamsConfig
from millstream.metrics.registry import MetricsScope
from millstream.operators.record_batch import Batch
from millstream.processor.task_context import TaskContext
from millstream.record import TaskId


class Output(Protocol):
    """The edges to a node's children, which receive the batches of its operator."""

    @property
    def children(self) -> Collection[str]:
        """The child nodes, in the order in which they were attached."""

    @property
    def immediate(self) -> bool:
        """Whether a child that shares the node's store processes records immediately."""

    @property
    def ordered(self) -> bool:
        """Whether batches must have depth-first positions, because paths meet again."""

    def emit(self, batch: Batch) -> None:
        """Pass a batch to all children, in the order in which they were attached."""

    def emit_to(self, child: str, batch: Batch) -> None:
        """Pass a batch to one child."""


class OperatorContext(Protocol):
    """The services of the engine for an operator of one task."""

    @property
    def node(self) -> str: ...

    @property
    def task_id(self) -> TaskId: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> StreamsConfig:
        """The application's settings, which include the default serdes."""

    @property
    def task(self) -> TaskContext:
        """The services of the task: current record, stream time, schedules and commits."""

    @property
    def output(self) -> Output:
        """The node's output for records emitted outside of `process`, as in a flush."""

    @property
    def metrics(self) -> MetricsScope: ...

    @property
    def may_continue(self) -> bool:
        """Whether records for which user code fails may be dropped."""

    def store(self, name: str) -> Any:
        """Return the operator interface of a global store or one connected to the node."""

    def typed_store(self, name: str) -> Any:
        """Return the store's processor interface, for example a `KeyValueStore`.

        Global stores are read-only, except for the processors that fill them.

        Raises:
            StreamsError: the store does not exist or is not connected.
        """

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        """Handle a failure of user code: drop the record, or raise.

        Raises:
            ProcessingError: the processing exception handler returned FAIL.
        """

    def dropped(self, count: int, why: str, windows: int | None = None) -> None:
        """Count dropped records, and log them at most once per batch.

        `windows` is the number of windows for which the records are dropped; None if they are
        dropped entirely.
        """


class OperatorGroup(Protocol):
    """Operators that share stores and can process whole batches together."""

    def run(self, waiting: Mapping[str, Batch], outputs: Mapping[str, Output]) -> None:
        """Process all waiting batches, with the same results as record by record.

        Both mappings are keyed by node. The waiting records have depth-first positions.
        """


def _unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Operator:
    """The operator of one processor node in one task.

    Results of one record must be emitted before those of the next one, and must not depend on the
    batches into which the records are divided.
    """

    context: OperatorContext
    #: Makes a user function interruptible; set before `init`.
    make_interruptible: Callable[[Callable[..., Any]], Callable[..., Any]] = staticmethod(
        _unchanged
    )

    @property
    def cached_store(self) -> str | None:
        """The store whose cache holds back this operator's results; None if uncached.

        If several operators share the store, flushing any of them emits the results of all.
        """
        return None

    @property
    def only_updates_cache(self) -> bool:
        """Whether `process` only changes the cache of `cached_store`.

        If so, `process` reads nothing else, and the results are emitted by a flush or an eviction.
        Valid after `init`.
        """
        return False

    def init(self, context: OperatorContext) -> None:
        """Initialize the operator.

        Called before the first batch, with open and restored stores.
        """
        self.context = context

    def process(self, batch: Batch, output: Output) -> None:
        """Process a batch, which is never empty."""
        raise NotImplementedError

    def group(self, members: Mapping[str, Operator]) -> OperatorGroup | None:
        """Return the group of the operators that share stores.

        Returns None if the operators must process single records. `members` contains all of these
        operators by node, including this one.
        """
        return None

    def flush(self) -> None:
        """Emit the results that the cache of `cached_store` holds back.

        Called before each commit, in the order of the stores, and again if the store has changed in
        the meantime.
        """

    def close(self) -> None:
        """Release resources. Called when the task is suspended or closed."""
