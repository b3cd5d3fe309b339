"""Stream joins: checks of windows and stores, and the names of the stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import ConfigError, TopologyError
from millstream.serdes import LONG, STRING
from millstream.state.builders.window_builders import WindowStoreSupplier
from millstream.state.stores import Stores
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KStream
from millstream.topology.options.windows import JoinWindows
from millstream.topology.physical.topology import Topology

SECOND = timedelta(seconds=1)
NEAR = JoinWindows(SECOND, grace=SECOND)


def two_streams() -> tuple[StreamsBuilder, KStream[str, str], KStream[str, int]]:
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
    """Before and after can differ, and one of them can be negative."""
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
def test_invalid_windows_are_rejected(wrong: Any) -> None:
    """A window must not end before it starts."""
    with pytest.raises(ConfigError):
        wrong()


def test_streams_of_two_builders_cannot_be_joined() -> None:
    """Their nodes would be added to different topologies."""
    _, left, _ = two_streams()
    _, _, right = two_streams()
    with pytest.raises(TopologyError, match="the same StreamsBuilder"):
        left.join(right, together, NEAR)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stream", together), "needs windows"),
        (("stream", together, NEAR, {"key_selector": len}), "takes no key_selector"),
        (("stream", "no function", NEAR), "needs a function as its joiner"),
        (("table", together, NEAR), "takes no windows"),
        (("nothing", together, NEAR), "joins a stream with a KStream"),
    ],
)
def test_inconsistent_arguments_are_rejected(arguments: tuple[Any, ...], message: str) -> None:
    """Also in programs without a type checker."""
    _, left, right = two_streams()
    others: dict[str, Any] = {"stream": right, "table": right.to_table(), "nothing": None}
    *positional, options = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    join: Any = left.join
    with pytest.raises(TypeError, match=message):
        join(others[positional[0]], *positional[1:], **options)


def test_outer_join_is_only_for_streams() -> None:
    """A change of a table causes no result, so no result can be missing."""
    _, left, right = two_streams()
    outer_join: Any = left.outer_join
    with pytest.raises(TypeError, match=r"joins a stream with a KStream, but got KTable"):
        outer_join(right.to_table(), together)


def test_stores_can_be_specified() -> None:
    """The third store is named after the first one, and has its type."""
    builder, left, right = two_streams()
    stores: dict[str, Any] = {"this_store": supplier("mine"), "other_store": supplier("yours")}
    left.left_join(right, together, NEAR, name="j", **stores).to("out")
    built = builder.build().state_stores
    assert list(built) == ["mine", "yours", "mine-left-shared-join-store"]
    assert not any(store.persistent for store in built.values())


@pytest.mark.parametrize(
    ("this", "message"),
    [
        (supplier("yours"), "both named 'yours'"),
        (supplier("mine", retain_duplicates=False), "retain_duplicates=True"),
        (supplier("mine", window_size=SECOND), "2000 ms"),
        (supplier("mine", retention=4 * SECOND), "3000 ms"),
    ],
)
def test_stores_that_do_not_match_the_join_are_rejected(
    this: WindowStoreSupplier, message: str
) -> None:
    """They would lose records, or keep them for nothing."""
    _, left, right = two_streams()
    with pytest.raises(TopologyError, match=message):
        left.join(right, together, NEAR, this_store=this, other_store=supplier("yours"))


def changelogs(**options: Any) -> Topology:
    builder, left, right = two_streams()
    left.left_join(right, together, NEAR, store_name="s", **options).to("out")
    return builder.build()


def test_changelogs_of_a_join() -> None:
    """Windows are deleted by time and not compacted; the store of waiting records is compacted."""
    topics = changelogs(logging={"segment.bytes": "1000"})._changelog_topics()
    policies = {name: topic.config()["cleanup.policy"] for name, topic in topics.items()}
    assert policies == {
        "s-this-join-store-changelog": "delete",
        "s-outer-other-join-store-changelog": "delete",
        "s-left-shared-join-store-changelog": "compact",
    }
    assert {topic.config()["segment.bytes"] for topic in topics.values()} == {"1000"}
    assert changelogs(logging=False)._changelog_topics() == {}


def test_stores_use_the_serdes_of_the_streams() -> None:
    """The serdes do not need to be repeated; a key serde is sufficient on one side."""
    builder = StreamsBuilder()
    left = builder.stream("left", value=STRING)
    left.join(builder.stream("right", key=STRING, value=LONG), together, NEAR).to("out")
    stores: list[Any] = list(builder.build().state_stores.values())
    assert [(store.key_serde, store.value_serde) for store in stores] == [
        (STRING, STRING),
        (STRING, LONG),
    ]
