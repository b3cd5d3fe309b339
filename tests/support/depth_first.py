"""Record after record, depth-first: what the batch engine must not be distinguishable from.

Deliberately plain: no inboxes, no steps, no order. Each node is called with one record, and calls
its children with each record that it emits, before it is called with the next one. The operators
are the engine's own; whether they are right is for the comparison with Kafka Streams to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from millstream.operators.batch import Batch
from millstream.runtime.task.executor import Executor, SinkFactory
from millstream.topology.physical.nodes import Node


class _Recursion:
    """The edges from a node to its children, which are called at once."""

    immediate = True
    may_wait = True

    def __init__(self, children: Sequence[Any]) -> None:
        self._children = children
        self.children = [child.name for child in children]

    def emit(self, batch: Batch) -> None:
        for index in range(len(batch)):
            for child in self._children:
                child.operator.process(batch.take([index]), child.output)

    def emit_to(self, child: str, batch: Batch) -> None:
        station = next(each for each in self._children if each.name == child)
        for index in range(len(batch)):
            station.operator.process(batch.take([index]), station.output)


class DepthFirst(Executor):
    """An executor that knows nothing of batches."""

    def run(self, batches: Sequence[tuple[str, Batch]]) -> None:
        assert sum(len(batch) for _, batch in batches) == 1
        for source, batch in batches:
            station = self._stations[source]
            station.operator.process(batch, station.output)

    def _run_steps(self) -> None:
        """Nothing waits anywhere."""

    def _make_stations(self, nodes: Sequence[Node], make_sink: SinkFactory) -> Mapping[str, Any]:
        # Sinks write at once: nobody has to put their records in order.
        return super()._make_stations(nodes, lambda node, meeting: make_sink(node, None))

    def _connect(self, children: Mapping[str, list[str]], steps: list[list[str]]) -> None:
        for name, followers in children.items():
            station: Any = self._stations[name]
            station.output = _Recursion([self._stations[child] for child in followers])


@contextmanager
def depth_first_tasks() -> Iterator[None]:
    """Tasks made in here run depth-first."""
    with patch("millstream.runtime.task.build_task.Executor", DepthFirst):
        yield
