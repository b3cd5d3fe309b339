"""The shapes of a sub-topology that make a commit wait until nothing is in flight."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import KStream, Materialized, Processor, StreamsBuilder, Topology
from millstream.parallel import Properties, Retry
from millstream.runtime.task.commit_barrier import concurrent_nodes, downstream_of, must_drain
from millstream.serdes import STRING
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.tasks.task_extraction import TaskReader

TEN_S = timedelta(seconds=10)
Stream = KStream[str, str]


async def answer(value: str) -> str:
    return value


class CustomProcessor(Processor[str, str, str, str]):
    """An arbitrary processor."""


def mapped_async(stream: Stream) -> Stream:
    return stream.map_async(answer)


def batched(stream: Stream) -> Stream:
    return stream.map_batches(answer)


def counted(stream: Stream) -> Any:
    kept = Materialized("kept", kind="in_memory", key=STRING)
    return stream.group_by_key(key=STRING, value=STRING).count(store=kept).to_stream()


def written(stream: Any, topic: str = "out") -> Any:
    return stream.to(topic, key=STRING, value=STRING)


def consumed(stream: Any) -> Any:
    return stream.for_each(keep)


def diamond(stream: Stream) -> None:
    """Both paths lead to the call."""
    left, right = stream.filter(keep), stream.filter_not(keep)
    written(mapped_async(left.merge(right)))


def keep(key: str, value: str) -> bool:
    return True


def branches(stream: Stream) -> None:
    """Records without a call take another path to the same sink."""
    mapped_async(stream.filter(keep)).merge(stream.filter_not(keep)).to("out")


#: The topology on a stream, and whether its commits wait without and with transactions.
SHAPES: dict[str, tuple[Callable[[Stream], object], bool, bool]] = {
    "none": (lambda s: written(s.filter(keep)), False, False),
    "alone": (lambda s: written(mapped_async(s)), False, False),
    "stateless before": (
        lambda s: written(mapped_async(s.filter(keep).map_values(str))),
        False,
        False,
    ),
    "batches": (lambda s: written(batched(s)), False, False),
    "batches behind a filter": (lambda s: written(batched(s.filter(keep))), False, False),
    "batches with a store before": (lambda s: written(batched(counted(s))), True, True),
    "batches with a sink beside": (lambda s: [written(batched(s)), written(s)], False, True),
    "batches behind calls": (lambda s: written(batched(mapped_async(s))), False, True),
    "batches in the loop": (lambda s: written(s.map_batches(list)), False, False),
    "a store behind": (lambda s: written(counted(mapped_async(s))), False, False),
    "two sinks behind": (
        lambda s: [written(x) for x in [mapped_async(s)] for _ in "12"],
        False,
        False,
    ),
    "a store before": (lambda s: written(mapped_async(counted(s))), True, True),
    "a store beside": (lambda s: [written(mapped_async(s)), counted(s)], False, True),
    "a sink beside": (lambda s: [written(mapped_async(s)), written(s, "too")], False, True),
    "for_each beside": (lambda s: [written(mapped_async(s)), consumed(s)], False, False),
    "a processor before": (
        lambda s: written(mapped_async(s.process(CustomProcessor))),
        False,
        True,
    ),
    "a processor behind": (
        lambda s: written(mapped_async(s).process(CustomProcessor)),
        False,
        False,
    ),
    "fanned out before": (lambda s: written(mapped_async(s.flat_map_values(list))), False, True),
    "fanned out behind": (lambda s: written(mapped_async(s).flat_map_values(list)), False, False),
    "two in a row": (lambda s: written(mapped_async(mapped_async(s))), False, True),
    "side by side": (lambda s: [written(mapped_async(s)), written(mapped_async(s))], False, True),
    "diamond": (diamond, False, True),
    "branches that meet": (branches, False, True),
}


def build_topology(make: Callable[[Stream], object]) -> Topology:
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING))
    return builder.build()


@pytest.mark.parametrize("name", SHAPES)
def test_commit_waits_where_necessary(name: str) -> None:
    make, at_least_once, exactly_once = SHAPES[name]
    (subtopology,) = build_topology(make)._subtopologies()
    assert must_drain(subtopology.nodes, exactly_once=False) is at_least_once
    assert must_drain(subtopology.nodes, exactly_once=True) is exactly_once


def test_dead_letters_are_written_where_a_record_fails() -> None:
    """The dead letter of a record above the committed offset would be in the transaction."""
    (subtopology,) = build_topology(lambda s: written(mapped_async(s)))._subtopologies()
    assert must_drain(subtopology.nodes, exactly_once=True, writes_letters=True)
    assert not must_drain(subtopology.nodes, exactly_once=False, writes_letters=True)
    (subtopology,) = build_topology(lambda s: written(s))._subtopologies()
    assert not must_drain(subtopology.nodes, exactly_once=True, writes_letters=True)


@pytest.mark.parametrize(
    ("retry", "drains_before_commit"), [(None, False), (Retry(backoff=TEN_S), True)]
)
def test_subscription_writes_in_the_order_of_completions(
    retry: Retry | None, *, drains_before_commit: bool
) -> None:
    """Not in the order of offsets, which a transaction needs."""
    plan = SubscriptionPlan(
        name="sub",
        chain=ProcessorChain.of(keep),
        reader=TaskReader(None, None, legacy_parse_fallback=False),
        properties=Properties(),
        retry=retry,
        on_error="skip",
    )
    for subtopology in subscription_topology(plan, "in", None)._subtopologies():
        assert not must_drain(subtopology.nodes, exactly_once=False)
        assert must_drain(subtopology.nodes, exactly_once=True) is drains_before_commit


def test_nodes_behind_a_concurrent_node() -> None:
    (subtopology,) = build_topology(
        lambda s: [written(mapped_async(s).filter(keep)), consumed(s)]
    )._subtopologies()
    (name,) = concurrent_nodes(subtopology.nodes)
    found = downstream_of(subtopology.nodes, [name])
    assert {each.split("-")[1] for each in found} == {"FILTER", "SINK"}
