"""Where millstream deliberately computes something else than Kafka Streams.

Each of these is a row of `docs/differences.md`. The recordings stay as Kafka Streams made them. A
scenario that differs is excused only if all that is different goes away when the deliberate changes
are undone: then millstream agrees with Kafka Streams in every aspect. `RECORDED` names the recorded
scenarios that differ, so that no other one can hide behind the excuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from millstream.state.buffers.time_ordered_buffer import TimeOrderedBuffer
from millstream.state.builders.windows import WindowStoreBuilder
from millstream.topology.logical.graph_nodes import ProcessGraphNode
from millstream.topology.operations.joins import StreamSelfJoin

_DSL: Final = "millstream.topology.dsl"


class Deliberate(NamedTuple):
    """A deliberate difference.

    Attributes:
        row: the beginning of its row in `docs/differences.md`.
        undone: within it millstream does what Kafka Streams does.
    """

    row: str
    undone: Callable[[], AbstractContextManager[object]]


@contextmanager
def _processors_change_nothing() -> Iterator[None]:
    def made(**arguments: Any) -> ProcessGraphNode:
        return ProcessGraphNode(**{**arguments, "changes_key": False, "changes_value": False})

    with patch(f"{_DSL}.stream_process.ProcessGraphNode", made):
        yield


@contextmanager
def _edges_are_lost() -> Iterator[None]:
    def store(*arguments: Any, **options: Any) -> WindowStoreBuilder[Any, Any]:
        return WindowStoreBuilder(*arguments, **{**options, "keeps_edge": False})

    def self_join(
        store: str, before_ms: int, after_ms: int, retention_ms: int, joiner: Any
    ) -> StreamSelfJoin:
        # The record itself is joined if it is younger than the retention by two milliseconds.
        return StreamSelfJoin(store, before_ms, after_ms, retention_ms - 2, joiner)

    with (
        patch(f"{_DSL}.stream_stream_join.WindowStoreBuilder", store),
        patch(f"{_DSL}.stream_stream_join.StreamSelfJoin", self_join),
    ):
        yield


def _held_back_values_are_replaced() -> AbstractContextManager[object]:
    return patch.object(TimeOrderedBuffer, "replaced", staticmethod(lambda value: value.old))


PROCESSORS: Final = Deliberate(
    "`optimize=True`, `process` or `process_values` between an operation that changes keys",
    _processors_change_nothing,
)
EDGES: Final = Deliberate(
    "stream-stream joins: partners at the very edge of a window", _edges_are_lost
)
HELD_BACK: Final = Deliberate(
    "`suppress` before an operation that needs old values", _held_back_values_are_replaced
)
DELIBERATE: Final = (PROCESSORS, EDGES, HELD_BACK)

#: The recorded scenarios that differ, by group and name.
RECORDED: Final = {
    "repartition: repartition A/4": PROCESSORS,
    "repartition: repartition A/28": PROCESSORS,
    "repartition: repartition A/32": PROCESSORS,
    "repartition: self join and windowed count after select_key, optimize all": EDGES,
    "repartition: repartition A/14": EDGES,
    "stream_join: stream_join A/23": EDGES,
    "topology: topology A/12": EDGES,
    "topology: topology A/34": EDGES,
    "suppress: suppress then group_by uses old values": HELD_BACK,
    "suppress: suppress A/11": HELD_BACK,
    "suppress: suppress A/15": HELD_BACK,
    "stream_join: outer join: a search ends at the second value of one time and key": EDGES,
}


def excuse(agrees: Callable[[], bool]) -> tuple[Deliberate, ...]:
    """The deliberate differences without which millstream agrees; none if it does not agree.

    Args:
        agrees: whether it does, at the moment.
    """
    choices: list[Sequence[Deliberate]] = [[each] for each in DELIBERATE]
    for chosen in [*choices, DELIBERATE]:
        with ExitStack() as stack:
            for each in chosen:
                stack.enter_context(each.undone())
            if agrees():
                return tuple(chosen)
    return ()
