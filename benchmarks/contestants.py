"""Python programs of other libraries: each has an environment of its own, made when it is needed.

The libraries are no dependency of this project. What each needs is in `peers/<name>/`, in
`requirements.txt`; the environment lies in the cache folder and is made anew when that changes.
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
#: Those that do not run in the environment of this project.
APART = ("quix", "faust")


def requirements(name: str) -> Path:
    """The file with what a contestant needs."""
    return HERE / "peers" / name / "requirements.txt"


def interpreter(name: str) -> str:
    """The Python that runs a contestant."""
    if name not in APART:
        return sys.executable
    return str(_folder(name) / "bin" / "python")


def install(name: str) -> None:
    """Makes the environment of a contestant, unless it is there.

    Raises:
        SystemExit: it cannot be installed.
    """
    if name not in APART:
        return
    folder = _folder(name)
    done = folder / "complete"
    if done.exists():
        return
    print(f"installing {requirements(name).read_text().split()[0]} into an environment of its own")
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
