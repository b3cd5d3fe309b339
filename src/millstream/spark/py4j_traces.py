"""Keeps py4j's stack traces out of the log: what it logs, it also raises, and we tell that once."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FOLDER: Final = f"{os.sep}py4j{os.sep}"
_lock = threading.Lock()
_users = 0


def hide_traces() -> None:
    """Leave them out, until `show_traces` has been called as often."""
    global _users
    with _lock:
        _users += 1
        # It logs to the root logger itself, without a name of its own.
        logging.getLogger().addFilter(_wanted)


def show_traces() -> None:
    """Undo one `hide_traces`."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            logging.getLogger().removeFilter(_wanted)


@contextmanager
def without_traces() -> Iterator[None]:
    """Hide them inside."""
    hide_traces()
    try:
        yield
    finally:
        show_traces()


def _wanted(record: logging.LogRecord) -> bool:
    return _FOLDER not in record.pathname or logging.getLogger("millstream").isEnabledFor(
        logging.DEBUG
    )
