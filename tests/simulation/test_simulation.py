"""The simulation: no history fails, seeds are reproducible, and planted bugs are detected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2

TESTS = Path(__file__).parents[1]
#: The duration of the smoke test, and that of the longer one under each guarantee.
SMOKE_S, LONGER_S = 5, 15


def simulate(*arguments: str, module: str = "simulation") -> subprocess.CompletedProcess[str]:
    """Run the simulation in a subprocess, since it replaces the client's `time` module."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("guarantee", "seconds"),
    [
        (EXACTLY_ONCE_V2, SMOKE_S),
        pytest.param(AT_LEAST_ONCE, LONGER_S, marks=pytest.mark.extended),
        pytest.param(EXACTLY_ONCE_V2, LONGER_S, marks=pytest.mark.extended),
    ],
)
def test_no_history_fails(guarantee: str, seconds: int) -> None:
    """Run as many histories as fit into the time."""
    limits = ("--count", "100000", "--jobs", "1", "--seconds", str(seconds))
    done = simulate(*limits, "--guarantee", guarantee)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


@pytest.mark.parametrize(
    "seed", ["4", *(pytest.param(seed, marks=pytest.mark.extended) for seed in ("6", "12"))]
)
def test_a_seed_reproduces_the_trace(seed: str) -> None:
    """Two processes print identical traces, including the engine's log."""
    first, second = simulate("--seed", seed, "--log"), simulate("--seed", seed, "--log")
    assert first.returncode == 0, first.stdout[-8_000:]
    assert len(first.stdout.splitlines()) > 50
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("commit before flush", 1),
        ("concurrent calls of a key", 1),
        *(
            pytest.param(bug, first, marks=pytest.mark.extended)
            for bug, first in [
                ("promoted without restoring", 20),
                ("ignored revocation", 8),
                ("store not written", 11),
                ("completed before downstream", 1),
                ("commit before completion", 1),
                ("concurrent tasks of a key", 1),
                ("unordered results", 1),
                ("missing group metadata", 19),
                ("uncommitted work kept after abort", 1),
            ]
        ),
    ],
)
def test_a_planted_bug_is_detected(bug: str, first: int) -> None:
    """A few seeds are enough for each bug."""
    done = simulate(bug, "--first", str(first), module="simulation.planted")
    assert done.returncode == 0, done.stdout + done.stderr
