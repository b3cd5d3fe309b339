"""Installs signal handlers that processes forked by user code do not inherit.

A handler of a stream thread or of `run()` closes the application gracefully. In a forked child,
this handler would only set a flag that is never read, so `Process.terminate()` would not end the
child.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

#: The type that `signal.signal` takes and returns.
Handler = Callable[[int, FrameType | None], Any] | int | None


class _InstalledHandler(NamedTuple):
    number: int
    before: Handler
    installed: Handler


#: The installed handlers, in the order of installation.
_installed: Final[list[_InstalledHandler]] = []


@contextmanager
def installed_handlers(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Install signal handlers inside the context.

    Handlers are mapped by signal number, and can only be installed in the main thread. Children
    that are forked inside the context have the previous handlers.
    """
    added = [
        _InstalledHandler(number, signal.signal(number, handler), handler)
        for number, handler in handlers.items()
    ]
    _installed.extend(added)
    try:
        yield
    finally:
        for each in added:
            _installed.remove(each)
            signal.signal(each.number, each.before)


class _BlockedSignals(threading.local):
    """The signals that a thread had blocked before it forked."""

    mask: Collection[int] = ()


_blocked: Final = _BlockedSignals()


def _block() -> None:
    # Signals to the child stay pending until its handlers are restored.
    numbers = {each.number for each in _installed}
    _blocked.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.mask)


def _restore() -> None:
    """Restore the previous handlers in a forked child.

    If user code has replaced one of our handlers, the user's handler is kept.
    """
    for each in reversed(_installed):
        if signal.getsignal(each.number) == each.installed:
            signal.signal(each.number, each.before)
    _installed.clear()
    _unblock()


os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_restore)
