"""Where an application is served, and the file that tells programs of the same user."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

FILE: Final = "server.json"


@dataclass(frozen=True)
class ServerAddress:
    """Where an application answers, and what a request must show.

    Args:
        url: for example `http://127.0.0.1:8080`.
        token: goes into the header `Authorization: Bearer <token>`.

    Example:
        >>> ServerAddress("http://127.0.0.1:8080", "secret").console
        'http://127.0.0.1:8080/#token=secret'
    """

    url: str
    token: str

    @property
    def console(self) -> str:
        """The console's page, for a browser; what stands behind `#` does not leave it."""
        return f"{self.url}/#token={quote(self.token, safe='')}"

    def __repr__(self) -> str:
        return f"ServerAddress({self.url!r}, token=...)"


class AddressFile:
    """The file of an application that is served; it is locked as long as that is so.

    The lock, unlike a process id, cannot be somebody else's by now, and ends with the process.

    Args:
        path: the file.
        descriptor: of it, with the lock.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def forget(self) -> None:
        """The application is not served any more; a file of another one in its place stays."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                self._path.unlink()
        os.close(self._descriptor)


def write_address(folder: Path, address: ServerAddress, *, with_token: bool) -> AddressFile:
    """Tell programs of this user where the application is served; the file.

    Nobody else can read it. A token that the user has chosen is not written: it is a secret that
    may be used elsewhere.

    Raises:
        OSError: it cannot be written, or another instance that is served tells of itself there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    if is_served(folder):
        raise FileExistsError(f"{path} tells of another instance, which is served")
    fresh = folder / f".{FILE}.{os.getpid()}"
    document = {
        "url": address.url,
        "token": address.token if with_token else None,
        "pid": os.getpid(),
    }
    fresh.unlink(missing_ok=True)
    # Made anew and never followed: what is there may be somebody else's.
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            json.dump(document, file)
        fresh.replace(path)
    except BaseException:
        os.close(descriptor)
        fresh.unlink(missing_ok=True)
        raise
    return AddressFile(path, descriptor)


def is_served(folder: Path) -> bool:
    """Whether the application still lives that tells in `folder` where it is served."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def read_address(folder: Path) -> ServerAddress | None:
    """Where the application is served whose state is in `folder`; None if it does not tell.

    A file of another user is not believed: it could lead the token elsewhere. The token is empty
    if the application was given one.
    """
    try:
        with open(folder / FILE, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            document = json.load(file)
        return ServerAddress(str(document["url"]), str(document["token"] or ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
