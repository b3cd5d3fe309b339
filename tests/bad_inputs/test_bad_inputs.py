"""Each kind of bad input has the outcome that its page tells, and the page tells of each."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from bad_inputs.case import Case
from bad_inputs.families import FAMILIES
from bad_inputs.trying import differences

DOCS = Path(__file__).parents[2] / "docs"
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
    script = DOCS / "generate_bad_input.py"
    spec = importlib.util.spec_from_file_location("generate_bad_input", script)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    text = (DOCS / "bad-input.md").read_text()
    assert text == generator.page(), "run: python docs/generate_bad_input.py"
