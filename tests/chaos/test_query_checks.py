"""The checks of `make chaos ARGS="--kind queries"` detect wrong answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chaos.query_checks import Checks, Committed, Written

#: Two keys alternate in partition 0; a third one is in partition 1.
WRITTEN = Written(
    {0: [(n, "ab"[n % 2], 10 + n) for n in range(10)], 1: [(n, "c", 20 + n) for n in range(5)]}
)


def query_record(
    kind: str, results: dict[str, Any], *, bound: Any = (), key: str = "a"
) -> dict[str, Any]:
    return {"kind": kind, "key": key, "bound": dict(bound), "results": results}


def result(value: Any, at: int | None) -> dict[str, Any]:
    return {"value": value, "at": at}


@pytest.mark.parametrize(
    "answer",
    [
        query_record("key", {"0": result("2:12", 3), "1": result(None, 4)}),
        query_record("key", {"0": result("2:12", 2)}, bound={"0": 2}),
        query_record("key", {"0": result("3:14", None)}),
        query_record("key", {"0": result(None, None), "1": {"failure": "NOT_PRESENT"}}),
        query_record("key", {"-1": result("3:14", None)}),
        query_record(
            "range", {"0": result({"a": "2:12", "b": "1:11"}, 2), "1": result({"c": "1:20"}, 0)}
        ),
        # A value after the position in the answer.
        query_record("range", {"0": result({"a": "2:12", "b": "2:13"}, 1)}),
        query_record("range", {"0": result({"a": "2:12", "b": "5:19"}, None)}),
        {"error": "StateStoreMigratedError", "typed": True},
    ],
)
def test_possible_answers_are_accepted(answer: dict[str, Any]) -> None:
    assert Checks(WRITTEN, exactly_once=True).wrong(answer) is None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (query_record("key", {"0": result("2:12", 1)}, bound={"0": 2}), "before the bound"),
        (query_record("key", {"0": result("2:12", None)}, bound={"0": 2}), "before the bound"),
        (query_record("key", {"0": result("2:12", 5)}), "has 2:12"),
        (query_record("key", {"0": result(None, 0)}), "lacks a"),
        (query_record("key", {"0": result("2:13", 3)}), "no such record"),
        (query_record("key", {"0": result("3:12", 3)}), "has 3:12"),
        (query_record("key", {"0": result("1:12", None)}), "has 1:12"),
        (query_record("key", {"1": result("2:12", None)}), "belongs to partition 0"),
        (query_record("range", {"0": result({"a": "2:12"}, 2)}), "has None for b"),
        (
            query_record("range", {"0": result({"a": "2:12", "b": "3:15"}, 1)}),
            "at the position of others",
        ),
        ({"error": "KeyError", "typed": False, "message": "'x'"}, "KeyError"),
    ],
)
def test_impossible_answers_are_detected(answer: dict[str, Any], problem: str) -> None:
    assert problem in (Checks(WRITTEN, exactly_once=True).wrong(answer) or "")


def test_counts_may_be_too_high_under_at_least_once() -> None:
    """Goal: under at-least-once, counts may be too high after a crash, but never too low."""
    checks = Checks(WRITTEN, exactly_once=False)
    assert checks.wrong(query_record("key", {"0": result("3:12", 3)})) is None
    assert checks.wrong(query_record("range", {"0": result({"a": "2:12", "b": "9:17"}, 2)})) is None
    assert checks.wrong(query_record("key", {"0": result("1:12", 3)})) is not None
    assert checks.wrong(query_record("key", {"0": result("2:12", 4)})) is not None
    assert checks.found == 3


def committed(at_s: float = 50.0, *, of_0: int = 4, of_1: int = 1) -> Committed:
    history = Committed()
    history.note(10.0, {0: 0, 1: 0})
    history.note(at_s, {0: of_0, 1: of_1})
    return history


def view_query(kind: str, value: Any, *, key: str = "a", active: bool = True) -> dict[str, Any]:
    """A query from 51 s to 52 s."""
    answer = query_record(kind, {"-1": {"value": value}}, key=key)
    return {**answer, "active": active, "at_s": 52.0, "took_ms": 1_000.0}


#: The answer of a view with 4 committed records of partition 0 and 1 of partition 1.
WHOLE = {"a": "2:12", "b": "2:13", "c": "1:20"}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("key", "2:12"),
        ("key", "3:14"),
        ("range", WHOLE),
        ("range", {**WHOLE, "a": "3:14"}),
        ("range", {**WHOLE, "c": "3:22"}),
    ],
)
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_view_may_include_uncommitted_records(kind: str, value: Any, exactly_once: bool) -> None:
    checks = Checks(WRITTEN, exactly_once, committed())
    assert checks.wrong(view_query(kind, value)) is None
    assert checks.compared == 1


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("key", None, "lacks a"),
        ("key", "1:10", "has 1:10"),
        ("range", {}, "(for|lacks) a"),
        ("range", {"a": "2:12", "b": "2:13"}, "(for|lacks) c"),
        ("range", {"b": "2:13", "c": "1:20"}, "(for|lacks) a"),
        ("range", {**WHOLE, "b": "1:11"}, "has 1:11"),
    ],
)
@pytest.mark.parametrize("exactly_once", [True, False])
def test_partial_and_outdated_views_are_detected(
    kind: str, value: Any, problem: str, exactly_once: bool
) -> None:
    """Goal: an answer includes everything that was committed before the query."""
    wrong = Checks(WRITTEN, exactly_once, committed()).wrong(view_query(kind, value))
    assert wrong is not None
    assert re.search(problem, wrong), wrong


def test_values_of_a_partition_in_a_view_have_the_same_position() -> None:
    apart = {**WHOLE, "a": "5:18"}
    assert "at the position of others" in (
        Checks(WRITTEN, exactly_once=True).wrong(view_query("range", apart)) or ""
    )
    assert Checks(WRITTEN, exactly_once=True).wrong(view_query("range", WHOLE)) is None


@pytest.mark.parametrize(
    ("history", "active"),
    [
        # Committed during the query, possibly after the read.
        (committed(51.5), True),
        (committed(), False),
    ],
)
def test_later_commits_and_stale_views_may_be_missing(history: Committed, active: bool) -> None:
    checks = Checks(WRITTEN, exactly_once=True, committed=history)
    assert checks.wrong(view_query("key", None, active=active)) is None


def test_a_paused_instance_may_return_old_values_for_a_while() -> None:
    history = committed()
    history.note_uncertainty(51.5, 60.0)
    checks = Checks(WRITTEN, exactly_once=True, committed=history)
    assert checks.wrong(view_query("key", None)) is None
    assert checks.compared == 0


def test_failures_are_counted() -> None:
    checks = Checks(WRITTEN, exactly_once=True)
    checks.wrong(query_record("key", {"0": {"failure": "NOT_PRESENT"}, "1": result(None, 0)}))
    checks.wrong({"error": "StateStoreMigratedError", "typed": True})
    assert checks.failures == {"NOT_PRESENT": 1, "StateStoreMigratedError": 1}
