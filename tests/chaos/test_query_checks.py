"""The checks of `make chaos ARGS="--kind queries"` find wrong answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chaos.query_checks import Checks, Committed, Written

#: Two keys take turns in partition 0; a third one is in partition 1.
WRITTEN = Written(
    {0: [(n, "ab"[n % 2], 10 + n) for n in range(10)], 1: [(n, "c", 20 + n) for n in range(5)]}
)


def asked(kind: str, results: dict[str, Any], *, bound: Any = (), key: str = "a") -> dict[str, Any]:
    return {"kind": kind, "key": key, "bound": dict(bound), "results": results}


def said(value: Any, at: int | None) -> dict[str, Any]:
    return {"value": value, "at": at}


@pytest.mark.parametrize(
    "answer",
    [
        asked("key", {"0": said("2:12", 3), "1": said(None, 4)}),
        asked("key", {"0": said("2:12", 2)}, bound={"0": 2}),
        asked("key", {"0": said("3:14", None)}),
        asked("key", {"0": said(None, None), "1": {"failure": "NOT_PRESENT"}}),
        asked("key", {"-1": said("3:14", None)}),
        asked("range", {"0": said({"a": "2:12", "b": "1:11"}, 2), "1": said({"c": "1:20"}, 0)}),
        # It was written after the position that it tells.
        asked("range", {"0": said({"a": "2:12", "b": "2:13"}, 1)}),
        asked("range", {"0": said({"a": "2:12", "b": "5:19"}, None)}),
        {"error": "StateStoreMigratedError", "typed": True},
    ],
)
def test_what_can_be_true_is_not_wrong(answer: dict[str, Any]) -> None:
    assert Checks(WRITTEN, exactly_once=True).wrong(answer) is None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (asked("key", {"0": said("2:12", 1)}, bound={"0": 2}), "was asked for"),
        (asked("key", {"0": said("2:12", None)}, bound={"0": 2}), "was asked for"),
        (asked("key", {"0": said("2:12", 5)}), "says 2:12"),
        (asked("key", {"0": said(None, 0)}), "does not have a"),
        (asked("key", {"0": said("2:13", 3)}), "no such record"),
        (asked("key", {"0": said("3:12", 3)}), "says 3:12"),
        (asked("key", {"0": said("1:12", None)}), "says 1:12"),
        (asked("key", {"1": said("2:12", None)}), "belongs to partition 0"),
        (asked("range", {"0": said({"a": "2:12"}, 2)}), "says None of b"),
        (asked("range", {"0": said({"a": "2:12", "b": "3:15"}, 1)}), "where others are"),
        ({"error": "KeyError", "typed": False, "message": "'x'"}, "KeyError"),
    ],
)
def test_what_cannot_be_true_is_wrong(answer: dict[str, Any], problem: str) -> None:
    assert problem in (Checks(WRITTEN, exactly_once=True).wrong(answer) or "")


def test_what_is_counted_again_after_a_crash_is_no_lie_without_transactions() -> None:
    """Goal: under at-least-once a count may be too high, but never too low."""
    checks = Checks(WRITTEN, exactly_once=False)
    assert checks.wrong(asked("key", {"0": said("3:12", 3)})) is None
    assert checks.wrong(asked("range", {"0": said({"a": "2:12", "b": "9:17"}, 2)})) is None
    assert checks.wrong(asked("key", {"0": said("1:12", 3)})) is not None
    assert checks.wrong(asked("key", {"0": said("2:12", 4)})) is not None
    assert checks.found == 3


def committed(at_s: float = 50.0, *, of_0: int = 4, of_1: int = 1) -> Committed:
    seen = Committed()
    seen.note(10.0, {0: 0, 1: 0})
    seen.note(at_s, {0: of_0, 1: of_1})
    return seen


def of_a_view(kind: str, value: Any, *, key: str = "a", active: bool = True) -> dict[str, Any]:
    """Asked from 51 s to 52 s."""
    answer = asked(kind, {"-1": {"value": value}}, key=key)
    return {**answer, "active": active, "at_s": 52.0, "took_ms": 1_000.0}


#: What a view has to give when 4 records of partition 0 and 1 of the other are committed.
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
def test_a_view_may_be_further_than_what_is_committed(
    kind: str, value: Any, exactly_once: bool
) -> None:
    checks = Checks(WRITTEN, exactly_once, committed())
    assert checks.wrong(of_a_view(kind, value)) is None
    assert checks.held == 1


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("key", None, "does not have a"),
        ("key", "1:10", "says 1:10"),
        ("range", {}, "(of|have) a"),
        ("range", {"a": "2:12", "b": "2:13"}, "(of|have) c"),
        ("range", {"b": "2:13", "c": "1:20"}, "(of|have) a"),
        ("range", {**WHOLE, "b": "1:11"}, "says 1:11"),
    ],
)
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_view_that_is_partial_or_old_is_wrong(
    kind: str, value: Any, problem: str, exactly_once: bool
) -> None:
    """Goal: what was committed before a view was asked is in its answer, whole."""
    wrong = Checks(WRITTEN, exactly_once, committed()).wrong(of_a_view(kind, value))
    assert wrong is not None
    assert re.search(problem, wrong), wrong


def test_the_keys_of_a_partition_in_a_view_are_of_one_moment() -> None:
    apart = {**WHOLE, "a": "5:18"}
    assert "where others are" in (
        Checks(WRITTEN, exactly_once=True).wrong(of_a_view("range", apart)) or ""
    )
    assert Checks(WRITTEN, exactly_once=True).wrong(of_a_view("range", WHOLE)) is None


@pytest.mark.parametrize(
    ("seen", "active"),
    [
        # It was committed while the view was asked, perhaps after it had looked.
        (committed(51.5), True),
        (committed(), False),
    ],
)
def test_what_was_not_committed_yet_and_what_is_stale_may_be_old(
    seen: Committed, active: bool
) -> None:
    checks = Checks(WRITTEN, exactly_once=True, committed=seen)
    assert checks.wrong(of_a_view("key", None, active=active)) is None


def test_who_was_paused_may_be_behind_for_a_while() -> None:
    seen = committed()
    seen.doubt(51.5, 60.0)
    checks = Checks(WRITTEN, exactly_once=True, committed=seen)
    assert checks.wrong(of_a_view("key", None)) is None
    assert checks.held == 0


def test_refusals_are_counted() -> None:
    checks = Checks(WRITTEN, exactly_once=True)
    checks.wrong(asked("key", {"0": {"failure": "NOT_PRESENT"}, "1": said(None, 0)}))
    checks.wrong({"error": "StateStoreMigratedError", "typed": True})
    assert checks.refused == {"NOT_PRESENT": 1, "StateStoreMigratedError": 1}
