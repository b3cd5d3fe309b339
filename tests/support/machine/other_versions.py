"""Other versions of packages than the locked ones, in a folder that processes search first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[2]
#: pip's errors if no index is reachable.
_NO_NETWORK = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError")


def installed(requirement: str, folder: Path, timeout_s: float = 120) -> Path:
    """Install one package into a folder; skips the test if there is no network.

    Args:
        requirement: for example `kafka-python==3.0.4`.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1"]
    done = subprocess.run(
        [*command, "--target", str(folder), requirement],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if _NO_NETWORK.search(done.stderr):
        pytest.skip(f"{requirement} cannot be fetched: there is no network")
    assert done.returncode == 0, done.stderr
    return folder


def run(folder: Path, arguments: Sequence[str], timeout_s: float) -> str:
    """Run Python with that folder first on its path, and return the output."""
    path = [str(folder), str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        cwd=_TESTS.parent,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
