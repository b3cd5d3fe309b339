"""A record-at-a-time, depth-first executor; the batch engine must have the same results.

It is deliberately simple: no inboxes, no steps, no order. Each node is called with one record, and
passes each emitted record to its children before it gets the next one. The operators are the
engine's own; the comparison with Kafka Streams tests them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.operators.concurrent.concurrent_operator import ConcurrentOperator
from millstream.operators.concurrent.runner_context import RunnerContext
from millstream.operators.operator import Operator
from millstream.operators.record_batch import Batch
from millstream.operators.user_calls import UserCalls
from millstream.runtime.task.compile_operator import compile_operator
from millstream.runtime.task.executor import ContextFactory, SinkFactory
from millstream.runtime.task.sinks import Sink
from millstream.runtime.task.steps import children_of, needs_order
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode


class _Calls:
    """A node, and the edges to its children, which are called immediately."""

    immediate = True
    may_wait = True
    ordered = True

    def __init__(self, name: str, operator: Operator | Sink | None) -> None:
        self.name = name
        self.operator = operator
        self.descendants: list[_Calls] = []

    @property
    def children(self) -> list[str]:
        return [child.name for child in self.descendants]

    def take(self, record: Batch) -> None:
        if self.operator is None:
            self.emit(record)
        else:
            self.operator.process(record, self)

    def emit(self, batch: Batch) -> None:
        for index in range(len(batch)):
            for child in self.descendants:
                child.take(batch.take([index]))

    def emit_to(self, child: str, batch: Batch) -> None:
        (follower,) = [each for each in self.descendants if each.name == child]
        for index in range(len(batch)):
            follower.take(batch.take([index]))


class DepthFirst:
    """A record-at-a-time executor with the interface of `Executor`."""

    def __init__(
        self,
        nodes: Sequence[Node],
        make_context: ContextFactory,
        make_sink: SinkFactory,
        *,
        order_across_topics: bool = False,
        runner_context: RunnerContext | None = None,
    ) -> None:
        self.ordered = order_across_topics or needs_order(nodes)
        self.calls, self.busiest = UserCalls(), ""
        self._nodes = nodes
        self._make_context = make_context
        self._calls = {node.name: _Calls(node.name, _made(node, make_sink)) for node in nodes}
        for name, children in children_of(nodes).items():
            self._calls[name].descendants = [self._calls[child] for child in children]
        self._runner_context = runner_context
        self._concurrent = [
            (each.operator, each)
            for each in self._calls.values()
            if isinstance(each.operator, ConcurrentOperator)
        ]

    def init(self) -> None:
        for operator, _ in self._concurrent:
            assert self._runner_context is not None
            operator.set_runner_context(self._runner_context)
        for node in self._nodes:
            if isinstance(node, ProcessorNode):
                calls = self._calls[node.name]
                self._operator(node).init(self._make_context(node, calls))

    def run(self, batches: Sequence[tuple[str, Batch]]) -> None:
        ((source, batch),) = [each for each in batches if len(each[1])]
        assert len(batch) == 1
        self._calls[source].take(batch)

    def flush(self, store: str) -> None:
        for node in self._nodes:
            if isinstance(node, ProcessorNode) and self._operator(node).cached_store == store:
                self._operator(node).flush()

    def punctuate(self, callback: Callable[[int], None], time_ms: int) -> None:
        callback(time_ms)

    @property
    def remaining_capacity(self) -> int | None:
        return min((operator.remaining_capacity for operator, _ in self._concurrent), default=None)

    @property
    def max_pending(self) -> int | None:
        return min((operator.max_pending for operator, _ in self._concurrent), default=None)

    @property
    def in_flight(self) -> int:
        return sum(operator.in_flight for operator, _ in self._concurrent)

    @property
    def has_completions(self) -> bool:
        return any(operator.has_completions for operator, _ in self._concurrent)

    @property
    def awaits_delivery(self) -> bool:
        return any(operator.awaits_delivery for operator, _ in self._concurrent)

    def on_delivered(self) -> None:
        for operator, _ in self._concurrent:
            operator.on_delivered()

    def halt(self) -> None:
        for operator, _ in self._concurrent:
            operator.halt()

    @property
    def can_finish(self) -> bool:
        return any(operator.can_finish for operator, _ in self._concurrent)

    def release(self) -> Sequence[Batch]:
        return [done for operator, calls in self._concurrent for done in operator.release(calls)]

    def close(self) -> None:
        for node in self._nodes:
            if isinstance(node, ProcessorNode):
                self._operator(node).close()

    def _operator(self, node: ProcessorNode) -> Operator:
        operator = self._calls[node.name].operator
        assert isinstance(operator, Operator)
        return operator


def _made(node: Node, make_sink: SinkFactory) -> Operator | Sink | None:
    if isinstance(node, ProcessorNode):
        return compile_operator(node.operation)
    # Sinks write immediately: no order must be restored.
    return make_sink(node, None) if isinstance(node, SinkNode) else None
