"""Logging on a worker as the driver has set it up: what a program's own loggers say is seen there.

Levels, formats and filters travel; files and other targets do not. Workers log to their stderr.
"""

from __future__ import annotations

import logging
import pickle
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TextIO

from millstream.errors import NotPicklableError, summary_of
from millstream.spark.code.shipping import ship

_OURS = "millstream"
#: The client of the group member: what it has to say, the member says.
_QUIET = "kafka"
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=-StreamThread-)")


class _Handler(NamedTuple):
    """What of a handler matters on a worker."""

    level: int
    format: str | None
    date_format: str | None
    style: str


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
        found = {name: _settings_of(each) for name, each in _loggers().items()}
        plain = _Logger(logging.NOTSET, True, False, None)
        return LoggingSetup(
            logging.getLogger(_OURS).getEffectiveLevel(),
            {name: each for name, each in found.items() if each != plain},
        )

    def _enable_ours(self) -> None:
        """Undo what `dictConfig` in an earlier application of this process did to our loggers."""
        for name, logger in _loggers(with_ours=True).items():
            if name.partition(".")[0] == _OURS and name not in self.loggers:
                logger.disabled = False

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
        self._enable_ours()
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


def _loggers(*, with_ours: bool = False) -> dict[str, logging.Logger]:
    """The loggers of this process; the name of the root logger is empty."""
    named = {
        name: each
        for name, each in sorted(logging.root.manager.loggerDict.items())
        if isinstance(each, logging.Logger) and (with_ours or name != _OURS)
    }
    return {"": logging.root, **named}


def _handlers_of(logger: logging.Logger) -> list[logging.Handler]:
    # Some libraries have a NullHandler of their own.
    return [each for each in logger.handlers if type(each).__name__ != "NullHandler"]


def _settings_of(logger: logging.Logger) -> _Logger:
    """The settings of a logger as plain numbers and texts.

    Levels may be members of an enumeration of the user's, whose class workers cannot import.
    """
    handlers = _handlers_of(logger)
    handler = None
    if handlers:
        formatter = handlers[0].formatter
        # The text of another kind of formatter may be of any form, its code need not travel.
        plain = formatter if type(formatter) is logging.Formatter else None
        handler = _Handler(
            int(min(each.level for each in handlers)),
            None if plain is None or plain._fmt is None else str(plain._fmt),
            None if plain is None or plain.datefmt is None else str(plain.datefmt),
            "%" if plain is None else _STYLES.get(type(plain._style), "%"),
        )
    return _Logger(int(logger.level), bool(logger.propagate), bool(logger.disabled), handler)


#: `StringTemplateStyle` and `StrFormatStyle` are subclasses of `PercentStyle`.
_STYLES: Final[Mapping[type[logging.PercentStyle], str]] = {
    logging.PercentStyle: "%",
    logging.StrFormatStyle: "{",
    logging.StringTemplateStyle: "$",
}


def _to_stderr(settings: _Handler) -> logging.Handler:
    handler = _WorkerHandler(sys.stderr)
    handler.setLevel(settings.level)
    # The driver has accepted the format, perhaps without validating it.
    handler.setFormatter(
        _PatientFormatter(settings.format, settings.date_format, settings.style, validate=False)  # type: ignore[arg-type]  # one of three letters
    )
    return handler


@dataclass(frozen=True)
class LogFilters:
    """The filters of a process's loggers, and of the handlers whose formats workers use.

    A format may name fields that a filter adds to each record. Filters are code of the user's, so
    they travel with the topology, and not with the levels and formats, which Spark may write down.

    Args:
        of_loggers: pickled filters, by the name of their logger; the root logger's is empty.
        of_handlers: pickled filters of the handler of a logger, by that name.
    """

    of_loggers: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    of_handlers: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)

    @staticmethod
    def of_this_process() -> LogFilters:
        """The filters that are set up here now, without those that cannot be pickled."""
        of_loggers, of_handlers = {}, {}
        for name, each in _loggers().items():
            of_loggers[name] = _shipped(each.filters)
            handlers = _handlers_of(each)
            of_handlers[name] = _shipped(handlers[0].filters) if handlers else ()
        return LogFilters(
            {name: filters for name, filters in of_loggers.items() if filters},
            {name: filters for name, filters in of_handlers.items() if filters},
        )

    @contextmanager
    def added(self) -> Iterator[None]:
        """Filter as this says, within `LoggingSetup.applied`."""
        changed: list[tuple[logging.Filterer, Any]] = []
        for name, filters in self.of_loggers.items():
            changed += [(logging.getLogger(name), each) for each in _loaded(filters)]
        for name, filters in self.of_handlers.items():
            for handler in logging.getLogger(name).handlers:
                if isinstance(handler, _WorkerHandler):
                    changed += [(handler, each) for each in _loaded(filters)]
        for filterer, each in changed:
            filterer.addFilter(each)
        try:
            yield
        finally:
            for filterer, each in changed:
                filterer.removeFilter(each)


class _WorkerHandler(logging.StreamHandler[TextIO]):
    """A handler that a worker has in place of one of the driver's."""


class _PatientFormatter(logging.Formatter):
    """Formats a record as the driver does, or plainly where the record lacks a field.

    Factories of records and filters that cannot be pickled stay in the driver.
    """

    def format(self, record: logging.LogRecord) -> str:
        try:
            return super().format(record)
        except (LookupError, ValueError, AttributeError, TypeError):
            return _PLAIN.format(record)


_PLAIN = logging.Formatter("%(levelname)s %(name)s: %(message)s")


class _PatientFilter:
    """Filters records as the driver does, and keeps those on which the filter raises.

    It may rely on the state of the driver, for example on a context variable. Python's loggers
    raise errors of filters in the code that logs.
    """

    def __init__(self, shipped: Any) -> None:
        self._filter = shipped.filter if hasattr(shipped, "filter") else shipped
        self._has_raised = False

    def filter(self, record: logging.LogRecord) -> Any:
        """Whether to log the record, or the record to log."""
        try:
            return self._filter(record)
        except Exception as error:
            if not self._has_raised:
                self._has_raised = True
                logging.getLogger(__name__).warning(
                    "A log filter of the driver raises here, and is ignored then: %s",
                    summary_of(error),
                )
            return True


def _shipped(filters: Sequence[Any]) -> tuple[bytes, ...]:
    shipped = []
    for each in filters:
        try:
            shipped.append(ship(each, f"the log filter {type(each).__name__}"))
        except NotPicklableError as error:
            logging.getLogger(__name__).warning(
                "Workers log without a filter of this process, and plainly where a format needs "
                "it: %s",
                error,
            )
    return tuple(shipped)


def _loaded(filters: Sequence[bytes]) -> Iterator[Any]:
    for each in filters:
        try:
            yield _PatientFilter(pickle.loads(each))
        except Exception as error:
            logging.getLogger(__name__).warning(
                "A log filter of the driver cannot be loaded here: %s", summary_of(error)
            )


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
