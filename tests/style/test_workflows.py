"""The workflows run targets and scripts that exist, and test every supported Python."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
FILES = [*sorted(WORKFLOWS.glob("*.yml")), *sorted(ROOT.glob(".github/actions/*/action.yml"))]
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")
SCRIPT = re.compile(r"(?:^|\s)(\.ci/[a-z-]+)")


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(part: Any) -> Iterator[str]:
    """Find the shell commands of a workflow: `run` of steps, `command` of matrices."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("run", "command") and isinstance(value, str):
                yield value
            else:
                yield from commands(value)
    elif isinstance(part, list):
        for each in part:
            yield from commands(each)


def targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_workflows_run_existing_targets_and_scripts(path: Path) -> None:
    """Detects targets and scripts that were renamed or removed."""
    found = list(commands(loaded(path)))
    named = {target for command in found for target in TARGET.findall(command)}
    assert named - targets() == set(), "not in the Makefile"
    scripts = {script for command in found for script in SCRIPT.findall(command)}
    assert [each for each in scripts if not os.access(ROOT / each, os.X_OK)] == []


def test_the_nightly_workflow_runs_the_long_targets() -> None:
    """The command of each job is found, so the test above is not empty."""
    found = "\n".join(commands(loaded(WORKFLOWS / "nightly.yml")))
    expected = {"chaos", "simulate", "fuzz", "fuzz-native", "cluster", "release-check", "test-all"}
    assert set(TARGET.findall(found)) == expected


def test_every_supported_python_is_tested() -> None:
    """Compares the matrix of the tests with the classifiers of the package."""
    jobs = loaded(WORKFLOWS / "tests.yml")["jobs"]
    tested = {entry["python"] for entry in jobs["tests"]["strategy"]["matrix"]["include"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classifiers = "\n".join(project["classifiers"])
    assert tested == set(re.findall(r"Python :: (3\.\d+)", classifiers))
