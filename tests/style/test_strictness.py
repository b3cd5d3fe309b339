"""In continuous integration a skip is a failure, unless the machine lacks what the test needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import strictness

TESTS = Path(__file__).parents[1]


def skipped(reason: str) -> pytest.TestReport:
    why = ("test_it.py", 1, f"Skipped: {reason}")
    return pytest.TestReport(
        "test_it.py::test", ("test_it.py", 1, "test"), {}, "skipped", why, "call"
    )


@pytest.mark.parametrize(
    ("environment", "strict"),
    [
        ({}, False),
        ({"CI": "true"}, True),
        ({"CI": "false"}, False),
        ({"MILLSTREAM_STRICT": "1"}, True),
        ({"CI": "", "MILLSTREAM_STRICT": "0"}, False),
    ],
)
def test_who_is_strict(environment: dict[str, str], strict: bool) -> None:
    """Continuous integration says so by the variable that all its services set, or by ours."""
    assert strictness.is_strict(environment) is strict


def test_a_reason_counts_only_if_it_is_listed_and_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hunts a skip that blames a tool which is there."""
    monkeypatch.setattr(
        strictness, "LACKING", {"no compiler": lambda: True, "no linker": lambda: False}
    )
    outcomes = []
    for reason in ("there is no compiler", "there is no linker", "it is late"):
        report = skipped(reason)
        strictness.forbid_skip(report)
        outcomes.append(report.outcome)
    assert outcomes == ["skipped", "failed", "failed"]


def test_an_expected_failure_is_no_skip() -> None:
    """pytest reports it as one."""
    report = skipped("expected")
    report.wasxfail = "for now"
    strictness.forbid_skip(report)
    assert report.outcome == "skipped"


@pytest.mark.parametrize(("strict", "end"), [("1", "1 failed, 1 error"), ("0", "2 skipped")])
def test_skips_fail_in_a_strict_run(tmp_path: Path, strict: str, end: str) -> None:
    """Method: pytest with our conftest, over a test and a module that skip themselves."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_one.py").write_text("import pytest\ndef test(): pytest.skip('it is late')\n")
    (tmp_path / "test_two.py").write_text("import pytest\npytest.importorskip('not_there')\n")
    environment = {"CI": "", "MILLSTREAM_STRICT": strict, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    options = ["--import-mode=importlib", "--continue-on-collection-errors"]
    ran = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert end in ran.stdout.splitlines()[-1], ran.stdout + ran.stderr
