"""Separate environments for Python programs, created on first use.

Other libraries are not dependencies of this project; `peers/<name>/requirements.txt` lists them.
The wheels of this checkout, with and without the C extension, are built and installed as users
install them. An environment is in the cache folder, and is recreated when its content changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from millstream.embedded.jars import cache_parent

HERE = Path(__file__).parent
ROOT = HERE.parent
INSTALL_TIMEOUT_S = 900
#: The programs that run an installed wheel of this checkout, with the pattern of its file name.
WHEELS = {"wheel": "*-abi3-*.whl", "pure_wheel": "*-none-any.whl"}
#: Programs that do not run in this project's environment.
SEPARATE = ("quix", "faust", *WHEELS)


def requirements(name: str) -> Path:
    """Return the file with the requirements of another library's program."""
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
    print(f"installing the program {name} into a separate environment")
    shutil.rmtree(folder, ignore_errors=True)
    _run(name, [sys.executable, "-m", "venv", str(folder)])
    pip = [interpreter(name), "-m", "pip"]
    if name in WHEELS:
        wheels = folder / "wheels"
        _run(name, ["sh", str(ROOT / ".ci" / "wheels"), "--unrepaired", str(wheels)])
        (wheel,) = wheels.glob(WHEELS[name])
        # The locked versions, as in this project's environment.
        locked = ["--no-deps", "--require-hashes", "-r", str(ROOT / "requirements.lock")]
        _run(name, [*pip, "install", "--quiet", *locked])
        _run(name, [*pip, "install", "--quiet", f"{wheel}[spark]"])
    else:
        _run(name, [*pip, "install", "--quiet", "-r", str(requirements(name))])
    done.touch()


def _run(name: str, command: list[str]) -> None:
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    if ran.returncode:
        raise SystemExit(f"{name} cannot be installed:\n{(ran.stdout + ran.stderr)[-2000:]}")


def _folder(name: str) -> Path:
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in _sources() if name in WHEELS else [requirements(name)]:
        digest.update(path.read_bytes())
    return cache_parent() / f"contestant-{name}-{digest.hexdigest()[:12]}"


def _sources() -> list[Path]:
    """Return the files of which a wheel is built, and the versions of its requirements."""
    folders = [*(ROOT / "native").glob("*"), *(ROOT / "src").rglob("*.py")]
    return sorted([*folders, *(ROOT / name for name in ("setup.py", "requirements.lock"))])
