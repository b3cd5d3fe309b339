"""Notifications of the loop about completions."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from millstream.operators.concurrent.concurrent_calls import Call, CompletedCalls, CompletionSignal


def test_notification_during_clear_or_wait_does_not_block() -> None:
    """The garbage collector can finalize a completion between any two lines of any thread: also of
    the thread that clears or waits, whichever locks it holds."""
    signal = CompletionSignal(lambda: None)
    notified = 0

    def interrupt(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal notified
        sys.settrace(None)
        notified += 1
        signal.notify()
        sys.settrace(interrupt)
        return interrupt

    def clear_and_wait() -> None:
        sys.settrace(interrupt)
        try:
            signal.clear()
            signal.wait(1)
            signal.clear()
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=clear_and_wait, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert notified > 10


def test_wait_returns_after_a_notification() -> None:
    """Also if another thread notifies during the wait. A notification counts once."""
    woken: list[None] = []
    signal = CompletionSignal(lambda: woken.append(None))
    signal.notify()
    signal.notify()
    assert signal.wait(20_000)
    assert woken == [None]
    signal.clear()
    assert not signal.wait(1)
    threading.Timer(0.02, signal.notify).start()
    assert signal.wait(20_000)
    assert len(woken) == 2


def test_each_completed_call_is_taken_once() -> None:
    """In the order of completion. Calls that complete after `clear` wake the loop again."""
    woken: list[None] = []
    signal = CompletionSignal(lambda: woken.append(None))
    completed = CompletedCalls(signal)
    first, second, third = (Call(None, index, None) for index in range(3))  # type: ignore[arg-type]
    completed.add(second)
    completed.add(first)
    signal.clear()
    assert completed.take() == [second, first]
    assert not completed
    assert completed.take() == []
    completed.add(third)
    assert completed
    assert completed.take() == [third]
    assert len(woken) == 2
