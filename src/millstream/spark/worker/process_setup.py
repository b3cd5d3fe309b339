"""Prepares a worker's garbage collector and Spark's sockets for a stream thread."""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Spark's sockets are among the first descriptors that a worker opens.
_MAX_DESCRIPTORS: Final = 256

_sockets: Final[set[int]] = set()


@contextmanager
def closed_in_forked_children() -> Iterator[None]:
    """Close currently open sockets in children that are forked inside the context.

    Spark detects the end of a worker process when the worker's end of its socket is closed. A child
    process that user code forked inherits that end, so Spark would not detect that the worker has
    ended while the child is running.
    """
    _sockets.update(filter(_is_socket, range(_MAX_DESCRIPTORS)))
    try:
        yield
    finally:
        _sockets.clear()


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _replace_sockets() -> None:
    if not _sockets:
        return
    # Replaced rather than closed: Python's socket objects still hold these descriptors, so they
    # must not be reused for other files.
    devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in _sockets:
        os.dup2(devnull, descriptor, inheritable=False)
    os.close(devnull)
    _sockets.clear()


os.register_at_fork(after_in_child=_replace_sockets)


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Make Python collect reference cycles about a hundred times less often.

    A batch holds many thousands of objects, which the collector would traverse repeatedly to no
    effect. This took 1.0 us per JSON record, as much as all other work together, and 1.1 of 2.5 us
    per record of a changelog that is read into columns. Existing objects, such as imported modules,
    are excluded from collections.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
