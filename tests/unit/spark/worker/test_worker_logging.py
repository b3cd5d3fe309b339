"""A program's own loggers on a worker: configured as in the driver, and removed at the end."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.log_format import short_name
from millstream.spark.worker.worker_logging import LogFilters, LoggingSetup

NAMES = ("", "millstream", "millstream.quiet", "myapp", "myapp.loud", "alone", "kafka", "kafka.x")
THREAD = "shop-f1bbcb51-9fb9-44d4-87b0-aa5b859789e1-StreamThread-2"


@contextmanager
def fresh_loggers() -> Iterator[None]:
    """Simulate the loggers of a new process within the block."""
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(each, each.level, each.propagate, list(each.handlers)) for each in loggers]
    for each in loggers:
        each.setLevel(logging.WARNING if each is logging.root else logging.NOTSET)
        each.propagate = True
        each.handlers.clear()
    try:
        yield
    finally:
        for each, level, propagate, handlers in before:
            each.setLevel(level)
            each.propagate, each.handlers[:] = propagate, handlers


@pytest.fixture
def setup_after_pickling() -> LoggingSetup:
    """The pickled and unpickled setup of a driver with configured logging."""
    with fresh_loggers():
        logging.basicConfig(level=logging.INFO, format="%(name)s says %(message)s")
        logging.getLogger("myapp.loud").setLevel(logging.DEBUG)
        logging.getLogger("millstream.quiet").setLevel(logging.ERROR)
        alone = logging.getLogger("alone")
        alone.propagate = False
        alone.addHandler(logging.StreamHandler(sys.stderr))
        alone.handlers[0].setFormatter(logging.Formatter("{levelname} {message}", style="{"))
        found: LoggingSetup = pickle.loads(pickle.dumps(LoggingSetup.capture()))
        return found


def test_own_loggers_work_as_in_the_driver(
    setup_after_pickling: LoggingSetup, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: the program's loggers have their levels and formats; our own lines are unchanged."""
    with fresh_loggers():
        before = [(list(each.handlers), each.level, each.propagate) for each in loggers()]
        with setup_after_pickling.apply("shop", THREAD):
            logging.getLogger("myapp").info("one")
            logging.getLogger("myapp").debug("too fine")
            logging.getLogger("myapp.loud").debug("two")
            logging.getLogger("alone").warning("three")
            logging.getLogger("millstream.x").info("%s begins", THREAD)
            logging.getLogger("millstream.quiet").warning("not wanted")
            logging.getLogger("kafka.x").error("of a client, whose user tells it")
        after = [(list(each.handlers), each.level, each.propagate) for each in loggers()]
        logging.getLogger("myapp").info("not any more")
    assert after == before
    *program, ours = capsys.readouterr().err.splitlines()
    assert program == ["myapp says one", "myapp.loud says two", "WARNING three"]
    assert ours.endswith("INFO [shop-StreamThread-2] millstream.x: shop-StreamThread-2 begins")


def test_without_a_setup_only_warnings_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: as in a driver without configured logging."""
    with fresh_loggers():
        setup_after_pickling = LoggingSetup.capture()
        with setup_after_pickling.apply("shop", THREAD):
            logging.getLogger("myapp").info("silent")
            logging.getLogger("millstream.x").info("silent")
            logging.getLogger("myapp").warning("seen")
    assert capsys.readouterr().err == "seen\n"


def test_names_of_threads_are_short() -> None:
    """Goal: the id of a process is shortened; a user's name is kept."""
    assert short_name(f"{THREAD} died") == "shop-StreamThread-2 died"
    assert short_name("my-client-StreamThread-1") == "my-client-StreamThread-1"


def loggers() -> list[logging.Logger]:
    return [logging.getLogger(name) for name in NAMES]


class RequestId(logging.Filter):
    """Adds a field that a format uses."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = "r-7"
        return record.msg != "secret"


class Connected(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = "r-8"
        return True


def logged_with(made: logging.Filter, capsys: pytest.CaptureFixture[str], *, at: str) -> list[str]:
    """A worker's log output for a driver with a filter and a format that needs it."""
    with fresh_loggers():
        logging.basicConfig(level=logging.INFO, format="%(request_id)s %(message)s")
        target: Any = logging.root.handlers[0] if at == "handler" else logging.getLogger("myapp")
        target.addFilter(made)
        try:
            journey = (LoggingSetup.capture(), LogFilters.capture())
            setup_after_pickling, filters = pickle.loads(pickle.dumps(journey))
        finally:
            target.removeFilter(made)
    capsys.readouterr()
    with fresh_loggers(), setup_after_pickling.apply("shop", THREAD), filters.install():
        logging.getLogger("myapp").info("secret")
        logging.getLogger("myapp").info("one")
    with fresh_loggers():
        assert not logging.getLogger("myapp").filters
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("at", ["handler", "logger"])
def test_filters_are_shipped_with_formats(capsys: pytest.CaptureFixture[str], at: str) -> None:
    """Goal: workers' lines contain a field that a filter adds, and filtered lines are
    suppressed."""
    assert logged_with(RequestId(), capsys, at=at) == ["r-7 one"]


def test_an_unpicklable_filter_loses_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: without a field that the format needs, a line is plain, not an error."""
    assert logged_with(Connected(), capsys, at="handler") == [
        "INFO myapp: secret",
        "INFO myapp: one",
    ]


def test_a_record_factory_stays_in_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: the same for fields of a record factory."""
    with fresh_loggers():
        logging.basicConfig(level=logging.INFO, format="{trace} {message}", style="{")
        setup_after_pickling = LoggingSetup.capture()
    with fresh_loggers(), setup_after_pickling.apply("shop", THREAD):
        logging.getLogger("myapp").info("one")
    assert capsys.readouterr().err == "INFO myapp: one\n"


def run_in_new_process(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A new process, because pytest's loggers would be part of the setup."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def worker_lines(driver: str, *applications: str) -> list[str]:
    """A worker's stderr for the loggers of a driver's program.

    Args:
        driver: statements before the start of the application.
        applications: statements of user code in stream threads, one after the other.
    """
    made = run_in_new_process(
        f"{driver}\n"
        "import base64, pickle\n"
        "from millstream.spark.worker.worker_logging import LogFilters, LoggingSetup\n"
        "journey = LoggingSetup.capture(), LogFilters.capture()\n"
        "print('JOURNEY', base64.b64encode(pickle.dumps(journey)).decode())\n"
    )
    (journey,) = (line.split()[1] for line in made.stdout.splitlines() if "JOURNEY" in line)
    bodies = [
        f"with setup.apply('shop', {THREAD!r}), filters.install():\n"
        f"{textwrap.indent(each, '    ')}\n"
        for each in applications
    ]
    ran = run_in_new_process(
        "import base64, logging, pickle, sys\n"
        "setup, filters = pickle.loads(base64.b64decode(sys.argv[1]))\n" + "".join(bodies),
        journey,
    )
    return ran.stderr.splitlines()


@pytest.mark.extended
def test_a_setup_by_dict_config_works_on_workers() -> None:
    """Goal: each style of format, and handlers that cannot be shipped; levels may be of any
    class."""
    lines = worker_lines(
        textwrap.dedent(
            """
            import enum, logging.config, os

            class Level(enum.IntEnum):
                FINE = 15

            logging.config.dictConfig({
                "version": 1,
                "formatters": {
                    "json": {"format": '{"text": "$message"}', "style": "$"},
                    "plain": {"format": "{name} {message}", "style": "{"},
                    "fixed": {"format": "no field", "style": "{", "validate": False},
                },
                "handlers": {
                    "null": {
                        "class": "logging.FileHandler",
                        "filename": os.devnull,
                        "formatter": "json",
                    },
                    "plain": {"class": "logging.StreamHandler", "formatter": "plain"},
                    "fixed": {"class": "logging.StreamHandler", "formatter": "fixed"},
                },
                "loggers": {
                    "fine": {"handlers": ["plain"], "propagate": False},
                    "fixed": {"handlers": ["fixed"], "propagate": False},
                },
                "root": {"level": "INFO", "handlers": ["null"]},
            })
            logging.getLogger("fine").setLevel(Level.FINE)
            """
        ),
        "logging.getLogger('app').info('one')\n"
        "logging.getLogger('fine').log(15, 'two')\n"
        "logging.getLogger('fixed').info('three')",
    )
    assert lines == ['{"text": "one"}', "fine two", "no field"]


def test_records_for_a_queue_are_written_on_workers() -> None:
    """Goal: a queue and its listener stay in the driver; workers write records immediately."""
    lines = worker_lines(
        textwrap.dedent(
            """
            import logging, logging.handlers, queue

            records = queue.SimpleQueue()
            handler = logging.handlers.QueueHandler(records)
            logging.basicConfig(level=logging.INFO, handlers=[handler])
            logging.handlers.QueueListener(records, logging.StreamHandler()).start()
            """
        ),
        "logging.getLogger('app').info('one')",
    )
    assert lines == ["INFO:app:one"]


@pytest.mark.extended
def test_a_setup_by_user_code_on_a_worker_ends_with_the_application() -> None:
    """Goal: the next application in the process logs again, including Millstream's lines."""
    first = textwrap.dedent(
        """
        import logging.config

        logging.getLogger("millstream.x").warning("before")
        logging.config.dictConfig({
            "version": 1,
            "handlers": {"out": {"class": "logging.StreamHandler"}},
            "root": {"level": "INFO", "handlers": ["out"]},
        })
        logging.getLogger("app").info("one")
        logging.getLogger("millstream.x").warning("disabled")
        """
    )
    lines = worker_lines("", first, "logging.getLogger('millstream.x').warning('again')")
    assert [line.rpartition(": ")[2] for line in lines] == ["before", "one", "again"]


def test_json_lines() -> None:
    """Goal: if the driver logs as JSON, so do workers, with the same keys, on every logger."""
    lines = worker_lines(
        "import logging\nfrom millstream import log_as_json\nlog_as_json()",
        "import warnings\n"
        "logging.getLogger('app').info('one', extra={'order': 7})\n"
        f"logging.getLogger('millstream.x').info('%s begins', {THREAD!r})\n"
        "warnings.warn('old')",
        "logging.getLogger('millstream.x').info('again')",
    )
    own, ours, warning, again = map(json.loads, lines)
    assert own.keys() - {"order"} == ours.keys() == warning.keys() == again.keys()
    for line in (own, ours, warning, again):
        assert (line["application"], line["thread"]) == ("shop", "shop-StreamThread-2")
        assert line["task"] is None
    assert (own["message"], own["order"]) == ("one", 7)
    assert ours["message"] == "shop-StreamThread-2 begins"
    assert warning["logger"] == "py.warnings"


def test_json_lines_of_one_logger() -> None:
    """Goal: other loggers, including Millstream's, keep their formats."""
    lines = worker_lines(
        textwrap.dedent(
            """
            import logging
            from millstream import JsonFormatter

            logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
            handler = logging.StreamHandler()
            handler.setFormatter(JsonFormatter())
            logging.getLogger("audit").addHandler(handler)
            logging.getLogger("audit").propagate = False
            """
        ),
        "for name in ('audit', 'app', 'millstream.x'): logging.getLogger(name).info('one')",
    )
    assert json.loads(lines[0])["message"] == "one"
    assert lines[1] == "app: one"
    assert lines[2].endswith("INFO [shop-StreamThread-2] millstream.x: one")


class OfTheDriver(logging.Filter):
    """Relies on an object that only the driver has."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise LookupError(f"no context for {record.msg}")


def test_a_failing_filter_loses_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a failing filter does not fail the user's function; one warning explains it."""
    warning, *lines = logged_with(OfTheDriver(), capsys, at="logger")
    assert "is ignored for such records: LookupError: no context for secret" in warning
    assert lines == ["INFO myapp: secret", "INFO myapp: one"]
