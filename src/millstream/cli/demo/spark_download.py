"""Downloads Spark or Java for the demo if they are not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Sequence
from importlib import util
from importlib.metadata import requires
from pathlib import Path
from typing import Final

from millstream.cli.output import FAINT, print_message
from millstream.clock import Deadline, SystemClock
from millstream.embedded.jars import cache_parent, locked
from millstream.embedded.java import find_java
from millstream.errors import EmbeddedKafkaError, StreamsError
from millstream.spark.sessions.session import has_pyspark

#: The extras that contain Spark and Java, and the sizes of the downloads.
_EXTRAS: Final = {"Spark": ("spark", "server"), "Java": ("java",)}
_MEGABYTES: Final = {"Spark": 490, "Java": 100}
#: Set in the environment of the restarted demo, which must not download and restart again.
_FETCHED: Final = "MILLSTREAM_DEMO_FETCHED"
_LOCK_TIMEOUT_MS: Final = 900_000


def ensure_spark(arguments: Sequence[str]) -> None:
    """Download Spark and Java if they are missing, and restart the demo with them.

    Returns if nothing is missing, or if the demo has already been restarted. Raises StreamsError if
    the download fails.
    """
    installed = {"Spark": has_pyspark(), "Java": _has_java()}
    missing = [name for name, is_installed in installed.items() if not is_installed]
    if not missing or os.environ.get(_FETCHED):
        return
    extras = [extra for name in missing for extra in _EXTRAS[name]]
    packages = _requirements(extras)
    # The packages depend on Millstream's and Python's versions, and on the platform.
    digest = zlib.crc32(" ".join([*packages, sys.version, sysconfig.get_platform()]).encode())
    folder = cache_parent() / f"demo-{'-'.join(extras)}-{digest:08x}"
    with locked(folder, "the requirements of the demo", Deadline(SystemClock(), _LOCK_TIMEOUT_MS)):
        if not folder.is_dir():
            print_message(
                f"{' and '.join(missing)} not found: downloading the requirements of the demo "
                f"once to {folder}\n"
                f"({sum(_MEGABYTES[name] for name in missing)} MB; Ctrl-C cancels). To install "
                f"them yourself: pip install 'millstream[{','.join(extras)}]'",
                FAINT,
            )
            _fetch(folder, packages)
    previous = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), *([previous] if previous else [])])
    sys.stdout.flush()
    sys.stderr.flush()
    # -P keeps the working directory out of sys.path, as with the `millstream` script.
    command = [sys.executable, "-P", "-m", "millstream", "demo", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path, _FETCHED: "1"})


def _fetch(folder: Path, packages: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
        fetched = Path(name, "packages")
        # The installer prints to stderr, because stdout is for the output of the demo.
        ran = subprocess.run([*installer(), "--target", str(fetched), *packages], stdout=2)
        if ran.returncode != 0:
            raise StreamsError(
                "The requirements of the demo could not be downloaded; the output above contains "
                "the reason. Install them yourself: pip install 'millstream[spark,server,java]'"
            )
        # Renamed last, so that a folder with the final name is always complete.
        fetched.rename(folder)


def installer() -> list[str]:
    """Return the command that installs packages into a folder.

    Raises StreamsError if neither pip nor uv is installed.
    """
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    if util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        return [*pip, "install", *quiet]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, *quiet]
    raise StreamsError(
        "The requirements of the demo cannot be downloaded, because neither pip nor uv is "
        "installed. Install Millstream with the extras spark and server, and with java if Java is "
        "not installed."
    )


def _requirements(extras: Sequence[str]) -> list[str]:
    """Return the requirements of the given extras."""
    found = []
    for requirement in requires("millstream") or []:
        name, _, condition = requirement.partition(";")
        if any(f"extra == '{extra}'" in condition.replace('"', "'") for extra in extras):
            found.append(name.strip())
    return found


def _has_java() -> bool:
    try:
        find_java()
    except EmbeddedKafkaError:
        return False
    return True
