"""Other versions of packages than the locked ones: in a folder that processes look into first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[2]
#: What pip says where it can reach no index.
_NO_NETWORK = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError")


def installed(requirement: str, folder: Path, timeout_s: float = 120) -> Path:
    """A folder with one package and nothing else; the test is skipped where there is no network.

    Args:
        requirement: for example `kafka-python==3.0.4`.
        folder: an empty one.
        timeout_s: how long pip may take.
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
    """What Python prints with that folder first on its path.

    Args:
        folder: of `installed`.
        arguments: of Python: what is run, and its own arguments.
        timeout_s: how long it may take.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, _TESTS)))},
        cwd=_TESTS.parent,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
