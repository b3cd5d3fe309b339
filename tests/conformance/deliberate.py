"""Deliberate differences between Millstream and Kafka Streams.

Each of them is a row of `docs/differences.md`. The recordings contain Kafka Streams' results. A
difference is only excused if the scenario agrees with Kafka Streams in every aspect once the
deliberate changes are undone. `RECORDED` lists the differing recordings, so that no others are
excused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from millstream.state.buffers.time_ordered_buffer import TimeOrderedBuffer
from millstream.state.builders.window_builders import WindowStoreBuilder
from millstream.topology.logical.graph_nodes import ProcessGraphNode
from millstream.topology.operations.joins import StreamSelfJoin

_DSL: Final = "millstream.topology.dsl"


class Deliberate(NamedTuple):
    """A deliberate difference.

    Attributes:
        row: the beginning of its row in `docs/differences.md`.
        undone: a context in which Millstream behaves like Kafka Streams.
    """

    row: str
    undone: Callable[[], AbstractContextManager[object]]


@contextmanager
def _ignore_changes_by_processors() -> Iterator[None]:
    def made(**arguments: Any) -> ProcessGraphNode:
        return ProcessGraphNode(**{**arguments, "changes_key": False, "changes_value": False})

    with patch(f"{_DSL}.stream_process.ProcessGraphNode", made):
        yield


@contextmanager
def _exclude_window_bounds() -> Iterator[None]:
    def store(*arguments: Any, **options: Any) -> WindowStoreBuilder[Any, Any]:
        return WindowStoreBuilder(*arguments, **{**options, "retention_inclusive": False})

    def self_join(
        store: str, before_ms: int, after_ms: int, retention_ms: int, joiner: Any
    ) -> StreamSelfJoin:
        # A record joins itself only if it is younger than the retention by two milliseconds.
        return StreamSelfJoin(store, before_ms, after_ms, retention_ms - 2, joiner)

    with (
        patch(f"{_DSL}.stream_stream_join.WindowStoreBuilder", store),
        patch(f"{_DSL}.stream_stream_join.StreamSelfJoin", self_join),
    ):
        yield


def _drop_replaced_old_values() -> AbstractContextManager[object]:
    return patch.object(TimeOrderedBuffer, "old_value_of", staticmethod(lambda value: value.old))


PROCESSORS: Final = Deliberate(
    "`optimize=True`, `process` or `process_values` between an operation that changes keys",
    _ignore_changes_by_processors,
)
EDGES: Final = Deliberate(
    "stream-stream joins: records exactly at the bounds of a window", _exclude_window_bounds
)
HELD_BACK: Final = Deliberate(
    "`suppress` before an operation that needs old values", _drop_replaced_old_values
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
    """Return the deliberate differences that explain a difference; none if it is not explained.

    Args:
        agrees: whether Millstream agrees with Kafka Streams at the moment.
    """
    choices: list[Sequence[Deliberate]] = [[each] for each in DELIBERATE]
    for chosen in [*choices, DELIBERATE]:
        with ExitStack() as stack:
            for each in chosen:
                stack.enter_context(each.undone())
            if agrees():
                return tuple(chosen)
    return ()
