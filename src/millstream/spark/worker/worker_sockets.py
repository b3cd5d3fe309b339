"""The sockets through which Spark follows its Python worker: children of the worker give them up.

Spark learns that a worker has died when the other end of its socket is closed. A child that user
code has forked has that end open as well, and if it lives on, the worker is never missed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Spark's sockets are among the first things that a worker opens.
_MOST_DESCRIPTORS: Final = 256

_sockets: Final[set[int]] = set()


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Keep the sockets that are open at the beginning from children that are forked meanwhile."""
    _sockets.update(filter(_is_socket, range(_MOST_DESCRIPTORS)))
    try:
        yield
    finally:
        _sockets.clear()


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _give_up() -> None:
    if not _sockets:
        return
    # Replaced, not closed: Python's objects still have these numbers, which nothing else must get.
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in _sockets:
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _sockets.clear()


os.register_at_fork(after_in_child=_give_up)
