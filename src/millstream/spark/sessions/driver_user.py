"""The user of the driver's JVM, where Java does not find a home, a name or a temporary folder.

Spark's start needs an absolute home folder (for Ivy) and a user name (for Hadoop's login). See
`millstream.embedded.system_user` for the systems that have neither.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.embedded import system_user

if TYPE_CHECKING:
    from pyspark import SparkConf

#: Java's default on Linux.
_JAVAS_FOLDER: Final = Path("/tmp")
#: Options of every JVM that spark-submit starts; those of Spark's configuration come after them.
_VARIABLE: Final = "SPARK_SUBMIT_OPTS"


def see_to_user() -> None:
    """Add the options of `java_options` to those of JVMs that this process starts.

    Raises:
        SparkError: no folder for temporary files is writable.
    """
    given = os.environ.get(_VARIABLE, "")
    missing = [option for option in java_options() if option not in given]
    if missing:
        os.environ[_VARIABLE] = " ".join([*missing, given]).strip()


def java_options() -> list[str]:
    """The options that Java needs; none where it finds everything by itself.

    Raises:
        SparkError: no folder for temporary files is writable.
    """
    options = []
    temporary = system_user.temporary_folder()
    if temporary != _JAVAS_FOLDER:
        options.append(f'-Djava.io.tmpdir="{temporary}"')
    home = system_user.home_folder()
    if not system_user.has_entry():
        options += [f'-Duser.home="{home}"', f"-Duser.name={system_user.name()}"]
    elif home != Path(pwd.getpwuid(os.getuid()).pw_dir):
        options.append(f'-Duser.home="{home}"')
    return options


def log_in(conf: SparkConf) -> None:
    """Log in to Hadoop by name where the system has no name for the user id.

    Hadoop's own login, which Spark needs for files, fails there. Starts the JVM.

    Args:
        conf: the configuration of the session to come, with which the JVM is started.
    """
    if system_user.has_entry():
        return
    from pyspark import SparkContext

    SparkContext._ensure_initialized(conf=conf)
    jvm: Any = SparkContext._jvm
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(system_user.name()))


def peculiarities() -> str:
    """A sentence for errors about a user without an entry or a writable home; may be empty."""
    uid = os.getuid()
    if not system_user.has_entry():
        return (
            f"The process runs as user id {uid}, which has no entry in the user database "
            f"(/etc/passwd): the name {system_user.name()} and the home folder "
            f"{system_user.home_folder()} were used instead."
        )
    home = Path(pwd.getpwuid(uid).pw_dir)
    used = system_user.home_folder()
    if home != used:
        return f"The home folder {home} is missing or read-only: {used} was used instead."
    return ""
