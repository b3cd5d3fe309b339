"""The demo where Spark or Java is not installed: fetched once, and the demo goes on with them."""

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

from millstream.cli.output import FAINT, say
from millstream.clock import Deadline, SystemClock
from millstream.embedded.jars import cache_parent, locked
from millstream.embedded.java import find_java
from millstream.errors import EmbeddedKafkaError, StreamsError
from millstream.spark.sessions.installed import has_pyspark

#: The extras that bring what is missing, and how much that is.
_EXTRAS: Final = {"Spark": ("spark", "server"), "Java": ("java",)}
_MEGABYTES: Final = {"Spark": 490, "Java": 100}
#: Set for the demo that goes on: what is still missing then, is not to be had in this way.
_FETCHED: Final = "MILLSTREAM_DEMO_FETCHED"
_PATIENCE_MS: Final = 900_000


def go_on_with_spark(arguments: Sequence[str]) -> None:
    """Where Spark or Java is not installed, fetch it into a folder of its own and start the demo
    again with that: then this does not return.

    Args:
        arguments: of the demo.

    Raises:
        StreamsError: it could not be fetched.
    """
    there = {"Spark": has_pyspark(), "Java": _has_java()}
    missing = [name for name, is_there in there.items() if not is_there]
    if not missing or os.environ.get(_FETCHED):
        return
    extras = [extra for name in missing for extra in _EXTRAS[name]]
    wanted = _requirements(extras)
    # Another version of this package may want others, and another machine those of its kind.
    kind = zlib.crc32(" ".join([*wanted, sys.version, sysconfig.get_platform()]).encode())
    folder = cache_parent() / f"demo-{'-'.join(extras)}-{kind:08x}"
    with locked(folder, "what the demo needs", Deadline(SystemClock(), _PATIENCE_MS)):
        if not folder.is_dir():
            lacking = " and no ".join(missing)
            say(
                f"No {lacking} here: fetches what the demo needs, once, into {folder}\n"
                f"({sum(_MEGABYTES[name] for name in missing)} MB; Ctrl-C ends it). To install it "
                f"yourself: pip install 'millstream[{','.join(extras)}]'",
                FAINT,
            )
            _fetch(folder, wanted)
    elsewhere = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), *([elsewhere] if elsewhere else [])])
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the working folder, which the command that was typed does not look into, either.
    command = [sys.executable, "-P", "-m", "millstream", "demo", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path, _FETCHED: "1"})


def _fetch(folder: Path, wanted: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
        fetched = Path(name, "packages")
        # On stderr, since stdout is the result's.
        ran = subprocess.run([*installer(), "--target", str(fetched), *wanted], stdout=2)
        if ran.returncode != 0:
            raise StreamsError(
                "What the demo needs could not be fetched, for the reason above. Install it "
                "yourself: pip install 'millstream[spark,server,java]'"
            )
        # Nothing but complete folders ever stands under the final name.
        fetched.rename(folder)


def installer() -> list[str]:
    """The words that install packages into a folder.

    Raises:
        StreamsError: there is neither pip nor uv.
    """
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    if util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        return [*pip, "install", *quiet]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, *quiet]
    raise StreamsError(
        "There is neither pip nor uv to fetch with what the demo needs: install millstream with "
        "its extras spark, server and, where there is no Java, java."
    )


def _requirements(extras: Sequence[str]) -> list[str]:
    """What some of the extras ask for."""
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
