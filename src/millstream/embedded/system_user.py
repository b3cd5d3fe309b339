"""The home folder, name and temporary folder of this process's user.

Containers often run with a user id that has no entry in the system's user database (OpenShift,
`docker run --user 12345`), or with a read-only home or /tmp. Java then finds neither a home nor a
name, and uses /tmp regardless of TMPDIR.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

from millstream.errors import SparkError


def has_entry() -> bool:
    """Whether the system's user database has an entry for this process's user id."""
    return _entry() is not None


def name() -> str:
    """Return the user's name.

    For a user id without an entry, this is HADOOP_USER_NAME or else `user-UID`.
    """
    entry = _entry()
    if entry is not None:
        return entry.pw_name
    return os.environ.get("HADOOP_USER_NAME") or f"user-{os.getuid()}"


def temporary_folder() -> Path:
    """Return the writable folder that `tempfile` finds.

    It is in TMPDIR, /tmp, /var/tmp or elsewhere. Raises SparkError if there is none.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        tmpdir = os.environ.get("TMPDIR")
        given = f"TMPDIR ({tmpdir})" if tmpdir else "TMPDIR (not set)"
        raise SparkError(
            f"Spark needs a folder for temporary files, and user id {os.getuid()} cannot write to "
            f"any: {given}, /tmp, /var/tmp and the working directory {os.getcwd()} are missing or "
            "read-only, or their disks are full. Set TMPDIR to a writable folder, such as a folder "
            "in the volume of state_dir."
        ) from error


def home_folder() -> Path:
    """Return a writable home: the user database's, HOME, or a temporary folder.

    Raises SparkError."""
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
    """Create a home folder for this user only.

    The folder must be private, because Java tools load code from the home folder.
    """
    folder = parent / f"millstream-home-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022 or folder.is_symlink():
        raise SparkError(
            f"User id {os.getuid()} has no writable home, and {folder} cannot replace the home "
            "because another user created it or can write to it. Set HOME to a writable folder."
        )
    return folder
