"""What importing the package says to its users: nothing."""

from __future__ import annotations

import subprocess
import sys


def test_importing_warns_of_nothing() -> None:
    """Goal: the deprecated calls of a client library do not fill the user's test reports."""
    code = "import millstream, millstream.testing"
    command = [sys.executable, "-W", "error::DeprecationWarning", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
