"""Foreign-key joins in the DSL; the conformance scenarios cover their results."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError, TopologyError
from millstream.operators.joins.foreign_key_formats import (
    ForeignKeyResponse,
    ForeignKeySubscription,
)
from millstream.serdes import BYTES, LONG, STRING, Serde
from millstream.testing import TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KTable
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.nodes import SinkNode
from millstream.topology.physical.topology import Topology


def joined(left_join: bool = False, **options: Any) -> Topology:
    """Join rows of `left` with rows of `right`, to which they refer by their values."""
    builder = StreamsBuilder()
    left = builder.table("left", key=STRING, value=STRING)
    right = builder.table("right", key=STRING, value=STRING)
    join: Any = left.left_join if left_join else left.join
    options.setdefault("foreign_key", lambda value: value)
    join(right, lambda one, other: f"{one}+{other}", **options).to_stream().to("out", value=STRING)
    return builder.build()


def results(topology: Topology, *records: tuple[str, Any, str | None]) -> list[tuple[Any, Any]]:
    """Return the output after these records of `left` and `right`."""
    with TopologyTestDriver(topology) as driver:
        for topic, key, value in records:
            serde: Serde[Any] = BYTES if isinstance(key, bytes) else STRING
            driver.create_input_topic(topic, key=serde, value=STRING).pipe_input(key, value)
        return driver.create_output_topic("out", key=STRING, value=STRING).read_key_values()


def test_foreign_key_can_depend_on_the_key() -> None:
    """`with_key=True` passes the key first."""
    topology = joined(foreign_key=lambda key, value: f"{key}{value}", with_key=True)
    records = [("right", "ab", "R"), ("left", "a", "b")]
    assert results(topology, *records) == [("a", "b+R")]


def test_keys_of_the_right_table_can_be_bytes() -> None:
    """Left keys pass through the right side as bytes, separate from the right table's own keys."""
    builder = StreamsBuilder()
    left = builder.table("left", key=STRING, value=STRING)
    right = builder.table("right", key=BYTES, value=STRING)
    table: KTable[str, str] = left.join(
        right, lambda one, other: one + other, foreign_key=str.encode
    )
    table.to_stream().to("out", value=STRING)
    records = [("right", b"\xff", "no"), ("right", b"x", "R"), ("left", "a", "x")]
    assert results(builder.build(), *records) == [("a", "xR")]


def test_table_can_refer_to_itself() -> None:
    """An employee's boss is an employee."""
    builder = StreamsBuilder()
    staff = builder.table("left", key=STRING, value=STRING)
    bosses = staff.left_join(staff, lambda one, other: f"{one}<{other}", foreign_key=lambda v: v)
    bosses.to_stream().to("out", value=STRING)
    records = [("left", "ann", "bob"), ("left", "bob", "eve")]
    assert results(builder.build(), *records) == [
        ("ann", "bob<None"),
        ("ann", "bob<eve"),
        ("bob", "eve<None"),
    ]


@pytest.mark.parametrize("left_join", [False, True])
def test_a_response_to_an_older_row_is_dropped(left_join: bool) -> None:
    """A row that changes while its response is pending is only joined for its new value."""
    builder = StreamsBuilder()
    rows = Materialized("rows", caching=False)
    left = builder.table("left", key=STRING, value=STRING, store=rows)
    right = builder.table("right", key=STRING, value=STRING)
    join: Any = left.left_join if left_join else left.join
    join(right, lambda one, other: f"{one}+{other}", foreign_key=str).to_stream().to("out")
    with TopologyTestDriver(builder.build(), _config(default_value_serde=STRING)) as driver:
        driver.create_input_topic("right", key=STRING, value=STRING).pipe_input("x", "R")
        driver.create_input_topic("left", key=STRING, value=STRING).pipe_input("a", "x")
        # Delete the row without the operator of the table, so that the subscription stays.
        driver.get_state_store("rows").delete("a")
        driver.create_input_topic("right", key=STRING, value=STRING).pipe_input("x", "R2")
        out = driver.create_output_topic("out", key=STRING, value=STRING)
        assert out.read_key_values() == [("a", "x+R")]
        metrics = driver.metrics().items()
        assert [n for name, n in metrics if name.name == "dropped-records-total"] == [1]


def test_responses_go_to_the_partition_of_the_left_row() -> None:
    """It is part of the subscription, and independent of the hash of the key."""
    sink = joined().nodes["KTABLE-SINK-0000000015"]
    assert isinstance(sink, SinkNode)
    assert sink.partitioner is not None
    assert sink.partitioner("t", b"k", ForeignKeyResponse(None, None, 5), 9) == 5
    # A subscription of an old version has no partition: Kafka's default decides.
    assert sink.partitioner("t", b"k", ForeignKeyResponse(None, None, None), 9) is None


def test_subscriptions_contain_the_partition_of_the_task() -> None:
    """The test driver only has partition 0."""
    topology = joined(name="fk")
    with TopologyTestDriver(topology, _config()) as driver:
        driver.create_input_topic("left", key=STRING, value=STRING).pipe_input("a", "x")
        serde: Any = topology.nodes["fk-subscription-registration-sink"].value_serde  # type: ignore[union-attr]
        topic = driver.create_output_topic(
            "app-fk-subscription-registration-topic", key=STRING, value=serde
        )
        key, subscription = topic.read_key_value()
        assert key == "x"
        assert isinstance(subscription, ForeignKeySubscription)
        assert (subscription.primary_key, subscription.partition) == (b"a", 0)


def test_invalid_arguments_are_rejected() -> None:
    """Functions of a wrong type, and tables of two builders."""
    with pytest.raises(TypeError, match=r"^left_join\(\) needs a function as its foreign_key"):
        joined(left_join=True, foreign_key="id")
    with pytest.raises(TypeError, match="needs foreign_key"):
        joined(foreign_key=None, with_key=True)
    one, other = (StreamsBuilder().table("t", key=STRING, value=STRING) for _ in range(2))
    with pytest.raises(TopologyError, match=r"same StreamsBuilder .*test_foreign_key_join\.py:"):
        one.join(other, lambda a, b: a, foreign_key=lambda v: v)


def test_error_about_a_missing_serde_contains_the_location() -> None:
    """Only the join uses the serde with which values of the left table are hashed."""
    builder = StreamsBuilder()
    left = builder.table("left", key=STRING, value=STRING).map_values(len)
    right = builder.table("right", key=STRING, value=LONG)
    left.join(right, lambda one, other: one, foreign_key=str).to_stream().to("out", value=LONG)
    message = r"value serde of its left table.*declared at .*test_foreign_key_join\.py:"
    with pytest.raises(ConfigError, match=message):
        TopologyTestDriver(builder.build(), _config())
    TopologyTestDriver(builder.build(), _config(default_value_serde=LONG)).close()


def _config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="none:1", **settings)
