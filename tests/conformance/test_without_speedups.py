"""Goal: recordings, caches and operators have the same results without the C extension.

Method: run their tests in a process that cannot import the extension. `make pure` runs all tests
without a broker in this way.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.strictness import needed_speedups

TESTS = Path(__file__).parents[1]
WITHOUT = TESTS / "support" / "without_speedups.py"
TEST_PATHS = ("conformance/test_conformance.py", "unit/state/caches", "unit/operators")


def test_pure_python_has_the_same_results() -> None:
    needed_speedups()
    done = subprocess.run(
        [sys.executable, str(WITHOUT), *(str(TESTS / each) for each in TEST_PATHS)],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "the C extension is not part of this installation" in done.stdout
