"""Rate limits of librdkafka's log lines."""

from __future__ import annotations

import logging

import pytest

from millstream.clock import ManualClock
from millstream.kafka.librdkafka_log import LibrdkafkaLogger


def test_similar_lines_are_logged_once_per_30_s(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is down must not fill the disk with log lines."""
    clock = ManualClock()
    log = LibrdkafkaLogger(logging.getLogger("test.client"), clock)

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
    assert messages[2].endswith("(4 similar lines were suppressed)")
    assert caplog.records[0].levelno == logging.WARNING


def test_the_number_of_tracked_lines_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Many different lines must not fill the memory."""
    log = LibrdkafkaLogger(logging.getLogger("test.client"), ManualClock())
    with caplog.at_level(logging.INFO, "test.client"):
        for number in range(1_000):
            log.log(logging.INFO, "line " + "x" * number)
    assert len(log._seen) <= 200
    assert len(caplog.records) == 1_000


def test_transient_problems_are_first_logged_as_info(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise they would be the first log line of many new applications."""
    clock = ManualClock()
    log = LibrdkafkaLogger(logging.getLogger("test.client"), clock)
    with caplog.at_level(logging.INFO, "test.client"):
        for _ in range(3):
            log.log(logging.WARNING, "GETPID Coordinator load in progress: retrying")
        clock.advance(30_000)
        log.log(logging.WARNING, "GETPID Coordinator load in progress: retrying")
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]
