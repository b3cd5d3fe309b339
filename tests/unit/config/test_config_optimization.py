"""What `topology.optimization` may say, in the config and in `StreamsBuilder(optimize=...)`."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.config import StreamsConfig
from millstream.config_optimization import (
    ALL_OPTIMIZATIONS,
    MERGE_REPARTITION_TOPICS,
    SINGLE_STORE_SELF_JOIN,
    optimizations,
)
from millstream.errors import ConfigError
from millstream.runtime.check import check_building
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology

_TWO = f"{MERGE_REPARTITION_TOPICS} ,{SINGLE_STORE_SELF_JOIN}"


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (True, ALL_OPTIMIZATIONS),
        ("all", ALL_OPTIMIZATIONS),
        (False, frozenset()),
        ("none", frozenset()),
        ([], frozenset()),
        (_TWO, {MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN}),
        ([MERGE_REPARTITION_TOPICS], {MERGE_REPARTITION_TOPICS}),
    ],
)
def test_what_is_meant(choice: Any, meant: frozenset[str]) -> None:
    """A flag, a word, a list, or names between commas as Kafka Streams has them."""
    assert optimizations(choice) == meant


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("single.store.selfjoin", "Did you mean 'single.store.self.join'"),
        ("", "no optimization ''"),
        (f"all,{MERGE_REPARTITION_TOPICS}", "contradict each other"),
        (["none", "all"], "contradict each other"),
        ([7], "no optimization 7"),
    ],
)
def test_what_is_refused(choice: Any, said: str) -> None:
    """Unknown names, and all or none beside others; in both places where it can be said."""
    with pytest.raises(ConfigError, match=said):
        StreamsBuilder(optimize=choice)
    if isinstance(choice, str):
        with pytest.raises(ConfigError, match=f"topology_optimization: .*{said}"):
            config(choice)


def config(optimization: str | None = None) -> StreamsConfig:
    given: dict[str, Any] = {} if optimization is None else {"topology_optimization": optimization}
    return StreamsConfig(application_id="app", bootstrap_servers="none:1", **given)


def test_the_config_must_agree_with_the_builder() -> None:
    """Optimizing happens in build(), so a setting alone would silently do nothing."""
    plain, optimized = StreamsBuilder(), StreamsBuilder(optimize=_TWO)
    for builder in (plain, optimized):
        builder.stream("in").to("out")
        check_building(builder.build(), config())
    check_building(plain.build(), config("none"))
    check_building(optimized.build(), config(_TWO))
    with pytest.raises(ConfigError, match=r"built with none\..*StreamsBuilder\(optimize='all'\)"):
        check_building(plain.build(), config("all"))
    with pytest.raises(ConfigError, match=r"built with merge\.repartition\.topics, single"):
        check_building(optimized.build(), config("none"))


def test_a_topology_without_a_builder_is_not_optimized() -> None:
    """There is nothing to optimize, so the setting means nothing: follows Kafka Streams."""
    check_building(Topology().add_source("s", "in"), config("all"))
