"""The demo where Spark or Java is not installed: fetched once, and the demo goes on with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import util
from importlib.metadata import requires
from pathlib import Path
from typing import Final

from millstream.cli.output import FAINT, say
from millstream.embedded.jars import cache_parent
from millstream.embedded.java import find_java
from millstream.errors import EmbeddedKafkaError, StreamsError
from millstream.spark.sessions.installed import has_pyspark

#: The extras that bring what is missing, and how much that is.
_EXTRAS: Final = {"Spark": ("spark", "server"), "Java": ("java",)}
_MEGABYTES: Final = {"Spark": 490, "Java": 100}


def go_on_with_spark(arguments: Sequence[str]) -> None:
    """Where Spark or Java is not installed, fetch it into a folder of its own and start this
    command again with that: then this does not return.

    Args:
        arguments: of this command.

    Raises:
        StreamsError: it could not be fetched.
    """
    there = {"Spark": has_pyspark(), "Java": _has_java()}
    missing = [name for name, is_there in there.items() if not is_there]
    extras = [extra for name in missing for extra in _EXTRAS[name]]
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder = cache_parent() / "-".join(["demo", version, *extras])
    if not missing or str(folder) in sys.path:
        return
    if not folder.is_dir():
        size = sum(_MEGABYTES[name] for name in missing)
        lacking = " and no ".join(missing)
        say(
            f"No {lacking} here: fetches what the demo needs, once, into {folder}\n"
            f"({size} MB; Ctrl-C ends it). To install it yourself: "
            f"pip install 'millstream[{','.join(extras)}]'",
            FAINT,
        )
        _fetch(folder, extras)
    elsewhere = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), *([elsewhere] if elsewhere else [])])
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "millstream", "demo", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})


def has_server() -> bool:
    """Whether the extra is installed that shows the console."""
    return all(util.find_spec(name) is not None for name in ("starlette", "uvicorn"))


def _fetch(folder: Path, extras: Sequence[str]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
            fetched = Path(name, "packages")
            # On stderr, since stdout is the result's.
            wanted = _requirements(extras)
            ran = subprocess.run([*_installer(), "--target", str(fetched), *wanted], stdout=2)
            if ran.returncode != 0:
                raise StreamsError(
                    "It could not be fetched, for the reason above. Install it yourself: "
                    f"pip install 'millstream[{','.join(extras)}]'"
                )
            # Nothing but complete folders ever stands under the final name.
            if not folder.is_dir():
                fetched.rename(folder)
    except OSError as error:
        raise StreamsError(
            f"The cache folder {folder.parent} cannot be written ({error.strerror}): set "
            "MILLSTREAM_CACHE to a folder that can."
        ) from error


def _installer() -> list[str]:
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    if util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        return [*pip, "install", *quiet]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, *quiet]
    raise StreamsError(
        "There is neither pip nor uv to fetch it with: install millstream with its extras spark, "
        "server and, where there is no Java, java."
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
