"""Logging on a worker as the driver has set it up: what a program's own loggers say is seen there.

Levels and formats travel, files and other targets do not: a worker's lines go to its stderr.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

_OURS = "millstream"
#: The client of the group member: what it has to say, the member says.
_QUIET = "kafka"
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=-StreamThread-)")


class _Handler(NamedTuple):
    """What of a handler matters on a worker."""

    level: int
    format: str | None
    date_format: str | None


class _Logger(NamedTuple):
    """What was set for one logger."""

    level: int
    propagate: bool
    disabled: bool
    handler: _Handler | None


@dataclass(frozen=True)
class LoggingSetup:
    """The loggers of a process, as far as they were set up.

    Args:
        ours: the effective level of the logger `millstream`.
        loggers: the others, by name; the root logger's is empty.
    """

    ours: int
    loggers: Mapping[str, _Logger] = field(default_factory=dict)

    @staticmethod
    def of_this_process() -> LoggingSetup:
        """What is set up here now."""
        manager = logging.root.manager
        named = {
            name: each
            for name, each in sorted(manager.loggerDict.items())
            if isinstance(each, logging.Logger) and name != _OURS
        }
        found = {name: _settings_of(each) for name, each in {"": logging.root, **named}.items()}
        plain = _Logger(logging.NOTSET, True, False, None)
        return LoggingSetup(
            logging.getLogger(_OURS).getEffectiveLevel(),
            {name: each for name, each in found.items() if each != plain},
        )

    @contextmanager
    def applied(self, thread_name: str) -> Iterator[None]:
        """Log as this says, to stderr, and as before afterwards: the process may be used again.

        Args:
            thread_name: stands in each of our own lines.
        """
        ours = logging.getLogger(_OURS)
        changed = [ours, logging.getLogger(_QUIET), *map(logging.getLogger, self.loggers)]
        before = [(each, each.level, each.propagate, each.disabled) for each in changed]
        added: list[tuple[logging.Logger, logging.Handler]] = []
        for name, settings in self.loggers.items():
            logger = logging.getLogger(name)
            logger.setLevel(settings.level)
            logger.propagate, logger.disabled = settings.propagate, settings.disabled
            if settings.handler is not None:
                added.append((logger, _to_stderr(settings.handler)))
        # With a handler of its own: these lines look the same whatever the program's look like.
        ours.setLevel(self.ours)
        ours.propagate = False
        own = logging.StreamHandler(sys.stderr)
        own.setFormatter(_UtcFormatter(thread_name))
        added.append((ours, own))
        if _QUIET not in self.loggers and self.ours > logging.DEBUG:
            logging.getLogger(_QUIET).propagate = False
            added.append((logging.getLogger(_QUIET), logging.NullHandler()))
        for logger, handler in added:
            logger.addHandler(handler)
        try:
            yield
        finally:
            for logger, handler in added:
                logger.removeHandler(handler)
                handler.close()
            for logger, level, propagate, disabled in before:
                logger.setLevel(level)
                logger.propagate, logger.disabled = propagate, disabled


def short_name(thread_name: str) -> str:
    """A thread's name without the id of its process: `shop-StreamThread-1`."""
    return _UUID.sub("", thread_name)


def _settings_of(logger: logging.Logger) -> _Logger:
    # Some libraries have such a class of their own.
    handlers = [each for each in logger.handlers if type(each).__name__ != "NullHandler"]
    handler = None
    if handlers:
        formatter = handlers[0].formatter
        # The text of another kind of formatter may be of any form, its code need not travel.
        plain = formatter if type(formatter) is logging.Formatter else None
        handler = _Handler(
            min(each.level for each in handlers),
            plain._fmt if plain is not None else None,
            plain.datefmt if plain is not None else None,
        )
    return _Logger(logger.level, logger.propagate, logger.disabled, handler)


def _to_stderr(settings: _Handler) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(settings.level)
    style = "%"
    if settings.format is not None and "%(" not in settings.format:
        style = "{" if "{" in settings.format else "$"
    handler.setFormatter(logging.Formatter(settings.format, settings.date_format, style))  # type: ignore[arg-type]  # one of three letters
    return handler


class _UtcFormatter(logging.Formatter):
    """One line as `2026-01-31 12:00:00,000Z INFO [shop-StreamThread-1] millstream.x: text`."""

    @staticmethod
    def converter(seconds: float | None) -> time.struct_time:
        return time.gmtime(seconds)

    def __init__(self, thread_name: str) -> None:
        name = short_name(thread_name).replace("%", "%%")
        super().__init__(f"%(asctime)sZ %(levelname)s [{name}] %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return short_name(super().format(record))
