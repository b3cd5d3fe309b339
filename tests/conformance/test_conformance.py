"""Millstream has the same observable results as Kafka Streams 4.3.1 (see SCENARIOS.md).

`deliberate` lists the scenarios with deliberate differences and verifies that nothing else differs.

Where Kafka Streams fails because of a defect (`deviations`), the results up to that event are
compared, and Millstream must continue.

The comparison covers the outputs and the events that caused them, store contents, bytes in
changelogs and repartition topics, internal topics and their configs, sub-topologies, co-partition
groups, the description, dropped records, and errors.
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
    """No scenario is skipped."""
    found = differences(scenario)
    deliberately = RECORDED.get(name(scenario))
    if deliberately is None:
        assert found == {}
        return
    assert found, "listed in RECORDED, but does not differ"
    assert excuse(lambda: differences(scenario) == {}) == (deliberately,)


@pytest.mark.parametrize("deliberate", DELIBERATE, ids=lambda each: each.row)
def test_each_deliberate_difference_is_documented_and_recorded(deliberate: Deliberate) -> None:
    assert f"\n| {deliberate.row}" in DOCUMENTED.read_text(encoding="utf-8")
    assert deliberate in RECORDED.values()


def test_a_deliberate_difference_excuses_no_other_difference() -> None:
    """Method: change the expected output of a scenario with a deliberate difference."""
    changed = copy.deepcopy(next(each for each in scenarios() if name(each) in RECORDED))
    assert differences(changed, excused=True) == {}
    changed["expect"]["outputs"] = {"out": [["no such key", "no such value", 0]]}
    assert differences(changed, excused=True) != {}


def test_events_before_a_defect_are_recorded() -> None:
    """A scenario in which Kafka Streams fails has no store contents and bytes."""
    recorded = {(scenario["name"], len(scenario["events"])) for scenario in scenarios()}
    prefixes = [prefix for scenario in scenarios() if (prefix := before_defect(scenario))]
    assert len(prefixes) >= 3
    assert recorded >= {(prefix["name"], len(prefix["events"])) for prefix in prefixes}


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
def test_the_comparison_covers_each_aspect(aspect: str, place: tuple[Any, ...]) -> None:
    """Method: change one value of a matching expectation; only its aspect differs."""
    scenario = next(
        s for s in scenarios() if s["name"] == "an aggregate that is deleted late starts over"
    )
    changed = copy.deepcopy(scenario)
    part, key = changed["expect"], aspect
    for step in place:
        part, key = part[key], step
    part[key] = part[key].replace("S", "T") if aspect == "describe" else "something else"
    assert list(compare(changed, run(changed), ASPECTS)) == [aspect]


def test_the_comparison_covers_errors() -> None:
    """Missing errors and unexpected errors are differences."""
    fails = next(
        s for s in scenarios() if s["name"] == "a value that a sink cannot serialize, fail"
    )
    works = {**fails, "config": {**fails["config"], "processing_handler": "continue"}}
    assert list(compare(fails, run(works), ["error"])) == ["error"]
    without = {key: value for key, value in fails["expect"].items() if key != "error"}
    assert list(compare({**fails, "expect": without}, run(fails), ["error"])) == ["error"]
