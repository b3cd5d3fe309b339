"""The demo where Spark is not installed: it is fetched once, and the demo goes on with it."""

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

#: The extras without which there is nothing to see, and the one where no Java is installed.
_EXTRAS: Final = ("spark", "server")
_JAVA_EXTRA: Final = "java"


def go_on_with_spark(arguments: Sequence[str]) -> None:
    """Where Spark is not installed, fetch it into a folder of its own and start this command again
    with that: then this does not return.

    Args:
        arguments: of this command.

    Raises:
        StreamsError: it could not be fetched.
    """
    if has_pyspark():
        return
    folder = cache_parent() / f"demo-python{sys.version_info[0]}.{sys.version_info[1]}"
    if not folder.is_dir():
        say(
            f"Spark is not installed here: fetches it for the demo, once, into {folder}\n"
            "(about 500 MB, half a minute; Ctrl-C ends it). Of your own: "
            "pip install 'millstream[spark,server]'",
            FAINT,
        )
        _fetch(folder)
    elsewhere = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), *([elsewhere] if elsewhere else [])])
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "millstream", "demo", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})


def has_server() -> bool:
    """Whether the extra is installed that shows the console."""
    return all(util.find_spec(name) is not None for name in ("starlette", "uvicorn"))


def _fetch(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
            fetched = Path(name, "packages")
            # On stderr, since stdout is the result's.
            ran = subprocess.run([*_installer(), "--target", str(fetched), *_wanted()], stdout=2)
            if ran.returncode != 0:
                raise StreamsError(
                    "Spark could not be fetched, for the reason above. Install it yourself: "
                    "pip install 'millstream[spark,server]'"
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
        "Spark is not installed here, and neither pip nor uv is there to fetch it with: install "
        "millstream with its extras spark and server."
    )


def _wanted() -> list[str]:
    """What the extras of the demo ask for."""
    extras = _EXTRAS if _has_java() else (*_EXTRAS, _JAVA_EXTRA)
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
