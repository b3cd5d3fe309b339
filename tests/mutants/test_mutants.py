"""The faults are up to date: each of them can still be injected."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutants.catalog import MUTANTS
from mutants.mutant import Mutant
from mutants.run import FIRST, ROOT, STAGES, mutated

import millstream


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks)
def test_the_text_that_a_fault_changes_exists(mutant: Mutant) -> None:
    """The text occurs once, and the result is valid Python."""
    original = (Path(millstream.__file__).parent / mutant.module).read_text()
    faulty = mutated(mutant, original)
    assert faulty != original
    ast.parse(faulty)


def test_faults_have_unique_names() -> None:
    assert len({mutant.breaks for mutant in MUTANTS}) == len(MUTANTS)


def test_the_named_tests_and_modules_exist() -> None:
    tests = {path for stage in (*STAGES, *FIRST.values()) for path in stage}
    tests |= {path for mutant in MUTANTS for path in mutant.tests}
    modules = {ROOT / "src" / "millstream" / module for module in FIRST}
    assert [path for path in {*modules, *map(ROOT.joinpath, tests)} if not path.exists()] == []
