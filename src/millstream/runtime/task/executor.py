"""Processing of a batch by a sub-topology, one operator at a time.

The results are the same as in Kafka Streams, which processes one record at a time, depth-first:
each store receives the same operations in the same order, and each topic receives the same records
in the same order. `steps` describes which nodes process single records, and
`millstream.operators.record_batch` describes how the records of merging paths are interleaved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from millstream.clock import Clock, SystemClock
from millstream.errors import text_of
from millstream.operators.concurrent.concurrent_operator import ConcurrentOperator
from millstream.operators.concurrent.runner_context import RunnerContext
from millstream.operators.operator import Operator, OperatorContext, OperatorGroup, Output
from millstream.operators.record_batch import Batch, Order, merge_batches
from millstream.operators.user_calls import UserCalls
from millstream.runtime.task.compile_operator import (
    compile_operator,
    with_interruptible_functions,
    with_interruptible_sink,
)
from millstream.runtime.task.sinks import Sink, SinkBuffer
from millstream.runtime.task.steps import (
    children_of,
    independent_nodes,
    needs_order,
    plan_steps,
    sinks_sharing_topics,
)
from millstream.runtime.task.task_meters import NodeMeter
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode

logger = logging.getLogger(__name__)

#: Creates the context of an operator from its node and output.
ContextFactory = Callable[[ProcessorNode, Output], OperatorContext]
SinkFactory = Callable[[SinkNode, "SinkBuffer | None"], Sink]


class _Source(Operator):
    def process(self, batch: Batch, output: Output) -> None:
        output.emit(batch)


class RuntimeNode:
    """A node at run time: its operator, the batches waiting for it, and its output."""

    __slots__ = ("inbox", "meter", "name", "operator", "output")

    def __init__(self, name: str, operator: Operator | Sink) -> None:
        self.name = name
        self.operator = operator
        self.inbox: list[Batch] = []
        self.output: _RuntimeNodeOutput
        #: Measures the node; None disables measuring.
        self.meter: NodeMeter | None = None

    def take_inbox(self) -> Batch:
        """Return the waiting batches as one batch. There must be at least one."""
        batches, self.inbox = self.inbox, []
        return merge_batches(batches)

    def work(self, batch: Batch) -> None:
        self.operator.process(batch, self.output)
        if self.meter is not None:
            self.meter.record_processed(batch.timestamps)


class _RuntimeNodeOutput:
    """The edges from a node to its children."""

    __slots__ = (
        "_any_in_step",
        "_children",
        "_in_step",
        "_only",
        "_positions",
        "children",
        "immediate",
        "ordered",
    )

    def __init__(
        self,
        children: Sequence[RuntimeNode],
        same_step: frozenset[str],
        *,
        independent: bool,
        ordered: bool,
    ) -> None:
        self._children = children
        self._only = children[0] if len(children) == 1 else None
        self._in_step = [child.name in same_step for child in children]
        self._any_in_step = any(self._in_step)
        self.immediate = self._any_in_step and not independent
        self.children = [child.name for child in children]
        self._positions = {name: position for position, name in enumerate(self.children)}
        self.ordered = ordered

    @property
    def may_wait(self) -> bool:
        """Whether records that the node has emitted may be waiting at another node."""
        return self._any_in_step or any(child.inbox for child in self._children)

    def emit(self, batch: Batch) -> None:
        if not batch.keys:
            return
        if self.immediate:
            # Some children share a store with this node, so each record must be processed
            # completely before the next one.
            for index in range(len(batch)):
                one = batch if len(batch) == 1 else batch.take([index])
                for position in range(len(self._children)):
                    self._deliver(position, one)
        elif self._only is not None and not self._any_in_step:
            self._only.inbox.append(batch)
        else:
            for position in range(len(self._children)):
                self._deliver(position, batch)

    def emit_to(self, child: str, batch: Batch) -> None:
        if not batch.keys:
            return
        position = self._positions[child]
        if self.immediate and self._in_step[position]:
            for index in range(len(batch)):
                self._deliver(position, batch if len(batch) == 1 else batch.take([index]))
        else:
            self._deliver(position, batch)

    def _deliver(self, position: int, batch: Batch) -> None:
        child = self._children[position]
        if self.ordered and self._only is None and batch.order is not None:
            batch = batch.with_order([(*rank, position) for rank in batch.order])
        if self._in_step[position]:
            child.work(batch)
        else:
            child.inbox.append(batch)


class Executor:
    """Runs the nodes of one sub-topology in one task, on its stream thread.

    Args:
        nodes: the nodes, in the order in which they were added to the topology.
        order_across_topics: whether outputs must be in depth-first order across topics, too.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        make_context: ContextFactory,
        make_sink: SinkFactory,
        *,
        order_across_topics: bool = False,
        runner_context: RunnerContext | None = None,
    ) -> None:
        #: Whether batches must carry depth-first positions.
        self.ordered = order_across_topics or needs_order(nodes)
        self._sink_buffer = SinkBuffer(order_across_topics)
        if order_across_topics:
            self._buffered_sinks = frozenset(n.name for n in nodes if isinstance(n, SinkNode))
        else:
            self._buffered_sinks = sinks_sharing_topics(nodes)
        #: The user functions of all nodes.
        self.calls = UserCalls()
        #: The names of the running nodes; after `run`, `flush` and `punctuate`, the names of the
        #: nodes that took longest.
        self.busiest = ""
        self._longest_ms = 0
        #: The clock that determines the busiest nodes.
        self.clock: Clock = SystemClock()
        self._nodes = nodes
        self._make_context = make_context
        self._runtime_nodes = self._make_runtime_nodes(nodes, make_sink)
        steps = plan_steps(nodes)
        self._connect(children_of(nodes), steps, independent_nodes(nodes, steps))
        self._steps = [[self._runtime_nodes[name] for name in step] for step in steps]
        self._step_names = [
            ", ".join(runtime_node.name for runtime_node in step) for step in self._steps
        ]
        self._groups = [_group_of(step) for step in self._steps]
        self._cached_operators = self._find_cached_operators()
        self._runner_context = runner_context
        self._source_meters: dict[str, NodeMeter] = {}
        self._meters: list[NodeMeter] = []
        self._concurrent = [
            (runtime_node.operator, runtime_node.output)
            for runtime_node in self._runtime_nodes.values()
            if isinstance(runtime_node.operator, ConcurrentOperator)
        ]

    def init(self) -> None:
        """Start the operators, in topology order. Their stores must be open and restored."""
        for node in self._nodes:
            if isinstance(node, ProcessorNode):
                runtime_node = self._runtime_nodes[node.name]
                operator = runtime_node.operator
                assert isinstance(operator, Operator)
                if isinstance(operator, ConcurrentOperator):
                    assert self._runner_context is not None, (
                        f"node {node.name} has no runner context"
                    )
                    operator.set_runner_context(self._runner_context)
                operator.init(self._make_context(node, runtime_node.output))

    def measure(self, meters: Mapping[str, NodeMeter]) -> None:
        sources = {node.name for node in self._nodes if isinstance(node, SourceNode)}
        self._source_meters = {name: meters[name] for name in sources & meters.keys()}
        self._meters = [meter for name, meter in meters.items() if name not in sources]
        for name in meters.keys() - sources:
            self._runtime_nodes[name].meter = meters[name]

    def run(self, batches: Sequence[tuple[str, Batch]]) -> None:
        """Process one task batch: one batch per source node, all from the same origin."""
        self._longest_ms = 0
        for source, batch in batches:
            meter = self._source_meters.get(source)
            if meter is not None:
                meter.record_emitted(batch)
            self._runtime_nodes[source].inbox.append(batch)
        self._run_steps()

    def flush(self, store: str) -> None:
        """Emit and process the results that the cache of a store holds back."""
        for operator, output in self._cached_operators.get(store, ()):
            self._longest_ms = 0
            operator.flush()
            if output.may_wait:
                self._run_steps()

    def punctuate(self, callback: Callable[[int], None], time_ms: int) -> None:
        """Call a punctuator, and process the records that it forwards."""
        self._longest_ms = 0
        callback(time_ms)
        self._run_steps()

    @property
    def remaining_capacity(self) -> int | None:
        """How many more records the concurrent operators accept; None for any number."""
        return min((operator.remaining_capacity for operator, _ in self._concurrent), default=None)

    @property
    def max_pending(self) -> int | None:
        """The maximum number of uncommittable records of a partition; None if unlimited."""
        return min((operator.max_pending for operator, _ in self._concurrent), default=None)

    @property
    def in_flight(self) -> int:
        """The number of records in flight in concurrent operators."""
        return sum(operator.in_flight for operator, _ in self._concurrent)

    @property
    def has_completions(self) -> bool:
        """Whether `release` may have something to do."""
        return any(operator.has_completions for operator, _ in self._concurrent)

    def release(self) -> Sequence[Batch]:
        """Process the results of completed records.

        Returns the records that are no longer in flight.
        """
        done: list[Batch] = []
        for operator, output in self._concurrent:
            batches = operator.release(output)
            # An operator may emit results before the record is completed.
            if batches or output.may_wait:
                self._run_steps()
            done += batches
        return done

    @property
    def awaits_delivery(self) -> bool:
        """Whether records are waiting for the delivery of their outputs."""
        return any(operator.awaits_delivery for operator, _ in self._concurrent)

    def on_delivered(self) -> None:
        """Report that all sent records were delivered or rejected."""
        for operator, _ in self._concurrent:
            operator.on_delivered()

    def halt(self) -> None:
        """Start no more calls for the records in flight."""
        for operator, _ in self._concurrent:
            operator.halt()

    @property
    def can_finish(self) -> bool:
        """Whether any record in flight may still complete.

        After `halt`, only running calls complete.
        """
        return any(operator.can_finish for operator, _ in self._concurrent)

    def close(self) -> None:
        """Close all operators, in topology order, then raise the first error."""
        failure: BaseException | None = None
        for node in self._nodes:
            if isinstance(node, ProcessorNode):
                operator = self._runtime_nodes[node.name].operator
                assert isinstance(operator, Operator)
                try:
                    operator.close()
                except BaseException as error:
                    # Even SystemExit must not stop the loop: the other nodes hold resources, too.
                    logger.warning("node %s did not close: %s", node.name, text_of(error))
                    failure = failure or error
        if failure is not None:
            raise failure

    def _run_steps(self) -> None:
        clock, longest_ms, busiest = self.clock, self._longest_ms, self.busiest
        for step, group, names in zip(self._steps, self._groups, self._step_names, strict=True):
            if not any(runtime_node.inbox for runtime_node in step):
                continue
            began_ms = clock.monotonic_ms()
            self.busiest = names
            if group is not None:
                _run_group(step, group)
            elif len(step) == 1:
                step[0].work(step[0].take_inbox())
            elif _only_update_caches(step):
                _update_caches(step)
            else:
                _run_record_by_record(step)
            took_ms = clock.monotonic_ms() - began_ms
            if took_ms >= longest_ms:
                longest_ms, busiest = took_ms, self.busiest
        self._longest_ms, self.busiest = longest_ms, busiest
        if self._buffered_sinks:
            self._sink_buffer.send()
        for meter in self._meters:
            meter.flush()

    def _make_runtime_nodes(
        self, nodes: Sequence[Node], make_sink: SinkFactory
    ) -> Mapping[str, RuntimeNode]:
        runtime_nodes: dict[str, RuntimeNode] = {}
        for node in nodes:
            operator: Operator | Sink
            if isinstance(node, SourceNode):
                operator = _Source()
            elif isinstance(node, ProcessorNode):
                operator = compile_operator(
                    with_interruptible_functions(node.operation, self.calls)
                )
                operator.make_interruptible = self.calls.add
            else:
                is_buffered = node.name in self._buffered_sinks
                sink = with_interruptible_sink(node, self.calls)
                operator = make_sink(sink, self._sink_buffer if is_buffered else None)
            runtime_nodes[node.name] = RuntimeNode(node.name, operator)
        return runtime_nodes

    def _find_cached_operators(self) -> Mapping[str, list[tuple[Operator, _RuntimeNodeOutput]]]:
        """Return the operators with results in each store's cache, in topology order."""
        found: dict[str, list[tuple[Operator, _RuntimeNodeOutput]]] = {}
        for node in self._nodes:
            runtime_node = self._runtime_nodes[node.name]
            operator = runtime_node.operator
            if isinstance(operator, Operator) and operator.cached_store is not None:
                found.setdefault(operator.cached_store, []).append((operator, runtime_node.output))
        return found

    def _connect(
        self, children: Mapping[str, list[str]], steps: list[list[str]], independent: frozenset[str]
    ) -> None:
        for step in steps:
            same_step = frozenset(step) if len(step) > 1 else frozenset()
            for name in step:
                followers = [self._runtime_nodes[child] for child in children[name]]
                self._runtime_nodes[name].output = _RuntimeNodeOutput(
                    followers, same_step, independent=name in independent, ordered=self.ordered
                )


def _group_of(step: list[RuntimeNode]) -> OperatorGroup | None:
    members = {s.name: s.operator for s in step if isinstance(s.operator, Operator)}
    groups = (operator.group(members) for operator in members.values())
    return next((group for group in groups if group is not None), None) if len(step) > 1 else None


def _run_group(step: list[RuntimeNode], group: OperatorGroup) -> None:
    waiting: dict[str, Batch] = {}
    for runtime_node in step:
        if runtime_node.inbox:
            waiting[runtime_node.name] = runtime_node.take_inbox()
    if waiting:
        group.run(waiting, {runtime_node.name: runtime_node.output for runtime_node in step})
    for runtime_node in step:
        if runtime_node.meter is not None and runtime_node.name in waiting:
            runtime_node.meter.record_processed(waiting[runtime_node.name].timestamps)


def _only_update_caches(step: list[RuntimeNode]) -> bool:
    """Return whether the waiting records only change the caches of different stores.

    Then the order among the nodes is not observable: cached tables are joined when they are
    flushed. This halves the time of such a join if records of two topics alternate.
    """
    stores: set[str | None] = set()
    for runtime_node in step:
        if runtime_node.inbox:
            operator = runtime_node.operator
            if not (isinstance(operator, Operator) and operator.only_updates_cache):
                return False
            if operator.cached_store in stores:
                return False
            stores.add(operator.cached_store)
    return True


def _update_caches(step: list[RuntimeNode]) -> None:
    """Process the waiting records of a step, one node after the other.

    Evicted entries include all earlier changes and are emitted in the order of eviction. If they
    were ordered by the records that evicted them, an older result could come last.
    """
    waiting = [
        (runtime_node, runtime_node.take_inbox()) for runtime_node in step if runtime_node.inbox
    ]
    last = max((batch.order[-1] for _, batch in waiting if batch.order), default=None)
    for turn, (runtime_node, batch) in enumerate(waiting):
        if last is not None:
            batch = batch.with_order([(*last, turn)] * len(batch))
        runtime_node.work(batch)


def _run_record_by_record(step: list[RuntimeNode]) -> None:
    """Process the records waiting at the nodes of a step, in depth-first order.

    A node processes one record at a time, because the next record may be waiting at another node
    that must read this record's writes to a store. If the next records wait at the same node, and
    it has no children in the step or is independent of them (`steps.independent_nodes`), the
    difference is not observable and the node processes them together. This reduces the time of a
    foreign-key join's subscriptions to a quarter.
    """
    waiting: list[tuple[Order, int, Batch, int]] = []
    for position, runtime_node in enumerate(step):
        batches, runtime_node.inbox = runtime_node.inbox, []
        for batch in batches:
            order = batch.order
            assert order is not None, "a step of several nodes needs records in order"
            waiting.extend((rank, position, batch, i) for i, rank in enumerate(order))
    waiting.sort(key=lambda entry: entry[:2])
    done, size = 0, len(waiting)
    while done < size:
        _, position, batch, index = waiting[done]
        runtime_node = step[position]
        start, done = done, done + 1
        if not runtime_node.output.immediate:
            while done < size and waiting[done][2] is batch:
                done += 1
        if done - start == len(batch):
            run = batch
        elif done - start == 1:
            run = batch.take([index])
        else:
            run = batch.take([entry[3] for entry in waiting[start:done]])
        runtime_node.work(run)
