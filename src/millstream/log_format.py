"""JSON log lines with the application, thread and task of each line.

The driver and the workers use the same formatter. `spark/worker/worker_logging.py` applies it on
workers, where the stream thread is known.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

from millstream.errors import StreamsError, repr_of
from millstream.record import TaskId

_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=-StreamThread-)")
_THREAD_NAME: Final = re.compile(r".+-StreamThread-\d+")
_THREAD_SUFFIX: Final = re.compile(r"-StreamThread-\d+$")
#: The attributes of every log record. All others were passed as `extra` or added by filters.
_STANDARD: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message")
)


class LogSource(NamedTuple):
    """The application, instance and stream thread that log lines belong to."""

    application: str | None = None
    instance: str | None = None
    thread: str | None = None

    @classmethod
    def of_thread(cls, application_id: str, thread_name: str) -> LogSource:
        instance = _THREAD_SUFFIX.sub("", thread_name)
        return cls(application_id, instance, short_name(thread_name))


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects, one per line.

    Each object has the keys `timestamp` (UTC, ISO 8601, milliseconds), `level`, `logger`,
    `message`, `application`, `instance` (the client id), `thread` (the stream thread), `task`,
    `host`, `process` (the process id) and `exception` (with the traceback). Unknown values are
    null. Attributes that were passed as `extra={...}` are added under their own names.

    If the handler of a logger has this formatter in the driver, the logger's lines on workers have
    the same format. In the driver, `application` is null if several applications are running.

    Example:
        >>> record = logging.makeLogRecord({"msg": "order %s", "args": (7,), "levelname": "INFO"})
        >>> json.loads(JsonFormatter().format(record))["message"]
        'order 7'
    """

    def __init__(self) -> None:
        super().__init__()
        self._get_source: Callable[[], LogSource] = _running_application
        self._get_task: Callable[[], TaskId | None] = lambda: None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        # Like other formatters: `caplog` of pytest, for example, expects this attribute.
        record.message = _message(record)
        source, mentioned = self._get_source(), list(_mentioned(record))
        task = (
            next((each for each in mentioned if isinstance(each, TaskId)), None) or self._get_task()
        )
        thread = source.thread or next((each for each in mentioned if isinstance(each, str)), None)
        fields: dict[str, Any] = {
            "timestamp": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": short_name(record.message),
            "application": source.application,
            "instance": source.instance,
            "thread": thread,
            "task": None if task is None else str(task),
            "host": _HOST,
            "process": record.process,
            "exception": self._exception(record),
        }
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        for name, value in vars(record).items():
            if name not in _STANDARD:
                fields.setdefault(name, value)
        return _encoded(fields)

    def _exception(self, record: logging.LogRecord) -> str | None:
        if record.exc_info and record.exc_info[0] is not None:
            return self.formatException(record.exc_info)
        # Handlers such as QueueHandler replace the exception by its text.
        return record.exc_text


class WorkerJsonFormatter(JsonFormatter):
    """The formatter of a stream thread's process.

    Args:
        get_task: returns the task that the calling thread or coroutine processes.
    """

    def __init__(self, source: LogSource, get_task: Callable[[], TaskId | None]) -> None:
        super().__init__()
        self._get_source = lambda: source
        self._get_task = get_task


def log_as_json(level: int | str = logging.INFO) -> None:
    """Write the log lines of this process and of its workers as JSON.

    The handlers of the root logger and of the logger `millstream` get a `JsonFormatter`. If the
    root logger has no handlers, it gets one for stderr, and `level`. Python's warnings and an
    exception that ends the program are logged, too. Can be called repeatedly. The setting
    `log_format="json"` calls this function when an application starts.

    Example:
        >>> log_as_json(logging.WARNING)  # at the beginning of the program
    """
    root = logging.getLogger()
    if not _handlers(root):
        root.addHandler(logging.StreamHandler())
        root.setLevel(level)
        # The client of Spark's JVM logs each connection at INFO.
        logging.getLogger("py4j").setLevel(logging.WARNING)
    for logger in (root, logging.getLogger("millstream")):
        for handler in _handlers(logger):
            if not isinstance(handler.formatter, JsonFormatter):
                handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _log_uncaught


def is_json(logger: logging.Logger) -> bool:
    """Return whether the nearest handler of a logger writes JSON."""
    at: logging.Logger | None = logger
    while at is not None:
        handlers = _handlers(at)
        if handlers:
            return isinstance(handlers[0].formatter, JsonFormatter)
        at = at.parent if at.propagate else None
    return False


def short_name(thread_name: str) -> str:
    """Return a thread's name without its process ID: `shop-StreamThread-1`."""
    return _UUID.sub("", thread_name)


class Ending(Protocol):
    """The state of an application."""

    @property
    def is_final(self) -> bool: ...


#: The applications of this process that have been started, except for earlier ones that have ended.
_started: dict[Ending, Callable[[], LogSource]] = {}
_HOST: Final = socket.gethostname()


def add_log_source(application_id: str, instance: Callable[[], str | None], state: Ending) -> None:
    """Add an application, which is being started, to the lines of this process.

    `instance` returns None while the id of the instance is unknown.
    """
    for each in [each for each in _started if each.is_final]:
        _started.pop(each, None)
    _started[state] = lambda: LogSource(application_id, instance())


def _running_application() -> LogSource:
    """Return the running application, or else the last one.

    Empty if several are running.
    """
    started = list(_started.items())
    running = [source for state, source in started if not state.is_final]
    if len(running) == 1:
        return running[0]()
    return LogSource() if running or not started else started[-1][1]()


def _handlers(logger: logging.Logger) -> list[logging.Handler]:
    # Matched by name, because some libraries define their own NullHandler.
    return [each for each in logger.handlers if type(each).__name__ != "NullHandler"]


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("millstream").critical(
        "The program ends with an error: %s", error, exc_info=(kind, error, trace)
    )


def _mentioned(record: logging.LogRecord) -> Iterator[TaskId | str]:
    """Yield the tasks and the names of threads among the arguments of a line."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    error = record.exc_info[1] if record.exc_info else None
    for each in (*arguments, error):
        if isinstance(each, StreamsError):
            each = each.task_id
        if isinstance(each, TaskId) or (isinstance(each, str) and _THREAD_NAME.fullmatch(each)):
            yield each if isinstance(each, TaskId) else short_name(each)


def _message(record: logging.LogRecord) -> str:
    """Return the message, also if its arguments do not match the format string."""
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg} {repr_of(record.args)}"


def _utc(seconds: float) -> str:
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_ENCODER: Final = json.JSONEncoder(default=str, allow_nan=False)


def _encoded(fields: dict[str, Any]) -> str:
    try:
        return _ENCODER.encode(fields)
    except Exception:
        # Values of `extra` may be of any type, and their methods may fail.
        plain = (str, int, bool, type(None))
        return json.dumps(
            {str(k): v if isinstance(v, plain) else repr_of(v) for k, v in fields.items()}
        )
