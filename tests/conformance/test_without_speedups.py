"""Goal: recordings, caches and operators have the same results without the C extension.

Method: run their tests in a process that cannot import the extension. `make pure` runs all tests
without a broker in this way. `make test` runs a sample of the recordings.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.strictness import needed_speedups

TESTS = Path(__file__).parents[1]
WITHOUT = TESTS / "support" / "without_speedups.py"
RECORDINGS = "conformance/test_conformance.py"
SAMPLE = ("-k", "aggregate or session or compiled")
TEST_PATHS = ("unit/state/caches", "unit/operators")


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        pytest.param((RECORDINGS, *TEST_PATHS), (), id="all", marks=pytest.mark.extended),
        pytest.param((RECORDINGS, "unit/state/caches"), SAMPLE, id="sample"),
    ],
)
def test_pure_python_has_the_same_results(paths: tuple[str, ...], options: tuple[str, ...]) -> None:
    needed_speedups()
    done = subprocess.run(
        [sys.executable, str(WITHOUT), *(str(TESTS / each) for each in paths), *options],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "the C extension is not part of this installation" in done.stdout
