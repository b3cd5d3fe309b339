"""Child processes that user code forks do not inherit a stream thread's signal handlers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator

import pytest

from millstream.spark.signal_handlers import installed_handlers


@pytest.fixture
def received() -> Iterator[list[int]]:
    """The signals that this process handles."""
    found: list[int] = []
    with installed_handlers(
        {
            signal.SIGTERM: lambda number, _: found.append(number),
            signal.SIGINT: signal.SIG_IGN,
        }
    ):
        yield found


def _end_of(number: int) -> int | None:
    """Send a signal to a forked child, and return its exit code; None if it survives."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    child.start()
    assert child.pid is not None
    os.kill(child.pid, number)
    child.join(10)
    code = child.exitcode
    child.kill()
    child.join()
    return code


def test_a_child_ends_on_sigterm(received: list[int]) -> None:
    """Goal: terminate() ends a process that user code has forked, immediately."""
    assert _end_of(signal.SIGTERM) == -signal.SIGTERM
    os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM], "the parent handles its own"


def test_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with (
        installed_handlers({signal.SIGTERM: signal.SIG_IGN}),
        installed_handlers({signal.SIGINT: signal.SIG_IGN}),
    ):
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_handler_of_user_code_is_inherited(received: list[int]) -> None:
    """Goal: handlers of user code are kept in its children."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        signal.signal(signal.SIGTERM, before)
