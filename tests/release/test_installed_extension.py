"""The installed wheel passes the tests of the C extension in each Python of this machine.

The environments are outside of the checkout, with the oldest and the newest confluent-kafka.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.machine.clean_environment import create_environment
from support.machine.wheels import ROOT, Built
from support.strictness import needed_speedups

pytestmark = pytest.mark.slow

#: The minor versions of Python that wheels are tested with.
MINORS = range(11, 15)


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def oldest_client() -> str:
    """The requirement of the oldest supported confluent-kafka."""
    (found,) = (
        each.replace(">=", "==")
        for each in project()["project"]["dependencies"]
        if re.match(r"confluent-kafka\W", each)
    )
    return str(found)


def interpreter(minor: int) -> str | None:
    """A Python of this machine that works."""
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    found = shutil.which(f"python3.{minor}")
    # A program of pyenv exists although its version is not selected.
    works = found and subprocess.run([found, "-m", "venv", "--help"], capture_output=True)
    return found if works and works.returncode == 0 else None


INTERPRETERS = {minor: found for minor in MINORS if (found := interpreter(minor))}


@pytest.mark.parametrize("client", [oldest_client(), "confluent-kafka"])
@pytest.mark.parametrize("minor", INTERPRETERS)
def test_a_wheel_passes_the_tests_of_the_extension(
    built: Built, tmp_path: Path, minor: int, client: str
) -> None:
    """Goal: the commands of cibuildwheel, which tests the wheels of the other platforms."""
    needed_speedups()
    settings = project()["tool"]["cibuildwheel"]
    environment = create_environment(
        tmp_path,
        ["--only-binary", ":all:", str(built.wheel), client, *settings["test-requires"]],
        INTERPRETERS[minor],
    )
    for source in settings["test-sources"]:
        copied = environment.folder / source
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, copied, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, copied)
    environment.environment.update(settings["test-environment"])
    for command in settings["test-command"]:
        ran = environment.run("sh", "-c", command, timeout_s=900)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\b\d\d passed", ran.stdout), ran.stdout
    assert "skipped" not in ran.stdout
