"""The home folder, the name and the temporary folder of the user whom this process runs as.

Containers often run with a user id that has no entry in the system's user database (OpenShift,
`docker run --user 12345`), or with a home or a /tmp that is read-only. Java finds neither a home
nor a name then, and uses /tmp whatever TMPDIR says.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

from millstream.errors import SparkError


def has_entry() -> bool:
    """Whether the system's user database has an entry for the user id of this process."""
    return _entry() is not None


def name() -> str:
    """The user's name: HADOOP_USER_NAME or `user-UID` for a user id without an entry."""
    entry = _entry()
    if entry is not None:
        return entry.pw_name
    return os.environ.get("HADOOP_USER_NAME") or f"user-{os.getuid()}"


def temporary_folder() -> Path:
    """The folder for temporary files, as `tempfile` finds it: TMPDIR, /tmp, /var/tmp and others.

    Raises:
        SparkError: no such folder is writable.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        wanted = os.environ.get("TMPDIR")
        given = f"TMPDIR ({wanted})" if wanted else "TMPDIR (not set)"
        raise SparkError(
            f"Spark needs a folder for temporary files, and user id {os.getuid()} cannot write to "
            f"any: {given}, /tmp, /var/tmp and the working directory {os.getcwd()} are missing or "
            "read-only, or their disks are full. Set TMPDIR to a writable folder, such as a folder "
            "in the volume that holds state_dir."
        ) from error


def home_folder() -> Path:
    """A writable home: that of the user database, that of HOME, or one in the temporary folder.

    Raises:
        SparkError: there is no writable home, and the temporary folder cannot hold one.
    """
    entry = _entry()
    candidates = ([entry.pw_dir] if entry is not None else []) + [os.environ.get("HOME", "")]
    for candidate in candidates:
        if os.path.isabs(candidate) and _is_writable(candidate):
            return Path(candidate)
    return _private_folder(temporary_folder())


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None


def _is_writable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _private_folder(parent: Path) -> Path:
    """A folder that no other user can write to: package managers of Java load code from a home."""
    folder = parent / f"millstream-home-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022 or folder.is_symlink():
        raise SparkError(
            f"User id {os.getuid()} has no writable home, and {folder} cannot replace the home "
            "because another user made it or can write to it. Set HOME to a writable folder."
        )
    return folder
