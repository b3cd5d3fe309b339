"""Values of `topology.optimization`, in the config and in `StreamsBuilder(optimize=...)`."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.config.validation import (
    ALL_OPTIMIZATIONS,
    MERGE_REPARTITION_TOPICS,
    SINGLE_STORE_SELF_JOIN,
    optimizations,
)
from millstream.errors import ConfigError
from millstream.runtime.start.topology_checks import check_build_settings
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology

_TWO = f"{MERGE_REPARTITION_TOPICS} ,{SINGLE_STORE_SELF_JOIN}"


@pytest.mark.parametrize(
    ("choice", "expected"),
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
def test_optimization_values(choice: Any, expected: frozenset[str]) -> None:
    """A bool, a word, a list, or comma-separated names as in Kafka Streams."""
    assert optimizations(choice) == expected


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("single.store.selfjoin", "Did you mean 'single.store.self.join'"),
        ("", "no topology optimization ''"),
        (f"all,{MERGE_REPARTITION_TOPICS}", "contradict each other"),
        (["none", "all"], "contradict each other"),
        ([7], "no topology optimization 7"),
    ],
)
def test_invalid_optimization_values(choice: Any, message: str) -> None:
    """Unknown names, and all or none with others; in both places."""
    with pytest.raises(ConfigError, match=message):
        StreamsBuilder(optimize=choice)
    if isinstance(choice, str):
        with pytest.raises(ConfigError, match=f"topology_optimization: .*{message}"):
            config(choice)


def config(optimization: str | None = None) -> StreamsConfig:
    given: dict[str, Any] = {} if optimization is None else {"topology_optimization": optimization}
    return StreamsConfig(application_id="app", bootstrap_servers="none:1", **given)


def test_the_config_must_agree_with_the_builder() -> None:
    """`build()` optimizes, so a setting alone would silently have no effect."""
    plain, optimized = StreamsBuilder(), StreamsBuilder(optimize=_TWO)
    for builder in (plain, optimized):
        builder.stream("in").to("out")
        check_build_settings(builder.build(), config())
    check_build_settings(plain.build(), config("none"))
    check_build_settings(optimized.build(), config(_TWO))
    with pytest.raises(ConfigError, match=r"built with none\..*StreamsBuilder\(optimize='all'\)"):
        check_build_settings(plain.build(), config("all"))
    with pytest.raises(ConfigError, match=r"built with merge\.repartition\.topics, single"):
        check_build_settings(optimized.build(), config("none"))


def test_a_topology_without_a_builder_is_not_optimized() -> None:
    """As in Kafka Streams, the setting has no effect."""
    check_build_settings(Topology().add_source("s", "in"), config("all"))
