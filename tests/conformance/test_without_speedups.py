"""Goal: recordings, caches and operators are the same without the extension, where it is installed.

Method: their tests once more, in a process that cannot import it. `make pure` runs all that need no
broker in this way.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.speedups import needed_speedups

TESTS = Path(__file__).parents[1]
WITHOUT = TESTS / "support" / "without_speedups.py"
WHAT = ("conformance/test_conformance.py", "unit/state/caches", "unit/operators")


def test_python_alone_does_the_same() -> None:
    needed_speedups()
    done = subprocess.run(
        [sys.executable, str(WITHOUT), *(str(TESTS / each) for each in WHAT)],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "millstream-speedups is not installed" in done.stdout
