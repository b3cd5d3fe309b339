"""The Python environment that is shipped to a cluster: a virtual one, packed into an archive.

As the documentation says to make it, but without asking an index of packages: what is installed
here is copied, and the project's own wheel is built.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[3]
#: Spark brings it, in the version that runs there.
_LEFT_OUT = {"pyspark", "py4j"}


def packed_environment(folder: Path) -> Path:
    """The archive, made in an empty folder."""
    home = folder / "environment"
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in sorted(_needed("millstream", set())):
        _copy(importlib.metadata.distribution(name), packages)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=_ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for each in sorted(home.iterdir()):
            packed.add(each, each.name)
    shutil.rmtree(home)
    return archive


def _needed(name: str, known: set[str]) -> set[str]:
    """What a package needs, and what that needs, without extras."""
    for each in _requirements(name):
        if each not in known and each not in _LEFT_OUT:
            known.add(each)
            _needed(each, known)
    return known


def _requirements(name: str) -> Iterator[str]:
    for line in importlib.metadata.requires(name) or []:
        requirement, _, marker = line.partition(";")
        match = re.match(r"[\w.-]+", requirement)
        # Other markers are about systems and versions that are not these.
        if match is not None and not marker.strip():
            yield match[0]


def _copy(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or []:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(file.locate()), target)
