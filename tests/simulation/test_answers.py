"""The simulated cluster's answers match a real broker's recorded answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from simulation.probes.probing import recorded

TESTS = Path(__file__).parents[1]
PROGRAM = (
    "import json; from simulation.probes.probing import *; print(json.dumps(probe(Simulated())))"
)


def test_simulated_answers_match_recorded_answers() -> None:
    """Covers joins, heartbeats, commits, static members, deletions and transactions."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == recorded()
