"""Upgrades: change a topology without losing its state.

A new version finds its state and internal topics by name. Generated names contain a number that
changes when an operator is added; the new version then silently starts with empty stores. Therefore
name every store, grouping and repartition topic from the start; `check_explicit_names()` in a test
enforces this. Keep the output of `millstream describe app.py --facts` for the deployed version:
`millstream upgrade-check deployed.json app.py` then lists the effects of the new version before it
runs. If only stateless operators have changed, replace instances one by one. If stores or internal
topics have changed, stop all old instances first.
"""

from __future__ import annotations

import pytest

from millstream import StreamsBuilder, Topology, TopologyError
from millstream.serdes import LONG, STRING


def version_1(store: str | None = "clicks-per-page") -> Topology:
    """Count clicks by page. Clicks are keyed by user."""
    builder = StreamsBuilder()
    (
        builder.stream("clicks", key=STRING, value=STRING)
        .group_by(
            lambda user, page: page, key=STRING, value=STRING, name="by-page" if store else None
        )
        .count(store=store)
        .to_stream()
        .to("counts", key=STRING, value=LONG)
    )
    return builder.build()


def version_2(store: str | None = "clicks-per-page") -> Topology:
    """Count clicks by page, but ignore clicks of robots with one more operator."""
    builder = StreamsBuilder()
    (
        builder.stream("clicks", key=STRING, value=STRING)
        .filter(lambda user, page: not user.startswith("robot"))
        .group_by(
            lambda user, page: page, key=STRING, value=STRING, name="by-page" if store else None
        )
        .count(store=store)
        .to_stream()
        .to("counts", key=STRING, value=LONG)
    )
    return builder.build()


def stores(topology: Topology) -> set[str]:
    """Return the names of the stores."""
    return {
        store
        for part in topology.describe().to_dict()["subtopologies"]
        for node in part["nodes"]
        for store in node.get("stores", ())
    }


def test_explicit_names_stay() -> None:
    version_2().check_explicit_names()
    assert stores(version_1()) == stores(version_2()) == {"clicks-per-page"}


def test_generated_names_change() -> None:
    assert stores(version_1(None)) != stores(version_2(None))
    with pytest.raises(TopologyError):
        version_2(None).check_explicit_names()
