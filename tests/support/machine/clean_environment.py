"""A machine with only Python and Java: an empty environment outside of the checkout."""

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

#: Variables that refer to this checkout, or to another Spark.
LEADING = ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_PYTHON")


@dataclass(frozen=True, slots=True)
class CleanEnvironment:
    """A Python environment and a working folder.

    Attributes:
        environment: the variables of its commands: this process's, without references to the
            checkout.
    """

    folder: Path
    environment: dict[str, str]
    installed_s: float

    def run(self, *command: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command that ends by itself."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def program(self, *command: str | Path) -> Program:
        """Run a command until it ends or the `with` block does."""
        return Program(
            *command, home=self.folder, environment=self.environment, clean_environment=True
        )


def create_environment(
    folder: Path, what: Sequence[str], python: str = sys.executable
) -> CleanEnvironment:
    """Create an environment and install packages with pip.

    Args:
        python: the interpreter.

    Raises:
        AssertionError: the installation failed.
    """
    subprocess.run([python, "-m", "venv", str(folder / "env")], check=True, timeout=120)
    work = folder / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in LEADING}
    environment["PATH"] = os.pathsep.join([str(folder / "env" / "bin"), environment["PATH"]])
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    empty = CleanEnvironment(work, environment, 0.0)
    began = time.monotonic()
    ran = empty.run("python", "-m", "pip", "install", "--quiet", *what, timeout_s=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return replace(empty, installed_s=time.monotonic() - began)


def without_java(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """The variables of an otherwise identical machine without Java.

    Args:
        folder: for links to all other programs.
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
