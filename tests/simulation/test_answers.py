"""The simulated cluster answers as the real broker did when it was asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from simulation.probing import recorded

TESTS = Path(__file__).parents[1]
ASK = "import json; from simulation.probing import *; print(json.dumps(probe(Simulated())))"


def test_the_simulated_cluster_answers_as_recorded() -> None:
    """Joins, heartbeats, commits of any generation, static members, deletions, transactions."""
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == recorded()
