"""For which shapes of a sub-topology a commit waits until nothing is in flight."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import KStream, Materialized, Processor, StreamsBuilder, Topology
from millstream.parallel import Properties, Retry
from millstream.parallel.subscription_topology import subscription_topology
from millstream.runtime.task.landing import apart_nodes, behind, must_land
from millstream.serdes import STRING
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.processors import Chain
from millstream.subscriptions.tasks.extraction import TaskReader

TEN_S = timedelta(seconds=10)
Stream = KStream[str, str]


async def answer(value: str) -> str:
    return value


class Own(Processor[str, str, str, str]):
    """Does what it likes."""


def asked(stream: Stream) -> Stream:
    return stream.map_async(answer)


def batched(stream: Stream) -> Stream:
    return stream.map_batches(answer)


def counted(stream: Stream) -> Any:
    kept = Materialized("kept", kind="in_memory", key=STRING)
    return stream.group_by_key(key=STRING, value=STRING).count(store=kept).to_stream()


def written(stream: Any, topic: str = "out") -> Any:
    return stream.to(topic, key=STRING, value=STRING)


def ended(stream: Any) -> Any:
    return stream.for_each(keep)


def diamond(stream: Stream) -> None:
    """Both ways lead to it."""
    left, right = stream.filter(keep), stream.filter_not(keep)
    written(asked(left.merge(right)))


def keep(key: str, value: str) -> bool:
    return True


def branches(stream: Stream) -> None:
    """Those that are not asked about go another way, to the same place."""
    asked(stream.filter(keep)).merge(stream.filter_not(keep)).to("out")


#: What is built on a stream, and whether it lands without and with transactions.
SHAPES: dict[str, tuple[Callable[[Stream], object], bool, bool]] = {
    "none": (lambda s: written(s.filter(keep)), False, False),
    "alone": (lambda s: written(asked(s)), False, False),
    "straight before it": (lambda s: written(asked(s.filter(keep).map_values(str))), False, False),
    "batches": (lambda s: written(batched(s)), False, False),
    "batches behind a filter": (lambda s: written(batched(s.filter(keep))), False, False),
    "batches with a store before": (lambda s: written(batched(counted(s))), True, True),
    "batches with a sink beside": (lambda s: [written(batched(s)), written(s)], False, True),
    "batches behind calls": (lambda s: written(batched(asked(s))), False, True),
    "batches in the loop": (lambda s: written(s.map_batches(list)), False, False),
    "a store behind": (lambda s: written(counted(asked(s))), False, False),
    "two sinks behind": (lambda s: [written(x) for x in [asked(s)] for _ in "12"], False, False),
    "a store before": (lambda s: written(asked(counted(s))), True, True),
    "a store beside": (lambda s: [written(asked(s)), counted(s)], False, True),
    "a sink beside": (lambda s: [written(asked(s)), written(s, "too")], False, True),
    "an end beside": (lambda s: [written(asked(s)), ended(s)], False, False),
    "a processor before": (lambda s: written(asked(s.process(Own))), False, True),
    "a processor behind": (lambda s: written(asked(s).process(Own)), False, False),
    "fanned out before": (lambda s: written(asked(s.flat_map_values(list))), False, True),
    "fanned out behind": (lambda s: written(asked(s).flat_map_values(list)), False, False),
    "one behind the other": (lambda s: written(asked(asked(s))), False, True),
    "side by side": (lambda s: [written(asked(s)), written(asked(s))], False, True),
    "diamond": (diamond, False, True),
    "branches that meet": (branches, False, True),
}


def built(make: Callable[[Stream], object]) -> Topology:
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING))
    return builder.build()


@pytest.mark.parametrize("name", SHAPES)
def test_a_commit_waits_where_it_has_to(name: str) -> None:
    make, at_least_once, exactly_once = SHAPES[name]
    (part,) = built(make)._subtopologies()
    assert must_land(part.nodes, exactly_once=False) is at_least_once
    assert must_land(part.nodes, exactly_once=True) is exactly_once


def test_letters_are_written_where_a_record_fails() -> None:
    """That of a record behind the committed offset would be in the transaction."""
    (part,) = built(lambda s: written(asked(s)))._subtopologies()
    assert must_land(part.nodes, exactly_once=True, writes_letters=True)
    assert not must_land(part.nodes, exactly_once=False, writes_letters=True)
    (part,) = built(lambda s: written(s))._subtopologies()
    assert not must_land(part.nodes, exactly_once=True, writes_letters=True)


@pytest.mark.parametrize(("retry", "lands"), [(None, False), (Retry(backoff=TEN_S), True)])
def test_a_subscription_writes_as_its_tasks_end(retry: Retry | None, *, lands: bool) -> None:
    """Not in the order of their offsets, as a transaction needs it."""
    plan = SubscriptionPlan(
        name="sub",
        chain=Chain.of(keep),
        reader=TaskReader(None, None, legacy_parse_fallback=False),
        properties=Properties(),
        retry=retry,
        on_error="skip",
    )
    for part in subscription_topology(plan, "in", None)._subtopologies():
        assert not must_land(part.nodes, exactly_once=False)
        assert must_land(part.nodes, exactly_once=True) is lands


def test_what_lies_behind() -> None:
    (part,) = built(lambda s: [written(asked(s).filter(keep)), ended(s)])._subtopologies()
    (name,) = apart_nodes(part.nodes)
    found = behind(part.nodes, [name])
    assert {each.split("-")[1] for each in found} == {"FILTER", "SINK"}
