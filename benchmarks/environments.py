"""Environments for the Python programs of other libraries, created on first use.

The libraries are not dependencies of this project. `peers/<name>/requirements.txt` lists them. The
environment is in the cache folder, and is recreated when the file changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from millstream.embedded.jars import cache_parent

HERE = Path(__file__).parent
INSTALL_TIMEOUT_S = 900
#: Programs that do not run in this project's environment.
SEPARATE = ("quix", "faust")


def requirements(name: str) -> Path:
    """Return the file with the requirements of a program."""
    return HERE / "peers" / name / "requirements.txt"


def interpreter(name: str) -> str:
    """Return the Python interpreter that runs a program."""
    if name not in SEPARATE:
        return sys.executable
    return str(_folder(name) / "bin" / "python")


def install(name: str) -> None:
    """Create the environment of a program, unless it exists.

    Raises:
        SystemExit: the requirements cannot be installed.
    """
    if name not in SEPARATE:
        return
    folder = _folder(name)
    done = folder / "complete"
    if done.exists():
        return
    print(f"installing {requirements(name).read_text().split()[0]} into a separate environment")
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [interpreter(name), "-m", "pip", "install", "--quiet", "-r", str(requirements(name))],
    ):
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        if ran.returncode:
            raise SystemExit(f"{name} cannot be installed:\n{(ran.stdout + ran.stderr)[-2000:]}")
    done.touch()


def _folder(name: str) -> Path:
    text = f"{sys.version_info[:2]} {requirements(name).read_text()}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache_parent() / f"contestant-{name}-{digest}"
