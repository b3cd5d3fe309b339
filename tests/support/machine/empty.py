"""A machine with nothing but Python and Java: an empty environment, outside of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from support.machine.scripts import Program

#: Variables that lead to this checkout, or to a Spark of somebody else.
LEADING = ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_PYTHON")


@dataclass(frozen=True, slots=True)
class Empty:
    """An environment of Python, and a folder to work in.

    Attributes:
        folder: where commands run.
        environment: their variables: those of this process, without what leads to the checkout.
        installed_s: how long installing took.
    """

    folder: Path
    environment: dict[str, str]
    installed_s: float

    def run(self, *command: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def program(self, *command: str | Path) -> Program:
        """A command that runs until it ends, or its `with` block does."""
        return Program(*command, home=self.folder, environment=self.environment, alone=True)


def made(folder: Path, what: Sequence[str]) -> Empty:
    """An environment with what pip is told to install.

    Raises:
        AssertionError: it could not be installed.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True, timeout=120)
    work = folder / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in LEADING}
    environment["PATH"] = os.pathsep.join([str(folder / "env" / "bin"), environment["PATH"]])
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    empty = Empty(work, environment, 0.0)
    began = time.monotonic()
    ran = empty.run("python", "-m", "pip", "install", "--quiet", *what, timeout_s=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return replace(empty, installed_s=time.monotonic() - began)


def without_java(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """The variables of a machine on which no Java is installed, with all else that it has.

    Args:
        environment: the variables of one that may have it.
        folder: where links to all other programs are put.
    """
    folder.mkdir()
    own, *places = environment["PATH"].split(os.pathsep)
    for place in map(Path, places):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java") and not os.path.lexists(link):
                link.symlink_to(program)
    found = {name: value for name, value in environment.items() if name != "JAVA_HOME"}
    found["PATH"] = os.pathsep.join([own, str(folder)])
    assert shutil.which("java", path=found["PATH"]) is None
    return found
