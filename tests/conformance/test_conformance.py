"""Millstream does what Kafka Streams 4.3.1 was seen to do, in every aspect (see SCENARIOS.md).

Where millstream computes something else on purpose, `deliberate` says so, and checks that nothing
else differs.

Where Kafka Streams fails by a defect of its own (`deviations`), all is compared up to there, and
millstream has to get past it.

Compared are the outputs and which event caused them, the stores, the bytes in changelogs and
repartition topics, internal topics and their configs, sub-topologies, co-partition groups, the
description, dropped records, and errors.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from conformance.deliberate import DELIBERATE, RECORDED, Deliberate, excuse
from conformance.deviations import before_defect
from conformance.differences import differences
from conformance.vendored.interpret import ASPECTS, compare, run

DOCUMENTED = Path(__file__).parents[2] / "docs" / "differences.md"
VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.jsonl"))

Scenario = dict[str, Any]


def scenarios() -> list[Scenario]:
    return [
        json.loads(line)
        for path in VECTORS
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def name(scenario: Scenario) -> str:
    return f"{scenario['group']}: {scenario['name']}"


@pytest.mark.parametrize("scenario", scenarios(), ids=name)
def test_agrees_with_kafka_streams(scenario: Scenario) -> None:
    """Nothing is left out: an operator that is missing fails."""
    found = differences(scenario)
    deliberately = RECORDED.get(name(scenario))
    if deliberately is None:
        assert found == {}
        return
    assert found, "it is listed as differing"
    assert excuse(lambda: differences(scenario) == {}) == (deliberately,)


@pytest.mark.parametrize("deliberate", DELIBERATE, ids=lambda each: each.row)
def test_each_deliberate_difference_is_documented_and_recorded(deliberate: Deliberate) -> None:
    assert f"\n| {deliberate.row}" in DOCUMENTED.read_text(encoding="utf-8")
    assert deliberate in RECORDED.values()


def test_a_deliberate_difference_excuses_nothing_else() -> None:
    """Method: another value is expected of a scenario that differs deliberately."""
    changed = copy.deepcopy(next(each for each in scenarios() if name(each) in RECORDED))
    assert differences(changed, excused=True) == {}
    changed["expect"]["outputs"] = {"out": [["no such key", "no such value", 0]]}
    assert differences(changed, excused=True) != {}


def test_what_comes_before_a_defect_is_recorded_as_well() -> None:
    """A scenario that Kafka Streams does not bring to an end tells nothing of stores and bytes."""
    recorded = {(scenario["name"], len(scenario["events"])) for scenario in scenarios()}
    asked = [question for scenario in scenarios() if (question := before_defect(scenario))]
    assert len(asked) >= 3
    assert recorded >= {(question["name"], len(question["events"])) for question in asked}


@pytest.mark.parametrize(
    ("aspect", "place"),
    [
        ("outputs", ("out", 0, 1)),
        ("at", ("out", 0)),
        ("changelog", ("app-S-changelog", 0, 0)),
        ("stores", ("S", "entries", 0, 1)),
        ("dropped", ()),
        ("topics", ("app-S-changelog", "config", "cleanup.policy")),
        ("subtopologies", (0, "id")),
        ("copartition", ()),
        ("describe", ()),
    ],
)
def test_the_comparison_sees_each_aspect(aspect: str, place: tuple[Any, ...]) -> None:
    """Method: an expectation that agrees is changed in one place; that aspect alone fails."""
    scenario = next(
        s for s in scenarios() if s["name"] == "an aggregate that is deleted late starts over"
    )
    changed = copy.deepcopy(scenario)
    part, key = changed["expect"], aspect
    for step in place:
        part, key = part[key], step
    part[key] = part[key].replace("S", "T") if aspect == "describe" else "something else"
    assert list(compare(changed, run(changed), ASPECTS)) == [aspect]


def test_the_comparison_sees_errors() -> None:
    """An error that does not come, and one that comes unexpectedly, are differences."""
    fails = next(
        s for s in scenarios() if s["name"] == "a value that a sink cannot serialize, fail"
    )
    works = {**fails, "config": {**fails["config"], "processing_handler": "continue"}}
    assert list(compare(fails, run(works), ["error"])) == ["error"]
    without = {key: value for key, value in fails["expect"].items() if key != "error"}
    assert list(compare({**fails, "expect": without}, run(fails), ["error"])) == ["error"]
