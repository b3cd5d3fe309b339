"""The setup of `logging` in this process, which one test must not change for the next one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: The loggers that `log_as_json` sets up.
LOGGERS = tuple(logging.getLogger(name) for name in ("", "millstream", "py4j"))


@contextmanager
def restored_logging() -> Iterator[None]:
    """Restore the setup at the end of the block. Warnings are no longer captured then."""
    levels = [logger.level for logger in LOGGERS]
    handlers = [list(logger.handlers) for logger in LOGGERS]
    formatters = [(each, each.formatter) for found in handlers for each in found]
    hook = sys.excepthook
    try:
        yield
    finally:
        for logger, level, found in zip(LOGGERS, levels, handlers, strict=True):
            logger.setLevel(level)
            logger.handlers[:] = found
        for handler, formatter in formatters:
            handler.setFormatter(formatter)
        logging.captureWarnings(False)
        sys.excepthook = hook
