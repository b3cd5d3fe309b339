"""Configures logging on workers as on the driver.

This includes the program's own loggers. Levels, formats, `JsonFormatter` and filters are shipped;
files and other destinations are not. Workers log to stderr.
"""

from __future__ import annotations

import logging
import pickle
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TextIO

from millstream.errors import NotPicklableError, summary_of
from millstream.log_format import JsonFormatter, LogSource, WorkerJsonFormatter, is_json, short_name
from millstream.runtime.stack_inspection import running_task
from millstream.spark.code.shipping import ship

_MILLSTREAM = "millstream"
#: The logger of the group member's Kafka client. The member itself logs all relevant events.
_KAFKA_CLIENT = "kafka"


class _HandlerSettings(NamedTuple):
    level: int
    format: str | None
    date_format: str | None
    style: str


class _LoggerSettings(NamedTuple):
    level: int
    propagate: bool
    disabled: bool
    handler: _HandlerSettings | None


@dataclass(frozen=True)
class LoggingSetup:
    #: The effective level of the logger `millstream`.
    millstream_level: int
    #: Whether the lines of the logger `millstream` are JSON.
    millstream_json: bool = False
    #: The other configured loggers, by name; the root logger's name is empty.
    loggers: Mapping[str, _LoggerSettings] = field(default_factory=dict)

    @staticmethod
    def capture() -> LoggingSetup:
        found = {name: _settings_of(each) for name, each in _loggers().items()}
        plain = _LoggerSettings(logging.NOTSET, True, False, None)
        millstream = logging.getLogger(_MILLSTREAM)
        return LoggingSetup(
            millstream.getEffectiveLevel(),
            is_json(millstream),
            {name: each for name, each in found.items() if each != plain},
        )

    def _enable_millstream_loggers(self) -> None:
        """Enable Millstream's loggers that an earlier application has disabled.

        Applications can disable loggers with `dictConfig`.
        """
        for name, logger in _loggers(include_millstream=True).items():
            if name.partition(".")[0] == _MILLSTREAM and name not in self.loggers:
                logger.disabled = False

    @contextmanager
    def apply(self, application_id: str, thread_name: str) -> Iterator[None]:
        """Apply this configuration inside the context, with stderr as the destination.

        The previous configuration is restored afterwards, because Spark may reuse the process. Each
        line of Millstream's loggers contains the thread's name.
        """
        source = LogSource.of_thread(application_id, thread_name)
        millstream = logging.getLogger(_MILLSTREAM)
        changed = [*map(logging.getLogger, (_MILLSTREAM, _KAFKA_CLIENT, *self.loggers))]
        before = [(each, each.level, each.propagate, each.disabled) for each in changed]
        added: list[tuple[logging.Logger, logging.Handler]] = []
        for name, settings in self.loggers.items():
            logger = logging.getLogger(name)
            logger.setLevel(settings.level)
            logger.propagate, logger.disabled = settings.propagate, settings.disabled
            if settings.handler is not None:
                added.append((logger, _stderr_handler(settings.handler, source)))
        # A separate handler, so that Millstream's lines do not depend on the program's format.
        millstream.setLevel(self.millstream_level)
        millstream.propagate = False
        self._enable_millstream_loggers()
        own = logging.StreamHandler(sys.stderr)
        own.setFormatter(
            WorkerJsonFormatter(source, running_task)
            if self.millstream_json
            else _UtcFormatter(thread_name)
        )
        added.append((millstream, own))
        if _KAFKA_CLIENT not in self.loggers and self.millstream_level > logging.DEBUG:
            logging.getLogger(_KAFKA_CLIENT).propagate = False
            added.append((logging.getLogger(_KAFKA_CLIENT), logging.NullHandler()))
        for logger, handler in added:
            logger.addHandler(handler)
        if self.millstream_json:
            logging.captureWarnings(True)
        try:
            yield
        finally:
            if self.millstream_json:
                logging.captureWarnings(False)
            for logger, handler in added:
                logger.removeHandler(handler)
                handler.close()
            for logger, level, propagate, disabled in before:
                logger.setLevel(level)
                logger.propagate, logger.disabled = propagate, disabled


def _loggers(*, include_millstream: bool = False) -> dict[str, logging.Logger]:
    named = {
        name: each
        for name, each in sorted(logging.root.manager.loggerDict.items())
        if isinstance(each, logging.Logger) and (include_millstream or name != _MILLSTREAM)
    }
    return {"": logging.root, **named}


def _handlers_of(logger: logging.Logger) -> list[logging.Handler]:
    # Matched by name, because some libraries define their own NullHandler.
    return [each for each in logger.handlers if type(each).__name__ != "NullHandler"]


def _settings_of(logger: logging.Logger) -> _LoggerSettings:
    """Return the settings of a logger as plain numbers and strings.

    Levels may be members of a user's enum, which workers cannot import.
    """
    handlers = _handlers_of(logger)
    handler = None
    if handlers:
        formatter = handlers[0].formatter
        # Other formatters may produce any output, and their code is not shipped.
        plain = formatter if type(formatter) is logging.Formatter else None
        handler = _HandlerSettings(
            int(min(each.level for each in handlers)),
            None if plain is None or plain._fmt is None else str(plain._fmt),
            None if plain is None or plain.datefmt is None else str(plain.datefmt),
            _JSON if isinstance(formatter, JsonFormatter) else _style_of(plain),
        )
    return _LoggerSettings(
        int(logger.level), bool(logger.propagate), bool(logger.disabled), handler
    )


def _style_of(formatter: logging.Formatter | None) -> str:
    return "%" if formatter is None else _STYLES.get(type(formatter._style), "%")


#: The style of a `JsonFormatter`.
_JSON: Final = "json"

#: The style of a formatter by the exact class: the last two are subclasses of `PercentStyle`.
_STYLES: Final[Mapping[type[logging.PercentStyle], str]] = {
    logging.PercentStyle: "%",
    logging.StrFormatStyle: "{",
    logging.StringTemplateStyle: "$",
}


def _stderr_handler(settings: _HandlerSettings, source: LogSource) -> logging.Handler:
    handler = _WorkerHandler(sys.stderr)
    handler.setLevel(settings.level)
    if settings.style == _JSON:
        handler.setFormatter(WorkerJsonFormatter(source, running_task))
        return handler
    # The driver may have accepted the format without validating it.
    handler.setFormatter(
        _LenientFormatter(settings.format, settings.date_format, settings.style, validate=False)  # type: ignore[arg-type]  # one of three letters
    )
    return handler


@dataclass(frozen=True)
class LogFilters:
    """The filters of a process's loggers and handlers.

    Of the handlers, only those whose formats workers use are included. A format may name fields
    that a filter adds to each record. Filters are user code, so they are shipped with the topology
    rather than with the levels and formats, which Spark may write to disk.
    """

    #: Pickled filters by logger name; the root logger's name is empty.
    logger_filters: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    handler_filters: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)

    @staticmethod
    def capture() -> LogFilters:
        """Return the current filters of this process, except for unpicklable ones."""
        logger_filters, handler_filters = {}, {}
        for name, each in _loggers().items():
            logger_filters[name] = _pickle_filters(each.filters)
            handlers = _handlers_of(each)
            handler_filters[name] = _pickle_filters(handlers[0].filters) if handlers else ()
        return LogFilters(
            {name: filters for name, filters in logger_filters.items() if filters},
            {name: filters for name, filters in handler_filters.items() if filters},
        )

    @contextmanager
    def install(self) -> Iterator[None]:
        """Install these filters inside the context, within `LoggingSetup.apply`."""
        changed: list[tuple[logging.Filterer, Any]] = []
        for name, filters in self.logger_filters.items():
            changed += [(logging.getLogger(name), each) for each in _unpickle_filters(filters)]
        for name, filters in self.handler_filters.items():
            for handler in logging.getLogger(name).handlers:
                if isinstance(handler, _WorkerHandler):
                    changed += [(handler, each) for each in _unpickle_filters(filters)]
        for filterer, each in changed:
            filterer.addFilter(each)
        try:
            yield
        finally:
            for filterer, each in changed:
                filterer.removeFilter(each)


class _WorkerHandler(logging.StreamHandler[TextIO]):
    """Stands in on a worker for a handler of the driver."""


class _LenientFormatter(logging.Formatter):
    """Formats records as the driver does.

    A record that lacks a field gets a default format. Fields can be missing because log record
    factories and unpicklable filters are not shipped.
    """

    def format(self, record: logging.LogRecord) -> str:
        try:
            return super().format(record)
        except (LookupError, ValueError, AttributeError, TypeError):
            return _PLAIN.format(record)


_PLAIN = logging.Formatter("%(levelname)s %(name)s: %(message)s")


class _LenientFilter:
    """Filters records as the driver does.

    Records for which the filter raises an exception are kept. A filter may depend on the driver's
    state, for example on a context variable. Python's loggers propagate a filter's exception to the
    code that logs.
    """

    def __init__(self, shipped: Any) -> None:
        self._filter = shipped.filter if hasattr(shipped, "filter") else shipped
        self._has_raised = False

    def filter(self, record: logging.LogRecord) -> Any:
        try:
            return self._filter(record)
        except Exception as error:
            if not self._has_raised:
                self._has_raised = True
                logging.getLogger(__name__).warning(
                    "A log filter of the driver raises an exception on this worker and is ignored "
                    "for such records: %s",
                    summary_of(error),
                )
            return True


def _pickle_filters(filters: Sequence[Any]) -> tuple[bytes, ...]:
    shipped = []
    for each in filters:
        try:
            shipped.append(ship(each, f"the log filter {type(each).__name__}"))
        except NotPicklableError as error:
            logging.getLogger(__name__).warning(
                "A log filter cannot be shipped: workers log without it, and use a default format "
                "where the configured format needs the filter's fields: %s",
                error,
            )
    return tuple(shipped)


def _unpickle_filters(filters: Sequence[bytes]) -> Iterator[Any]:
    for each in filters:
        try:
            yield _LenientFilter(pickle.loads(each))
        except Exception as error:
            logging.getLogger(__name__).warning(
                "A log filter of the driver cannot be loaded on this worker: %s", summary_of(error)
            )


class _UtcFormatter(logging.Formatter):
    """Formats lines with the time in UTC, the level, the thread and the logger.

    An example is `2026-01-31 12:00:00,000Z INFO [shop-StreamThread-1] millstream.x: …`.
    """

    @staticmethod
    def converter(seconds: float | None) -> time.struct_time:
        return time.gmtime(seconds)

    def __init__(self, thread_name: str) -> None:
        name = short_name(thread_name).replace("%", "%%")
        super().__init__(f"%(asctime)sZ %(levelname)s [{name}] %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return short_name(super().format(record))
