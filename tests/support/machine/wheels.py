"""The files of a release: wheel and sdist, built from a source folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

#: The checkout.
ROOT = Path(__file__).parents[3]


class Built(NamedTuple):
    """The two files of a release."""

    wheel: Path
    sdist: Path


def built_here(folder: Path) -> Built:
    """Build both from this checkout."""
    build(ROOT, folder)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def build(source: Path, folder: Path, *targets: str) -> None:
    """Build the given targets (by default all) from a source folder."""
    chosen = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *chosen]
    ran = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
