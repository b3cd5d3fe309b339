"""A batch goes through a sub-topology, one operator at a time.

The results are those of Kafka Streams, which takes one record at a time, depth-first: each store
sees the same operations in the same order, each topic gets the same records in the same order.
How that is kept up is told in `steps` (who works on single records) and in
`millstream.operators.batch` (how meeting paths are interleaved).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from millstream.clock import Clock, SystemClock
from millstream.errors import text_of
from millstream.operators.apart.apart_operator import ApartOperator
from millstream.operators.apart.equipment import Equipment
from millstream.operators.batch import Batch, Order, merge_batches
from millstream.operators.interruption import UserCalls
from millstream.operators.operator import Operator, OperatorContext, Output, Team
from millstream.runtime.task.compile_operator import (
    compile_operator,
    with_guarded_calls,
    with_guarded_choices,
)
from millstream.runtime.task.node_meters import NodeMeter
from millstream.runtime.task.sinks import Sink, SinkMeeting
from millstream.runtime.task.steps import (
    children_of,
    independent_nodes,
    meeting_sinks,
    needs_order,
    plan_steps,
)
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode

logger = logging.getLogger(__name__)

#: Makes what an operator may ask of the engine, from the node and its output.
ContextFactory = Callable[[ProcessorNode, Output], OperatorContext]
SinkFactory = Callable[[SinkNode, "SinkMeeting | None"], Sink]


class _Source(Operator):
    def process(self, batch: Batch, output: Output) -> None:
        output.emit(batch)


class Station:
    """A node at work: its operator, the batches waiting for it, and its output."""

    __slots__ = ("inbox", "meter", "name", "operator", "output")

    def __init__(self, name: str, operator: Operator | Sink) -> None:
        self.name = name
        self.operator = operator
        self.inbox: list[Batch] = []
        self.output: _StationOutput
        #: None if nothing is measured here.
        self.meter: NodeMeter | None = None

    def take_inbox(self) -> Batch:
        """What waits, as one batch; something must."""
        batches, self.inbox = self.inbox, []
        return merge_batches(batches)

    def work(self, batch: Batch) -> None:
        """Let the operator work on a batch."""
        self.operator.process(batch, self.output)
        if self.meter is not None:
            self.meter.passed(batch.timestamps)


class _StationOutput:
    """The edges from a node to its children."""

    __slots__ = (
        "_any_inside",
        "_children",
        "_inside",
        "_only",
        "_positions",
        "children",
        "immediate",
        "ordered",
    )

    def __init__(
        self,
        children: Sequence[Station],
        same_step: frozenset[str],
        *,
        independent: bool,
        ordered: bool,
    ) -> None:
        self._children = children
        self._only = children[0] if len(children) == 1 else None
        self._inside = [child.name in same_step for child in children]
        self._any_inside = any(self._inside)
        self.immediate = self._any_inside and not independent
        self.children = [child.name for child in children]
        self._positions = {name: position for position, name in enumerate(self.children)}
        self.ordered = ordered

    @property
    def may_wait(self) -> bool:
        """Whether anything that the node has emitted may wait somewhere."""
        return self._any_inside or any(child.inbox for child in self._children)

    def emit(self, batch: Batch) -> None:
        if not batch.keys:
            return
        if self.immediate:
            # Children that share a store with this node: the next record must not come before
            # everything that this one causes is done.
            for index in range(len(batch)):
                one = batch if len(batch) == 1 else batch.take([index])
                for position in range(len(self._children)):
                    self._hand(position, one)
        elif self._only is not None and not self._any_inside:
            self._only.inbox.append(batch)
        else:
            for position in range(len(self._children)):
                self._hand(position, batch)

    def emit_to(self, child: str, batch: Batch) -> None:
        if not batch.keys:
            return
        position = self._positions[child]
        if self.immediate and self._inside[position]:
            for index in range(len(batch)):
                self._hand(position, batch if len(batch) == 1 else batch.take([index]))
        else:
            self._hand(position, batch)

    def _hand(self, position: int, batch: Batch) -> None:
        child = self._children[position]
        if self.ordered and self._only is None and batch.order is not None:
            batch = batch.with_order([(*place, position) for place in batch.order])
        if self._inside[position]:
            child.work(batch)
        else:
            child.inbox.append(batch)


class Executor:
    """The nodes of one sub-topology in one task.

    Args:
        nodes: the nodes, in the order in which they were added to the topology.
        make_context: gives each operator its context.
        make_sink: gives each sink node its sink.
        order_across_topics: whether outputs must be in depth-first order across topics, too.
        equipment: for operators whose work goes on beside the loop, if there are any.

    Attributes:
        ordered: whether records must come with their place in depth-first order.

    Not thread-safe: it belongs to the stream thread of its task.
    """

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
        self._meeting = SinkMeeting(order_across_topics)
        if order_across_topics:
            self._meeting_sinks = frozenset(n.name for n in nodes if isinstance(n, SinkNode))
        else:
            self._meeting_sinks = meeting_sinks(nodes)
        #: The user functions of all nodes.
        self.calls = UserCalls()
        #: The nodes at work, and after `run`, `flush` and `punctuate` those that took longest.
        self.busiest = ""
        self._longest_ms = 0
        #: Measures which nodes are busiest.
        self.clock: Clock = SystemClock()
        self._nodes = nodes
        self._make_context = make_context
        self._stations = self._make_stations(nodes, make_sink)
        steps = plan_steps(nodes)
        self._connect(children_of(nodes), steps, independent_nodes(nodes, steps))
        self._steps = [[self._stations[name] for name in step] for step in steps]
        self._step_names = [", ".join(station.name for station in step) for step in self._steps]
        self._teams = [_team(step) for step in self._steps]
        self._holding_back = self._find_holding_back()
        self._equipment = equipment
        self._source_meters: dict[str, NodeMeter] = {}
        self._meters: list[NodeMeter] = []
        self._apart = [
            (station.operator, station.output)
            for station in self._stations.values()
            if isinstance(station.operator, ApartOperator)
        ]

    def init(self) -> None:
        """Start the operators, in topology order. Their stores must be open and restored."""
        for node in self._nodes:
            if isinstance(node, ProcessorNode):
                station = self._stations[node.name]
                operator = station.operator
                assert isinstance(operator, Operator)
                if isinstance(operator, ApartOperator):
                    assert self._equipment is not None, f"node {node.name} lacks its equipment"
                    operator.equip(self._equipment)
                operator.init(self._make_context(node, station.output))

    def measure(self, meters: Mapping[str, NodeMeter]) -> None:
        """Let nodes be measured.

        Args:
            meters: by the names of nodes.
        """
        sources = {node.name for node in self._nodes if isinstance(node, SourceNode)}
        self._source_meters = {name: meters[name] for name in sources & meters.keys()}
        self._meters = [meter for name, meter in meters.items() if name not in sources]
        for name in meters.keys() - sources:
            self._stations[name].meter = meters[name]

    def run(self, batches: Sequence[tuple[str, Batch]]) -> None:
        """Work on one task batch: what each source node has read, from one origin."""
        self._longest_ms = 0
        for source, batch in batches:
            meter = self._source_meters.get(source)
            if meter is not None:
                meter.entered(batch)
            self._stations[source].inbox.append(batch)
        self._run_steps()

    def flush(self, store: str) -> None:
        """Let the nodes hand on what the cache of a store holds back, each with its effects."""
        for operator, output in self._holding_back.get(store, ()):
            self._longest_ms = 0
            operator.flush()
            if output.may_wait:
                self._run_steps()

    def punctuate(self, callback: Callable[[int], None], time_ms: int) -> None:
        """Call a node's punctuator, and work on what it forwards."""
        self._longest_ms = 0
        callback(time_ms)
        self._run_steps()

    @property
    def room(self) -> int | None:
        """How many records may be taken before something in flight is finished; None for any."""
        return min((operator.room for operator, _ in self._apart), default=None)

    @property
    def most_pending(self) -> int | None:
        """How many records of a partition may be in flight, or done behind one that is; None for
        any number."""
        return min((operator.most_pending for operator, _ in self._apart), default=None)

    @property
    def in_flight(self) -> int:
        """How many records are worked on beside the loop."""
        return sum(operator.in_flight for operator, _ in self._apart)

    @property
    def has_landed(self) -> bool:
        """Whether `release` may have something to do."""
        return any(operator.has_landed for operator, _ in self._apart)

    def release(self) -> Sequence[Batch]:
        """Work on what has come of records in flight; those that are not in flight any more."""
        done: list[Batch] = []
        for operator, output in self._apart:
            batches = operator.release(output)
            # What it writes of a record may come before the record is done.
            if batches or output.may_wait:
                self._run_steps()
            done += batches
        return done

    @property
    def awaits_sent(self) -> bool:
        """Whether records wait for what they have sent to arrive."""
        return any(operator.awaits_sent for operator, _ in self._apart)

    def sent(self) -> None:
        """Everything that was sent has arrived, or was refused."""
        for operator, _ in self._apart:
            operator.sent()

    def halt(self) -> None:
        """Begin nothing more of what is in flight."""
        for operator, _ in self._apart:
            operator.halt()

    @property
    def may_land(self) -> bool:
        """Whether anything in flight may still come to its end: after `halt` only what runs."""
        return any(operator.may_land for operator, _ in self._apart)

    def close(self) -> None:
        """Close the operators, in topology order.

        Every one is closed; the first error is raised at the end.
        """
        failure: BaseException | None = None
        for node in self._nodes:
            if isinstance(node, ProcessorNode):
                operator = self._stations[node.name].operator
                assert isinstance(operator, Operator)
                try:
                    operator.close()
                except BaseException as error:
                    # SystemExit as well: the other nodes hold resources of their own.
                    logger.warning("node %s did not close: %s", node.name, text_of(error))
                    failure = failure or error
        if failure is not None:
            raise failure

    def _run_steps(self) -> None:
        clock, longest_ms, busiest = self.clock, self._longest_ms, self.busiest
        for step, team, names in zip(self._steps, self._teams, self._step_names, strict=True):
            if not any(station.inbox for station in step):
                continue
            began_ms = clock.monotonic_ms()
            self.busiest = names
            if team is not None:
                _run_team(step, team)
            elif len(step) == 1:
                step[0].work(step[0].take_inbox())
            elif _only_fill_caches(step):
                _fill_caches(step)
            else:
                _run_record_by_record(step)
            took_ms = clock.monotonic_ms() - began_ms
            if took_ms >= longest_ms:
                longest_ms, busiest = took_ms, self.busiest
        self._longest_ms, self.busiest = longest_ms, busiest
        if self._meeting_sinks:
            self._meeting.send()
        for meter in self._meters:
            meter.settle()

    def _make_stations(
        self, nodes: Sequence[Node], make_sink: SinkFactory
    ) -> Mapping[str, Station]:
        stations: dict[str, Station] = {}
        for node in nodes:
            operator: Operator | Sink
            if isinstance(node, SourceNode):
                operator = _Source()
            elif isinstance(node, ProcessorNode):
                operator = compile_operator(with_guarded_calls(node.operation, self.calls))
                operator.guard = self.calls.add
            else:
                meets = node.name in self._meeting_sinks
                sink = with_guarded_choices(node, self.calls)
                operator = make_sink(sink, self._meeting if meets else None)
            stations[node.name] = Station(node.name, operator)
        return stations

    def _find_holding_back(self) -> Mapping[str, list[tuple[Operator, _StationOutput]]]:
        """By store: the operators that hold results back in its cache, in topology order."""
        found: dict[str, list[tuple[Operator, _StationOutput]]] = {}
        for node in self._nodes:
            station = self._stations[node.name]
            operator = station.operator
            if isinstance(operator, Operator) and operator.holds_back_in is not None:
                found.setdefault(operator.holds_back_in, []).append((operator, station.output))
        return found

    def _connect(
        self,
        children: Mapping[str, list[str]],
        steps: list[list[str]],
        independent: frozenset[str],
    ) -> None:
        for step in steps:
            same_step = frozenset(step) if len(step) > 1 else frozenset()
            for name in step:
                followers = [self._stations[child] for child in children[name]]
                self._stations[name].output = _StationOutput(
                    followers,
                    same_step,
                    independent=name in independent,
                    ordered=self.ordered,
                )


def _team(step: list[Station]) -> Team | None:
    members = {s.name: s.operator for s in step if isinstance(s.operator, Operator)}
    teams = (operator.team(members) for operator in members.values())
    return next((team for team in teams if team is not None), None) if len(step) > 1 else None


def _run_team(step: list[Station], team: Team) -> None:
    waiting: dict[str, Batch] = {}
    for station in step:
        if station.inbox:
            waiting[station.name] = station.take_inbox()
    if waiting:
        team.run(waiting, {station.name: station.output for station in step})
    for station in step:
        if station.meter is not None and station.name in waiting:
            station.meter.passed(waiting[station.name].timestamps)


def _only_fill_caches(step: list[Station]) -> bool:
    """Whether whatever waits at the nodes of a step just changes the caches of different stores.

    Nobody sees then who did so first: tables that are cached are joined when they are flushed. Half
    the time of such a join, where records of two topics alternate.
    """
    stores: set[str | None] = set()
    for station in step:
        if station.inbox:
            operator = station.operator
            if not (isinstance(operator, Operator) and operator.only_fills_cache):
                return False
            if operator.holds_back_in in stores:
                return False
            stores.add(operator.holds_back_in)
    return True


def _fill_caches(step: list[Station]) -> None:
    """Let the nodes of a step take all that waits, one after the other.

    What a cache gives up meanwhile has seen all that was done before, and goes on in that order:
    not by the records after which it was given up, or an older result would come last.
    """
    waiting = [(station, station.take_inbox()) for station in step if station.inbox]
    last = max((batch.order[-1] for _, batch in waiting if batch.order), default=None)
    for turn, (station, batch) in enumerate(waiting):
        if last is not None:
            batch = batch.with_order([(*last, turn)] * len(batch))
        station.work(batch)


def _run_record_by_record(step: list[Station]) -> None:
    """Work on what waits at the nodes of a step, in depth-first order.

    A node takes one record at a time, since the next one may wait at another node and must see
    what this one leaves in a store. Where the next ones wait at the same node, and none of its
    children is in the step or it is independent of them (`steps.independent_nodes`), nobody could
    tell the difference: it takes them together. Subscriptions of a foreign-key join take a quarter
    of the time so.
    """
    waiting: list[tuple[Order, int, Batch, int]] = []
    for position, station in enumerate(step):
        batches, station.inbox = station.inbox, []
        for batch in batches:
            order = batch.order
            assert order is not None, "a step of several nodes needs records in order"
            waiting.extend((place, position, batch, i) for i, place in enumerate(order))
    waiting.sort(key=lambda entry: entry[:2])
    done, size = 0, len(waiting)
    while done < size:
        _, position, batch, index = waiting[done]
        station = step[position]
        start, done = done, done + 1
        if not station.output.immediate:
            while done < size and waiting[done][2] is batch:
                done += 1
        if done - start == len(batch):
            run = batch
        elif done - start == 1:
            run = batch.take([index])
        else:
            run = batch.take([entry[3] for entry in waiting[start:done]])
        station.work(run)
