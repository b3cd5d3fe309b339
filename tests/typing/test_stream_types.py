"""The types of streams that type checkers infer."""

from __future__ import annotations

from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]


def test_mypy_infers_the_types_of_streams() -> None:
    """K and V pass through the operations, and mistakes are detected."""
    checked = Path(__file__).with_name("stream_types.py")
    report, errors, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(checked)])
    wrong = [line for line in report.splitlines() if checked.name in line]
    assert errors == ""
    assert wrong == []
