"""Queries have the same answers as in Kafka Streams, with and without caches, before and after
commits.

The answers of running Kafka Streams applications are recorded (tests/conformance/queries). Here, a
task answers the scenarios with one partition and one instance; tests/integration/query runs the
others in an application.
"""

from __future__ import annotations

import pytest
from conformance.queries.bench import QueryBench, answer_step
from conformance.queries.comparing import (
    Answer,
    ProcessedOffsets,
    difference,
    expected_answer,
    step_groups,
)
from conformance.queries.recording import recorded_scenarios
from conformance.queries.scenarios import Scenario, scenarios

RECORDED = {scenario["name"]: scenario for scenario in recorded_scenarios()}


def test_the_recording_matches_the_current_scenarios() -> None:
    """Goal: a changed scenario must be recorded again."""
    for scenario in scenarios():
        steps = [{**step} for step in RECORDED[scenario["name"]]["steps"]]
        for step in steps:
            step.pop("answer", None)
        assert {**RECORDED[scenario["name"]], "steps": steps} == scenario


@pytest.mark.parametrize("name", ["pairs", "windows", "sessions", "odd"])
def test_task_answers_match_kafka_streams(name: str) -> None:
    """Goal: values, order, failures and positions of both interfaces match Kafka Streams, except
    for the differences that `comparing` explains."""
    wrong = differences_of(RECORDED[name])
    assert not wrong, "\n".join(wrong)


def differences_of(scenario: Scenario) -> list[str]:
    """The unexpected answers of a task."""
    found: list[str] = []
    processed = ProcessedOffsets()
    with QueryBench(scenario) as bench:
        for group in step_groups(scenario):
            for step in group:
                if step["do"] == "ask":
                    theirs = expected_answer(step, group)
                    if wrong := difference(
                        step, theirs, answer_step(bench.queries, step), processed
                    ):
                        question = {key: value for key, value in step.items() if key != "answer"}
                        found.append(f"{question}: {wrong}")
                else:
                    bench.execute(step)
                    processed.add(step)
    return found


@pytest.mark.parametrize(
    ("ours", "is_right"),
    [
        ({"global": {"failure": "UNKNOWN_QUERY_TYPE"}, "partitions": {}, "only": "none"}, True),
        ({"global": {"failure": "STORE_EXCEPTION"}, "partitions": {}, "only": "none"}, False),
        ({"global": {"value": 1}, "partitions": {}, "only": "none"}, False),
        ({"partitions": {}, "only": "none"}, False),
        (
            {
                "global": {"failure": "UNKNOWN_QUERY_TYPE"},
                "partitions": {"0": {"value": "rubbish"}},
                "only": "one",
            },
            False,
        ),
    ],
)
def test_answers_of_global_stores_are_compared(ours: Answer, is_right: bool) -> None:
    theirs = {"global": {"failure": "UNKNOWN_QUERY_TYPE"}, "partitions": {}, "only": "none"}
    assert (difference({}, theirs, ours, ProcessedOffsets()) is None) == is_right


def test_an_answer_as_a_global_store_is_a_difference_for_other_stores() -> None:
    theirs: Answer = {"partitions": {}, "only": "none"}
    ours = {**theirs, "global": {"failure": "UNKNOWN_QUERY_TYPE"}}
    assert difference({}, theirs, ours, ProcessedOffsets()) is not None
