"""Each kind of bad input has the outcome that its page tells, and the page tells of each."""

from __future__ import annotations

import generate_bad_input
import pytest

from bad_inputs.case import Case
from bad_inputs.families import FAMILIES
from bad_inputs.trying import differences

CASES = {f"{family.title}/{case.id}": case for family in FAMILIES for case in family.cases}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_outcome(case: Case) -> None:
    """The error and what it says, or what comes out, what is dropped and counted, and what goes to
    the dead-letter queue."""
    assert not differences(case)


def test_no_two_are_the_same() -> None:
    assert len(CASES) == sum(len(family.cases) for family in FAMILIES)
    for family in FAMILIES:
        told = [case.what for case in family.cases]
        assert len(set(told)) == len(told), family.title
    assert len(CASES) >= 200


def test_the_page_is_current() -> None:
    text = generate_bad_input.PAGE.read_text(encoding="utf-8")
    assert text == generate_bad_input.page(), "run: python docs/generators/generate_bad_input.py"
