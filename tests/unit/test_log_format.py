"""JSON log lines: their fields, and the setup of a process."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import textwrap
import warnings
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.machine.process_logging import LOGGERS

from millstream.errors import ProcessingError
from millstream.log_format import (
    JsonFormatter,
    LogSource,
    WorkerJsonFormatter,
    add_log_source,
    is_json,
    log_as_json,
)
from millstream.record import TaskId

KEYS = [
    "timestamp",
    "level",
    "logger",
    "message",
    "application",
    "instance",
    "thread",
    "task",
    "host",
    "process",
    "exception",
]
THREAD = "shop-f1bbcb51-9fb9-44d4-87b0-aa5b859789e1-StreamThread-2"


class Lines:
    """A logger with a JSON formatter, and its lines."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.written = io.StringIO()
        handler = logging.StreamHandler(self.written)
        handler.setFormatter(formatter)
        self.logger = logging.Logger("shop.orders")
        self.logger.addHandler(handler)

    def take(self) -> dict[str, Any]:
        """The only line."""
        (line,) = self.written.getvalue().splitlines()
        self.written.truncate(0)
        self.written.seek(0)
        found: dict[str, Any] = json.loads(line)
        return found


@pytest.fixture
def worker() -> Lines:
    source = LogSource.of_thread("shop", THREAD)
    return Lines(WorkerJsonFormatter(source, lambda: TaskId(0, 1)))


def test_a_line_of_a_worker(worker: Lines) -> None:
    """All keys in a fixed order, with the time in UTC."""
    worker.logger.info("%s has\n%d orders", THREAD, 3)
    line = worker.take()
    assert list(line) == KEYS
    assert line["message"] == "shop-StreamThread-2 has\n3 orders"
    assert (line["level"], line["logger"]) == ("INFO", "shop.orders")
    assert line["application"] == "shop"
    assert line["instance"] == "shop-f1bbcb51-9fb9-44d4-87b0-aa5b859789e1"
    assert (line["thread"], line["task"]) == ("shop-StreamThread-2", "0_1")
    assert line["exception"] is None
    time = datetime.fromisoformat(line["timestamp"])
    assert time.utcoffset() == timedelta(0)
    assert len(line["timestamp"]) == len("2026-01-31T12:00:00.000Z")


def test_exceptions_and_extra_attributes(worker: Lines) -> None:
    """A traceback is one field; `extra` cannot replace a field, and may contain anything."""
    try:
        raise ValueError("no such order: é\ud800")
    except ValueError:
        worker.logger.exception("failed", extra={"order": {"id": 7}, "level": "none", "at": object})
    line = worker.take()
    assert "Traceback" in line["exception"]
    assert line["exception"].endswith("ValueError: no such order: é\ud800")
    assert (line["order"], line["level"]) == ({"id": 7}, "ERROR")

    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError

    worker.logger.info("odd", extra={"ratio": float("nan"), "it": Unprintable()}, stack_info=True)
    line = worker.take()
    assert line["ratio"] == "nan"
    assert "Unprintable" in line["it"]
    assert line["stack"].startswith("Stack")
    worker.logger.info("%d orders", "many")
    assert worker.take()["message"] == "%d orders ('many',)"


def test_tasks_and_threads_among_the_arguments() -> None:
    """In the driver, only the arguments of a line and its exception contain them."""
    driver = Lines(JsonFormatter())
    driver.logger.info("task %s: %s", TaskId(1, 2), "closed")
    assert driver.take()["task"] == "1_2"
    driver.logger.info("%s ended", "shop-StreamThread-2")
    assert driver.take()["thread"] == "shop-StreamThread-2"
    error = ProcessingError("x", task_id=TaskId(3, 4))
    driver.logger.info("ended: %s", error)
    assert driver.take()["task"] == "3_4"
    driver.logger.info("ended", exc_info=error)
    assert driver.take()["task"] == "3_4"
    driver.logger.info("a line %(without)s a task", {"without": "with"})
    line = driver.take()
    assert (line["task"], line["thread"]) == (None, None)


def test_a_formatted_record_has_its_message(caplog: pytest.LogCaptureFixture) -> None:
    """Tests of users read `message` from the records of `caplog`, whose handler gets the format."""
    caplog.handler.setFormatter(JsonFormatter())
    logging.getLogger("shop").warning("%s is late", 7)
    assert [record.message for record in caplog.records] == ["7 is late"]


class State:
    is_final = False


def test_the_running_application_of_a_driver() -> None:
    """The only running application, or else the last one; none if several are running."""
    driver = Lines(JsonFormatter())

    def application() -> tuple[str | None, str | None]:
        driver.logger.info("hello")
        line = driver.take()
        return line["application"], line["instance"]

    first, second = State(), State()
    instances: list[str | None] = [None]
    add_log_source("one", lambda: instances[-1], first)
    add_log_source("one", lambda: instances[-1], first)
    assert application() == ("one", None)
    instances.append("one-1")
    assert application() == ("one", "one-1")
    add_log_source("two", lambda: "two-1", second)
    assert application() == (None, None)
    first.is_final = True
    assert application() == ("two", "two-1")
    second.is_final = True
    assert application() == ("two", "two-1")


@pytest.fixture
def loggers() -> None:
    """Loggers without handlers. A fixture of all tests restores them."""
    for each in LOGGERS:
        each.handlers.clear()


@pytest.mark.usefixtures("loggers")
def test_existing_handlers_get_the_formatter() -> None:
    """Their levels and streams are kept; a second call changes nothing."""
    root, written = logging.getLogger(), io.StringIO()
    root.addHandler(logging.StreamHandler(written))
    root.setLevel(logging.WARNING)
    assert not is_json(logging.getLogger("millstream"))
    log_as_json()
    formatter = root.handlers[0].formatter
    log_as_json()
    assert root.handlers[0].formatter is formatter
    assert is_json(logging.getLogger("millstream.x"))
    logging.getLogger("shop").info("silent")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", stacklevel=1)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["logger"] for line in lines] == ["py.warnings"]


def test_a_process_without_a_setup() -> None:
    """All output to stderr is JSON, including the exception that ends the program."""
    program = textwrap.dedent(
        """
        import logging, warnings
        from millstream import log_as_json

        log_as_json()
        logging.getLogger("shop").info("hello")
        warnings.warn("old")
        1 / 0
        """
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    hello, warning, end = [json.loads(line) for line in ran.stderr.splitlines()]
    assert ran.returncode == 1
    assert (hello["message"], warning["logger"]) == ("hello", "py.warnings")
    assert end["level"] == "CRITICAL"
    assert end["exception"].endswith("ZeroDivisionError: division by zero")
