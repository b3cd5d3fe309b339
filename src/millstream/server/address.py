"""The address of a served application, and the address file for local programs."""

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

ADDRESS_FILE: Final = "server.json"


@dataclass(frozen=True)
class ServerAddress:
    """The address of an application and the token for requests.

    Args:
        url: the URL, for example `http://127.0.0.1:8080`.
        token: the token for the header `Authorization: Bearer <token>`.

    Example:
        >>> ServerAddress("http://127.0.0.1:8080", "secret").console
        'http://127.0.0.1:8080/#token=secret'
    """

    url: str
    token: str

    @property
    def console(self) -> str:
        """The URL of the console. Browsers do not send the part after `#` to the server."""
        return f"{self.url}/#token={quote(self.token, safe='')}"

    def __repr__(self) -> str:
        return f"ServerAddress({self.url!r}, token=...)"


class AddressFile:
    """The address file of an application, locked while the application is served.

    Unlike a process ID, the lock cannot be taken over by an unrelated process, and it is released
    when the process ends.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        """Remove the file unless another instance has replaced it, and release the lock."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                self._path.unlink()
        os.close(self._descriptor)


def write_address(folder: Path, address: ServerAddress, *, with_token: bool) -> AddressFile:
    """Write the address of the application for programs of the same user.

    Only this user can read the file. A configured token is not written, because it is a secret that
    may be used elsewhere.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ADDRESS_FILE
    if is_served(folder):
        raise FileExistsError(f"{path} belongs to another instance, which is being served")
    temporary = folder / f".{ADDRESS_FILE}.{os.getpid()}"
    document = {
        "url": address.url,
        "token": address.token if with_token else None,
        "pid": os.getpid(),
    }
    temporary.unlink(missing_ok=True)
    # Always create the file: an existing one may belong to another user.
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            json.dump(document, file)
        temporary.replace(path)
    except BaseException:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    return AddressFile(path, descriptor)


def is_served(folder: Path) -> bool:
    """Return whether the application with this state directory is being served."""
    try:
        descriptor = os.open(folder / ADDRESS_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
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
    """Return the address of the application with this state directory, or None.

    Files of other users are ignored, because they could make the caller send its token to another
    server. The token is empty if it is not in the file, because it is a configured token.
    """
    try:
        with open(folder / ADDRESS_FILE, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            document = json.load(file)
        return ServerAddress(str(document["url"]), str(document["token"] or ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_loopback(host: str) -> bool:
    """Return whether an address is only reachable from this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
