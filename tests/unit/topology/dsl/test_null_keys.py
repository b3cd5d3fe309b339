"""Repartition topics that keep records without a key (KIP-962)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import JoinWindows
from millstream.serdes import STRING
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KStream
from millstream.topology.operations.streams import NullKeyFilter, PassThrough
from millstream.topology.physical.nodes import ProcessorNode

_WINDOWS = JoinWindows(timedelta(seconds=1))

Operations = Callable[[StreamsBuilder, KStream[Any, Any]], object]


def pair(one: Any, other: Any) -> Any:
    return (one, other)


def table(builder: StreamsBuilder) -> Any:
    return builder.table("t", key=STRING, value=STRING)


def other(builder: StreamsBuilder) -> Any:
    return builder.stream("other", key=STRING, value=STRING)


CASES: dict[str, tuple[Operations, list[bool]]] = {
    "inner stream join": (lambda b, s: s.join(other(b), pair, _WINDOWS), [False]),
    "left stream join": (lambda b, s: s.left_join(other(b), pair, _WINDOWS), [True]),
    "outer stream join": (lambda b, s: s.outer_join(other(b), pair, _WINDOWS), [True]),
    "inner table join": (lambda b, s: s.join(table(b), pair), [False]),
    "left table join": (lambda b, s: s.left_join(table(b), pair), [True]),
    "aggregation": (lambda b, s: s.group_by_key().count(), [False]),
    "join further down": (
        lambda b, s: s.repartition().filter(lambda k, v: True).left_join(table(b), pair),
        [True],
    ),
    "join behind two topics": (
        lambda b, s: s.repartition().select_key(pair).left_join(table(b), pair),
        [True, True],
    ),
    "join above": (
        lambda b, s: s.left_join(table(b), pair).select_key(pair).group_by_key().count(),
        [True, False],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_null_keys_are_kept_for_left_and_outer_joins(case: str) -> None:
    """In front of a left or outer join at any distance, and nowhere else."""
    operations, expected = CASES[case]
    builder = StreamsBuilder()
    operations(builder, builder.stream("in", key=STRING, value=STRING).select_key(pair))
    filters = [
        node.operation
        for node in builder.build().nodes.values()
        if isinstance(node, ProcessorNode)
        and "MERGE" not in node.name
        and isinstance(node.operation, NullKeyFilter | PassThrough)
    ]
    assert filters == [PassThrough() if passes else NullKeyFilter() for passes in expected]
