"""In continuous integration, skipped tests fail, unless the machine lacks a requirement."""

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
def test_strict_environments(environment: dict[str, str], strict: bool) -> None:
    """`CI`, which CI services set, or `MILLSTREAM_STRICT` makes a run strict."""
    assert strictness.is_strict(environment) is strict


def test_a_skip_needs_a_listed_and_true_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects skips that blame a missing tool that is installed."""
    monkeypatch.setattr(
        strictness, "LACKING", {"no compiler": lambda: True, "no linker": lambda: False}
    )
    outcomes = []
    for reason in ("there is no compiler", "there is no linker", "it is late"):
        report = skipped(reason)
        strictness.forbid_skip(report)
        outcomes.append(report.outcome)
    assert outcomes == ["skipped", "failed", "failed"]


def test_each_listed_reason_is_used_by_a_skip() -> None:
    """Detects a reason that was reworded in only one of the two places."""
    root = TESTS.parent
    listing = Path(strictness.__file__)
    sources = [path for name in ("tests", "benchmarks") for path in (root / name).rglob("*.py")]
    text = "".join(path.read_text() for path in sources if path not in (listing, Path(__file__)))
    unused = [reason for reason in strictness.LACKING if reason not in text]
    assert unused == [strictness.ABSENT]  # The listing itself skips with this reason.


def test_an_expected_failure_is_not_a_skip() -> None:
    """pytest reports expected failures as skipped."""
    report = skipped("expected")
    report.wasxfail = "for now"
    strictness.forbid_skip(report)
    assert report.outcome == "skipped"


@pytest.mark.parametrize(("strict", "end"), [("1", "1 failed, 1 error"), ("0", "2 skipped")])
def test_skips_fail_in_a_strict_run(tmp_path: Path, strict: str, end: str) -> None:
    """Method: run pytest with our conftest on a skipped test and a skipped module."""
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
