"""What is released, built once for all tests of this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Built(NamedTuple):
    """The two files of a release."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel and sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def build(source: Path, folder: Path, *targets: str) -> None:
    """Builds what `targets` says, or all, of a folder of sources."""
    chosen = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *chosen]
    ran = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
