"""The simulation itself: it finds nothing, it repeats itself, and it would find something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2

TESTS = Path(__file__).parents[1]
#: How long the smoke goes on, in seconds, under each guarantee.
SMOKE_S = 15


def simulate(*arguments: str, module: str = "simulation") -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, in which it replaces the module `time` of the client."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_no_history_fails(guarantee: str) -> None:
    """As many histories as fit into the time."""
    many = ("--count", "100000", "--jobs", "1", "--seconds", str(SMOKE_S))
    done = simulate(*many, "--guarantee", guarantee)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


@pytest.mark.parametrize("seed", ["4", "6", "12"])
def test_a_seed_tells_the_same_story_twice(seed: str) -> None:
    """To the byte, with the engine's log, in two processes."""
    first, second = simulate("--seed", seed, "--log"), simulate("--seed", seed, "--log")
    assert first.returncode == 0, first.stdout[-8_000:]
    assert len(first.stdout.splitlines()) > 50
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("commit before flush", 1),
        ("promoted behind", 20),
        ("forgotten revocation", 8),
        ("store not written", 11),
        ("finished before its steps", 1),
        ("commit while landing", 1),
        ("keys side by side", 1),
        ("tasks side by side", 1),
        ("results in no order", 1),
        ("group metadata left out", 19),
        ("aborted, and work kept", 1),
    ],
)
def test_a_planted_bug_is_found(bug: str, first: int) -> None:
    """Each within a few seeds."""
    done = simulate(bug, "--first", str(first), module="simulation.planted")
    assert done.returncode == 0, done.stdout + done.stderr
