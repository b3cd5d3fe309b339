"""Signal handlers of this process, which processes that user code forks do not inherit.

A handler of a stream thread or of `run()` closes the application in an orderly way. In a forked
child it would set a flag that nothing reads: `Process.terminate()` would not end the child.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

#: What `signal.signal` takes and returns.
Handler = Callable[[int, FrameType | None], Any] | int | None


class _Replaced(NamedTuple):
    number: int
    before: Handler
    installed: Handler


#: In the order of installation.
_replaced: Final[list[_Replaced]] = []


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Handle signals in this process; those from before are restored at the end.

    In the main thread only. Children that are forked meanwhile have the handlers from before.

    Args:
        handlers: by the number of the signal.
    """
    added = [
        _Replaced(number, signal.signal(number, handler), handler)
        for number, handler in handlers.items()
    ]
    _replaced.extend(added)
    try:
        yield
    finally:
        for each in added:
            _replaced.remove(each)
            signal.signal(each.number, each.before)


class _Blocked(threading.local):
    """The signals that a thread blocked before it began to fork."""

    mask: Collection[int] = ()


_blocked: Final = _Blocked()


def _block() -> None:
    # A signal that comes to a child before its handlers are restored must wait for that.
    numbers = {each.number for each in _replaced}
    _blocked.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.mask)


def _restore() -> None:
    """In a forked child: restore what was there, unless user code has replaced it since."""
    for each in reversed(_replaced):
        if signal.getsignal(each.number) == each.installed:
            signal.signal(each.number, each.before)
    _replaced.clear()
    _unblock()


os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_restore)
