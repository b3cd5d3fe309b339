"""Stores of tables, and rejected arguments of tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.errors import TopologyError
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KTable
from millstream.topology.options.materialized import Materialized

HISTORY = timedelta(minutes=1)


def concatenate(one: Any, other: Any) -> str:
    return f"{one}{other}"


def versioned(name: str | None = "V") -> Materialized:
    return Materialized(name, kind="versioned", history_retention=HISTORY)


def table(builder: StreamsBuilder, topic: str = "t", **options: Any) -> KTable[str, str]:
    return builder.table(topic, key=STRING, value=STRING, **options)


USES: dict[str, Callable[[StreamsBuilder, KTable[str, str]], object]] = {
    "to_stream": lambda b, t: t.to_stream(),
    "filter": lambda b, t: t.filter(lambda k, v: True),
    "map_values": lambda b, t: t.map_values(len).map_values(str),
    "join": lambda b, t: t.join(table(b, "u", store="U"), max),
    "read through two mappings": lambda b, t: b.stream("s").join(
        t.map_values(len).filter(lambda k, v: True), lambda a, c: a
    ),
    "group_by": lambda b, t: (
        t.filter(lambda k, v: True).group_by(lambda k, v: (k, v)).count(store="C")
    ),
    "left_join": lambda b, t: t.left_join(table(b, "u", store="U"), concatenate),
}


@pytest.mark.parametrize("use", USES)
def test_table_is_only_stored_if_it_is_read(use: str) -> None:
    builder = StreamsBuilder()
    stored = use not in ("to_stream", "filter", "map_values")
    USES[use](builder, table(builder))
    stores = {name for name in builder.build().state_stores if name.startswith("t-")}
    assert bool(stores) is stored


def test_mapped_table_with_a_store_is_read_from_it() -> None:
    """Its source then needs no store."""
    builder = StreamsBuilder()
    lengths = table(builder).map_values(len, store=Materialized("lengths", value=LONG))
    builder.stream("s", key=STRING, value=STRING).join(lengths, lambda a, b: a)
    assert lengths.queryable_store_name == "lengths"
    assert list(builder.build().state_stores) == ["lengths"]


def test_topic_of_a_table_can_be_its_changelog() -> None:
    builder = StreamsBuilder(optimize="reuse.ktable.source.topics")
    table(builder, store="T").to_stream().to("out")
    (part,) = builder.build()._subtopologies()
    assert part.changelogs == {"T": "t"}
    assert part.is_stateful
    assert part.decorate("t", "app") == "t"
    assert not part.stores["T"].logging


def test_topology_with_tables_can_be_pickled() -> None:
    """It is sent to workers, including getters that are nested functions."""
    builder = StreamsBuilder()
    left, right = table(builder), table(builder, "u")
    both = left.filter(lambda k, v: True).outer_join(right.map_values(str.upper), concatenate)
    builder.stream("s", key=STRING, value=STRING).join(both, concatenate).to("out")
    topology = cloudpickle.loads(cloudpickle.dumps(builder.build()))
    assert str(topology.describe()) == str(builder.build().describe())


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda b, t: t.join(table(StreamsBuilder()), max), "of the same StreamsBuilder"),
        (lambda b, t: b.table("u", store=Materialized("U", kind="versioned")), "history retention"),
        (lambda b, t: b.global_table("u", store=versioned()), "cannot be versioned"),
        (lambda b, t: b.stream("s").join(t, max, grace=HISTORY), "keeps old versions"),
        (lambda b, t: t.filter(max, store=Materialized("S", retention=HISTORY)), "for windows"),
        (lambda b, t: b.table("u", offset_reset="newest"), "no offset reset"),
    ],
)
def test_mistakes_are_rejected_at_their_declaration(
    mistake: Callable[..., object], message: str
) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=message) as raised:
        mistake(builder, table(builder))
    assert "test_tables.py" in str(raised.value)


def test_grace_period_beyond_the_history_is_rejected() -> None:
    """The history is known when the topology is built."""
    builder = StreamsBuilder()
    filtered = table(builder, store=versioned()).filter(lambda k, v: True)
    builder.stream("s", key=STRING, value=STRING).join(filtered, max, grace=2 * HISTORY)
    with pytest.raises(TopologyError, match="only for 60000 ms"):
        builder.build()


def test_wrong_types_are_rejected_at_their_declaration() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TypeError, match="needs another KTable"):
        table(builder).join(builder.stream("s"), max)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="needs foreign_key"):
        table(builder, "u").join(table(builder, "v"), max, with_key=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("method", ["table", "global_table"])
@pytest.mark.parametrize("serdes", [{}, {"key": LONG}, {"value": STRING}])
def test_topic_is_read_with_the_serdes_of_the_store(method: str, serdes: dict[str, Any]) -> None:
    """Those of `Materialized`, if the operation has none, as in Kafka Streams."""
    builder = StreamsBuilder()
    read = getattr(builder, method)
    read("prices", store=Materialized("s", key=LONG, value=STRING), **serdes)
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("prices", key=LONG, value=STRING).pipe_input(1, "b")
        found = [(key, stored.value) for key, stored in driver.get_state_store("s").all()]
    assert found == [(1, "b")]


def test_row_without_a_group_is_in_no_group() -> None:
    """A selector can return None: the row leaves its group, and enters no other one."""
    builder = StreamsBuilder()
    rows = table(builder)
    rows.group_by(
        lambda key, value: None if value == "none" else (value, value), key=STRING, value=STRING
    ).count(store="counts")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("t", key=STRING, value=STRING)
        counts = driver.get_state_store("counts")
        seen = []
        for value in ("a", "none", None, "none", "b"):
            topic.pipe_input("k", value)
            seen.append({group: stored.value for group, stored in counts.all()})
    assert seen == [{"a": 1}, {"a": 0}, {"a": 0}, {"a": 0}, {"a": 0, "b": 1}]
