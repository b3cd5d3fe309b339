"""librdkafka's log lines: each news once in a while."""

from __future__ import annotations

import logging

import pytest

from millstream.clock import ManualClock
from millstream.kafka.librdkafka_log import ClientLog


def test_the_same_news_is_logged_once_in_half_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is down must not fill the disk."""
    clock = ManualClock()
    log = ClientLog(logging.getLogger("test.client"), clock)

    def fail(thread: int) -> None:
        log.log(
            logging.ERROR, "%s [%s] %s", "FAIL", "c", f"[thrd:{thread}]: refused after {thread}ms"
        )

    with caplog.at_level(logging.INFO, "test.client"):
        for thread in range(5):
            fail(thread)
        log.log(logging.INFO, "other news")
        clock.advance(30_000)
        fail(9)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert messages[2].endswith("(4 lines like this were left out)")
    assert caplog.records[0].levelno == logging.WARNING


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Ever new lines must not fill the memory."""
    log = ClientLog(logging.getLogger("test.client"), ManualClock())
    with caplog.at_level(logging.INFO, "test.client"):
        for number in range(1_000):
            log.log(logging.INFO, "news " + "x" * number)
    assert len(log._seen) <= 200
    assert len(caplog.records) == 1_000


def test_what_passes_by_itself_is_no_warning_at_first(caplog: pytest.LogCaptureFixture) -> None:
    """It would be the first line of many first applications, and mean nothing."""
    clock = ManualClock()
    log = ClientLog(logging.getLogger("test.client"), clock)
    with caplog.at_level(logging.INFO, "test.client"):
        for _ in range(3):
            log.log(logging.WARNING, "GETPID Coordinator load in progress: retrying")
        clock.advance(30_000)
        log.log(logging.WARNING, "GETPID Coordinator load in progress: retrying")
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]
