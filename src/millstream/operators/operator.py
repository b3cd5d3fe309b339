"""What an operator is to the engine, and what the engine offers to an operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.metrics.registry import Scope
from millstream.operators.batch import Batch
from millstream.processor.task_context import TaskContext
from millstream.record import TaskId


class Output(Protocol):
    """Where an operator puts what it produces: the edges to the node's children."""

    @property
    def children(self) -> Collection[str]:
        """The names of the children, in the order in which they were attached."""
        ...

    @property
    def immediate(self) -> bool:
        """Whether some child works on what is emitted at once, as it shares a store."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether batches are to have an order, since paths meet somewhere."""
        ...

    def emit(self, batch: Batch) -> None:
        """Hand a batch to every child, in the order in which the children were attached."""
        ...

    def emit_to(self, child: str, batch: Batch) -> None:
        """Hand a batch to the child of that name alone."""
        ...


class OperatorContext(Protocol):
    """What an operator of one task may ask of the engine."""

    @property
    def node(self) -> str:
        """The name of the operator's node."""
        ...

    @property
    def task_id(self) -> TaskId: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> StreamsConfig:
        """The application's settings, which also hold the default serdes."""
        ...

    @property
    def task(self) -> TaskContext:
        """The task: the record at hand, time, schedules."""
        ...

    @property
    def output(self) -> Output:
        """The node's own output, for what is emitted outside of `process`, such as a flush."""
        ...

    @property
    def metrics(self) -> Scope:
        """Where the node's own metrics are."""
        ...

    @property
    def may_continue(self) -> bool:
        """Whether a failure of user code may be answered by leaving the record out."""
        ...

    def store(self, name: str) -> Any:
        """The store of that name as operators use it: connected to the node, or a global one."""
        ...

    def typed_store(self, name: str) -> Any:
        """The same store as processors use it, for example a `KeyValueStore`.

        Global stores are read-only, except for what fills them.

        Raises:
            StreamsError: the store is not connected, or there is none of that name.
        """
        ...

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        """User code raised `error` on a record: drop that record alone, or raise.

        Raises:
            ProcessingError: the processing exception handler says FAIL.
        """
        ...

    def dropped(self, count: int, why: str, windows: int | None = None) -> None:
        """Some records were left out on purpose: counted, and logged at most once a batch.

        Args:
            count: how many records.
            why: for the log.
            windows: how many windows they are missing from; None if they were dropped whole.
        """
        ...


class Team(Protocol):
    """Operators that share stores and know how to work on whole batches together."""

    def run(self, waiting: Mapping[str, Batch], outputs: Mapping[str, Output]) -> None:
        """Work on all that waits, with the results of one record at a time, depth-first.

        Args:
            waiting: what waits for each node that something waits for; records have their order.
            outputs: of all nodes of the team, by their names.
        """
        ...


def _unguarded(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Operator:
    """One processor node at work in one task. Batches in, batches out.

    Whatever it emits for one record must come before whatever it emits for the next one, and must
    not depend on how the records were cut into batches.
    """

    context: OperatorContext
    #: Gives a user function as one whose calls can be stopped; set before `init`.
    guard: Callable[[Callable[..., Any]], Callable[..., Any]] = staticmethod(_unguarded)

    @property
    def holds_back_in(self) -> str | None:
        """The store whose cache holds back what this operator has still to emit; None if none.

        Operators may share one: then any of them emits for all.
        """
        return None

    @property
    def only_fills_cache(self) -> bool:
        """Whether records just change the cache of `holds_back_in`, of which nothing goes on before
        a flush or an eviction, and read nothing else. Asked after `init`."""
        return False

    def init(self, context: OperatorContext) -> None:
        """Called once the task's stores are open and restored, before the first batch."""
        self.context = context

    def process(self, batch: Batch, output: Output) -> None:
        """Work on a batch, which is never empty."""
        raise NotImplementedError

    def team(self, members: Mapping[str, Operator]) -> Team | None:
        """How nodes that share stores work together; None if they take one record at a time.

        Args:
            members: all operators that share stores with this one, by their nodes, itself included.
        """
        return None

    def flush(self) -> None:
        """Emit what the cache of `holds_back_in` holds back.

        Called before each commit, in the order of the stores, and again if somebody has changed
        that store meanwhile.
        """

    def close(self) -> None:
        """Called when the task is suspended or closed."""
