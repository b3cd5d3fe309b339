"""Joins of streams: which windows and stores are refused, and what the stores are called."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import ConfigError, TopologyError
from millstream.serdes import LONG, STRING
from millstream.state.builders.windows import WindowStoreSupplier
from millstream.state.stores import Stores
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KStream
from millstream.topology.options.join_windows import JoinWindows
from millstream.topology.physical.topology import Topology

SECOND = timedelta(seconds=1)
NEAR = JoinWindows(SECOND, grace=SECOND)


def two() -> tuple[StreamsBuilder, KStream[str, str], KStream[str, int]]:
    builder = StreamsBuilder()
    left = builder.stream("left", key=STRING, value=STRING)
    return builder, left, builder.stream("right", key=STRING, value=LONG)


def together(*values: Any) -> str:
    return "+".join(map(str, values))


def supplier(name: str, **changes: Any) -> WindowStoreSupplier:
    options: dict[str, Any] = {
        "retention": 3 * SECOND,
        "window_size": 2 * SECOND,
        "retain_duplicates": True,
    }
    return Stores.in_memory_window(name, **options | changes)


def test_bounds_of_a_window() -> None:
    """Before and after may differ, and one of them may be negative."""
    after = JoinWindows(SECOND, before=-SECOND, after=3 * SECOND, grace=SECOND)
    assert (after.before_ms, after.after_ms, after.size_ms) == (-1_000, 3_000, 2_000)
    assert after.retention_ms == 3_000


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: JoinWindows(-SECOND),
        lambda: JoinWindows(SECOND, grace=-SECOND),
        lambda: JoinWindows(SECOND, before=-2 * SECOND),
    ],
)
def test_a_window_that_cannot_be(wrong: Any) -> None:
    """A window must not end before it begins."""
    with pytest.raises(ConfigError):
        wrong()


def test_streams_of_two_builders_are_not_joined() -> None:
    """Their nodes would be written into different topologies."""
    _, left, _ = two()
    _, _, right = two()
    with pytest.raises(TopologyError, match="one StreamsBuilder"):
        left.join(right, together, NEAR)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("stream", together), "needs windows"),
        (("stream", together, NEAR, {"key_selector": len}), "takes no key_selector"),
        (("stream", "no function", NEAR), "needs a function as its joiner"),
        (("table", together, NEAR), "takes no windows"),
        (("nothing", together, NEAR), "joins a stream with a KStream"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[Any, ...], said: str) -> None:
    """Who uses no type checker gets an answer, too."""
    _, left, right = two()
    others: dict[str, Any] = {"stream": right, "table": right.to_table(), "nothing": None}
    *positional, options = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    join: Any = left.join
    with pytest.raises(TypeError, match=said):
        join(others[positional[0]], *positional[1:], **options)


def test_an_outer_join_is_for_streams_only() -> None:
    """A change of a table causes no result, so it cannot be missed."""
    _, left, right = two()
    outer_join: Any = left.outer_join
    with pytest.raises(TypeError, match=r"joins a stream with a KStream, but got KTable"):
        outer_join(right.to_table(), together)


def test_stores_may_be_given() -> None:
    """The third store is named after the first one, and is of its kind."""
    builder, left, right = two()
    stores: dict[str, Any] = {"this_store": supplier("mine"), "other_store": supplier("yours")}
    left.left_join(right, together, NEAR, name="j", **stores).to("out")
    built = builder.build().state_stores
    assert list(built) == ["mine", "yours", "mine-left-shared-join-store"]
    assert not any(store.persistent for store in built.values())


@pytest.mark.parametrize(
    ("this", "said"),
    [
        (supplier("yours"), "both called 'yours'"),
        (supplier("mine", retain_duplicates=False), "retain_duplicates=True"),
        (supplier("mine", window_size=SECOND), "2000 ms"),
        (supplier("mine", retention=4 * SECOND), "3000 ms"),
    ],
)
def test_a_store_that_does_not_suit_the_join(this: WindowStoreSupplier, said: str) -> None:
    """It would lose records, or keep them for nothing."""
    _, left, right = two()
    with pytest.raises(TopologyError, match=said):
        left.join(right, together, NEAR, this_store=this, other_store=supplier("yours"))


def changelogs(**options: Any) -> Topology:
    builder, left, right = two()
    left.left_join(right, together, NEAR, store_name="s", **options).to("out")
    return builder.build()


def test_changelogs_of_a_join() -> None:
    """Windows are deleted by time and not compacted; the records that wait are compacted."""
    topics = changelogs(logging={"segment.bytes": "1000"})._changelog_topics()
    policies = {name: topic.config()["cleanup.policy"] for name, topic in topics.items()}
    assert policies == {
        "s-this-join-store-changelog": "delete",
        "s-outer-other-join-store-changelog": "delete",
        "s-left-shared-join-store-changelog": "compact",
    }
    assert {topic.config()["segment.bytes"] for topic in topics.values()} == {"1000"}
    assert changelogs(logging=False)._changelog_topics() == {}


def test_serdes_of_the_streams_are_those_of_the_stores() -> None:
    """Nobody has to name them twice; a key serde is enough on one side."""
    builder = StreamsBuilder()
    left = builder.stream("left", value=STRING)
    left.join(builder.stream("right", key=STRING, value=LONG), together, NEAR).to("out")
    stores: list[Any] = list(builder.build().state_stores.values())
    assert [(store.key_serde, store.value_serde) for store in stores] == [
        (STRING, STRING),
        (STRING, LONG),
    ]
