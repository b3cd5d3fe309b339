"""The list of faults has not rotted: each of them can still be made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutants.catalog import MUTANTS
from mutants.mutant import Mutant
from mutants.run import mutated

import millstream


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks)
def test_the_text_that_a_fault_changes_is_there(mutant: Mutant) -> None:
    """Once, and what comes of it is Python; hunts for a list of faults in code that has gone."""
    sound = (Path(millstream.__file__).parent / mutant.module).read_text()
    faulty = mutated(mutant, sound)
    assert faulty != sound
    ast.parse(faulty)


def test_faults_are_told_apart_by_what_they_break() -> None:
    assert len({mutant.breaks for mutant in MUTANTS}) == len(MUTANTS)
