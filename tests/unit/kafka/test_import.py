"""Importing the package prints nothing."""

from __future__ import annotations

import subprocess
import sys


def test_importing_causes_no_warnings() -> None:
    """Deprecated calls in client libraries must not appear in users' test reports."""
    code = "import millstream, millstream.testing"
    command = [sys.executable, "-W", "error::DeprecationWarning", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
