"""Each kind of bad input has the outcome on its page, and the page lists every kind."""

from __future__ import annotations

import generate_bad_input
import pytest

from bad_inputs.case import Case, differences
from bad_inputs.families import FAMILIES

CASES = {f"{family.title}/{case.id}": case for family in FAMILIES for case in family.cases}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_outcome(case: Case) -> None:
    """Checks the error and its message; or the output, the numbers of dropped records, and the dead
    letters."""
    assert not differences(case)


def test_cases_are_unique() -> None:
    assert len(CASES) == sum(len(family.cases) for family in FAMILIES)
    for family in FAMILIES:
        descriptions = [case.description for case in family.cases]
        assert len(set(descriptions)) == len(descriptions), family.title
    assert len(CASES) >= 200


def test_the_page_is_current() -> None:
    text = generate_bad_input.PAGE.read_text(encoding="utf-8")
    assert text == generate_bad_input.page(), "run: python docs/generators/generate_bad_input.py"
