"""Our stores answer queries as Kafka Streams' do, cached or not, before and after commits.

What running applications of Kafka Streams have answered is recorded (tests/conformance/queries).
The scenarios of one partition and one instance are asked here, of a task; the others of an
application, in tests/integration/query.
"""

from __future__ import annotations

import pytest
from conformance.queries.bench import QueryBench, ask
from conformance.queries.comparing import Answer, Fed, difference, due, moments
from conformance.queries.recording import recorded
from conformance.queries.scenarios import Scenario, scenarios

RECORDED = {scenario["name"]: scenario for scenario in recorded()}


def test_the_recording_answers_the_questions_of_today() -> None:
    """Goal: whoever changes a question records the answers anew."""
    for scenario in scenarios():
        steps = [{**step} for step in RECORDED[scenario["name"]]["steps"]]
        for step in steps:
            step.pop("answer", None)
        assert {**RECORDED[scenario["name"]], "steps": steps} == scenario


@pytest.mark.parametrize("name", ["pairs", "windows", "sessions", "odd"])
def test_a_task_answers_as_in_kafka_streams(name: str) -> None:
    """Goal: values, order, failures and positions of both interfaces are Kafka Streams'; where they
    may differ, `comparing` says why."""
    wrong = differences_of(RECORDED[name])
    assert not wrong, "\n".join(wrong)


def differences_of(scenario: Scenario) -> list[str]:
    """All that a task says which it should not."""
    found: list[str] = []
    fed = Fed()
    with QueryBench(scenario) as bench:
        for moment in moments(scenario):
            for step in moment:
                if step["do"] == "ask":
                    theirs = due(step, moment)
                    if wrong := difference(step, theirs, ask(bench.queries, step), fed):
                        asked = {each: said for each, said in step.items() if each != "answer"}
                        found.append(f"{asked}: {wrong}")
                else:
                    bench.take(step)
                    fed.take(step)
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
    assert (difference({}, theirs, ours, Fed()) is None) == is_right


def test_nobody_answers_as_a_global_store_who_is_none() -> None:
    theirs: Answer = {"partitions": {}, "only": "none"}
    ours = {**theirs, "global": {"failure": "UNKNOWN_QUERY_TYPE"}}
    assert difference({}, theirs, ours, Fed()) is not None
