"""Upgrades: change a topology without losing its state.

State and internal topics are found again by their names. Names that are made by counting operators
move when an operator is put in, and the new version begins empty, in silence. So name every store,
grouping and repartition from the first day; `check_explicit_names()` in a test keeps it so. What a
new version would change is told by `millstream upgrade-check deployed.json app.py` before it runs:
keep `millstream describe app.py --facts` of what is deployed. If only operators without state have
changed, replace instances one by one; if stores or internal topics have, close the old ones first.
"""

from __future__ import annotations

import pytest

from millstream import StreamsBuilder, Topology, TopologyError
from millstream.serdes import LONG, STRING


def version_1(store: str | None = "clicks-per-page") -> Topology:
    """Clicks by user in, counts by page out."""
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
    """The same, but robots are left out: one operator more."""
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
    """The names by which its state is found again."""
    return {
        store
        for part in topology.describe().to_dict()["subtopologies"]
        for node in part["nodes"]
        for store in node.get("stores", ())
    }


def test_named_state_is_found_again() -> None:
    version_2().check_explicit_names()
    assert stores(version_1()) == stores(version_2()) == {"clicks-per-page"}


def test_generated_names_move() -> None:
    assert stores(version_1(None)) != stores(version_2(None))
    with pytest.raises(TopologyError):
        version_2(None).check_explicit_names()
