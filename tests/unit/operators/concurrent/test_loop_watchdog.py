"""Coroutines that block the event loop are logged with their position; others are not."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import wait_for

from millstream import StreamsBuilder
from millstream.operators.concurrent.event_loop import THREAD_NAME, LoopWatchdog, event_loop
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

_LOG = "millstream.operators.concurrent.event_loop"


@pytest.fixture
def sensitive_watchdog() -> Iterator[None]:
    """A second watchdog for the loop of the process, with a limit of 0.2 s."""
    loop = event_loop()
    thread = next(each for each in threading.enumerate() if each.name == THREAD_NAME)
    watchdog = LoopWatchdog(loop, thread, blocked_s=0.2, probe_s=0.05)
    watchdog.start()
    yield
    watchdog.stop()


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == _LOG]


def _run(function: Any) -> None:
    """Process one record with map_async, on the real event loop."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.map_async(function).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "v")
        assert driver.create_output_topic("out", key=STRING, value=STRING).read_values() == ["v"]


@pytest.mark.usefixtures("sensitive_watchdog")
def test_a_blocking_call_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """The warning contains file, line and function of the coroutine, and the stack down to the
    blocking call."""

    def fetched(value: str) -> str:
        wait_for(lambda: _messages(caplog))
        return value

    async def looked_up(value: str) -> str:
        await asyncio.sleep(0)
        return fetched(value)

    with caplog.at_level(logging.WARNING, _LOG):
        _run(looked_up)
    (message,) = _messages(caplog)
    assert "looked_up() at " in message
    assert "test_loop_watchdog.py" in message
    assert "asyncio.to_thread()" in message
    assert "in fetched" in message
    assert "millstream/operators" not in message


@pytest.mark.usefixtures("sensitive_watchdog")
def test_blocking_task_of_user_code_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A task that was started by a call."""

    async def blocking_task() -> None:
        wait_for(lambda: _messages(caplog))

    async def start_task(value: str) -> str:
        await asyncio.create_task(blocking_task())
        return value

    with caplog.at_level(logging.WARNING, _LOG):
        _run(start_task)
    (message,) = _messages(caplog)
    assert "blocking_task() at " in message


@pytest.mark.usefixtures("sensitive_watchdog")
def test_awaiting_is_not_blocking(caplog: pytest.LogCaptureFixture) -> None:
    async def waits(value: str) -> str:
        await asyncio.sleep(0.6)
        return value

    with caplog.at_level(logging.WARNING, _LOG):
        _run(waits)
    assert _messages(caplog) == []


def test_the_loop_of_the_process_is_watched() -> None:
    """From its first use."""
    event_loop()
    watchdog = f"{THREAD_NAME}-watchdog"
    wait_for(lambda: watchdog in {each.name for each in threading.enumerate()})
