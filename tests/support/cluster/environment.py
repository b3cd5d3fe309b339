"""The Python environment for a cluster's executors: a virtual environment, packed into an archive.

It follows the documentation, but does not use a package index: installed packages are copied, and
the project's own wheel is built.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

from support.machine.wheels import built_here

#: Spark provides them, in the cluster's version.
_EXCLUDED = {"pyspark", "py4j"}


def packed_environment(folder: Path) -> Path:
    """Create the archive in an empty folder."""
    home = folder / "environment"
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in sorted(_needed("millstream", set())):
        _copy(importlib.metadata.distribution(name), packages)
    with zipfile.ZipFile(built_here(folder / "dist").wheel) as content:
        content.extractall(packages)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for each in sorted(home.iterdir()):
            packed.add(each, each.name)
    shutil.rmtree(home)
    return archive


def _needed(name: str, known: set[str]) -> set[str]:
    """A package's transitive dependencies, without extras."""
    for each in _requirements(name):
        if each not in known and each not in _EXCLUDED:
            known.add(each)
            _needed(each, known)
    return known


def _requirements(name: str) -> Iterator[str]:
    for line in importlib.metadata.requires(name) or []:
        requirement, _, marker = line.partition(";")
        match = re.match(r"[\w.-]+", requirement)
        # Other markers concern other systems and versions.
        if match is not None and not marker.strip():
            yield match[0]


def _copy(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or []:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(file.locate()), target)
