"""Record after record, depth-first: what the batch engine must not be distinguishable from.

Deliberately plain: no inboxes, no steps, no order. Each node is called with one record, and calls
its children with each record that it emits, before it is called with the next one. The operators
are the engine's own; whether they are right is for the comparison with Kafka Streams to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.operators.apart.apart_operator import ApartOperator
from millstream.operators.apart.equipment import Equipment
from millstream.operators.batch import Batch
from millstream.operators.interruption import UserCalls
from millstream.operators.operator import Operator
from millstream.runtime.task.compile_operator import compile_operator
from millstream.runtime.task.executor import ContextFactory, SinkFactory
from millstream.runtime.task.sinks import Sink
from millstream.runtime.task.steps import children_of, needs_order
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode


class _Calls:
    """A node, and the edges to its children, which are called at once.

    Args:
        name: of the node.
        operator: of a processor node, a sink, or None for a source.
    """

    immediate = True
    may_wait = True
    ordered = True

    def __init__(self, name: str, operator: Operator | Sink | None) -> None:
        self.name = name
        self.operator = operator
        self.followers: list[_Calls] = []

    @property
    def children(self) -> list[str]:
        return [child.name for child in self.followers]

    def take(self, record: Batch) -> None:
        if self.operator is None:
            self.emit(record)
        else:
            self.operator.process(record, self)

    def emit(self, batch: Batch) -> None:
        for index in range(len(batch)):
            for child in self.followers:
                child.take(batch.take([index]))

    def emit_to(self, child: str, batch: Batch) -> None:
        (follower,) = [each for each in self.followers if each.name == child]
        for index in range(len(batch)):
            follower.take(batch.take([index]))


class DepthFirst:
    """An executor that knows nothing of batches. Takes what `Executor` takes."""

    def __init__(
        self,
        nodes: Sequence[Node],
        make_context: ContextFactory,
        make_sink: SinkFactory,
        *,
        order_across_topics: bool = False,
        equipment: Equipment | None = None,
    ) -> None:
        self.ordered = order_across_topics or needs_order(nodes)
        self.calls, self.busiest = UserCalls(), ""
        self._nodes = nodes
        self._make_context = make_context
        self._calls = {node.name: _Calls(node.name, _made(node, make_sink)) for node in nodes}
        for name, children in children_of(nodes).items():
            self._calls[name].followers = [self._calls[child] for child in children]
        self._equipment = equipment
        self._apart = [
            (each.operator, each)
            for each in self._calls.values()
            if isinstance(each.operator, ApartOperator)
        ]

    def init(self) -> None:
        for operator, _ in self._apart:
            assert self._equipment is not None
            operator.equip(self._equipment)
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
            if isinstance(node, ProcessorNode) and self._operator(node).holds_back_in == store:
                self._operator(node).flush()

    def punctuate(self, callback: Callable[[int], None], time_ms: int) -> None:
        callback(time_ms)

    @property
    def room(self) -> int | None:
        return min((operator.room for operator, _ in self._apart), default=None)

    @property
    def most_pending(self) -> int | None:
        return min((operator.most_pending for operator, _ in self._apart), default=None)

    @property
    def in_flight(self) -> int:
        return sum(operator.in_flight for operator, _ in self._apart)

    @property
    def has_landed(self) -> bool:
        return any(operator.has_landed for operator, _ in self._apart)

    @property
    def awaits_sent(self) -> bool:
        return any(operator.awaits_sent for operator, _ in self._apart)

    def sent(self) -> None:
        for operator, _ in self._apart:
            operator.sent()

    def halt(self) -> None:
        for operator, _ in self._apart:
            operator.halt()

    @property
    def may_land(self) -> bool:
        return any(operator.may_land for operator, _ in self._apart)

    def release(self) -> Sequence[Batch]:
        return [done for operator, calls in self._apart for done in operator.release(calls)]

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
    # Sinks write at once: nobody has to put their records in order.
    return make_sink(node, None) if isinstance(node, SinkNode) else None
