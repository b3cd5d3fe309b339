"""Where the loop hears that something has ended."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from millstream.operators.apart.calls import Call
from millstream.operators.apart.landing import Ended, Landing


def test_what_is_told_in_the_middle_of_hearing_or_waiting_blocks_nothing() -> None:
    """A completion in a circle is thrown away by the collector of garbage, between any two lines of
    any thread: also of the one that hears and waits, with whatever it holds."""
    landing = Landing(lambda: None)
    told = 0

    def interrupt(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal told
        sys.settrace(None)
        told += 1
        landing.tell()
        sys.settrace(interrupt)
        return interrupt

    def hear_and_wait() -> None:
        sys.settrace(interrupt)
        try:
            landing.hear()
            landing.wait(1)
            landing.hear()
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=hear_and_wait, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert told > 10


def test_what_was_told_is_not_waited_for() -> None:
    """Also by another thread, while it is waited for; and it is heard once."""
    woken: list[None] = []
    landing = Landing(lambda: woken.append(None))
    landing.tell()
    landing.tell()
    assert landing.wait(20_000)
    assert woken == [None]
    landing.hear()
    assert not landing.wait(1)
    threading.Timer(0.02, landing.tell).start()
    assert landing.wait(20_000)
    assert len(woken) == 2


def test_each_call_that_has_ended_is_taken_once() -> None:
    """In the order of the ends; those that end after `hear` wake the loop again."""
    woken: list[None] = []
    landing = Landing(lambda: woken.append(None))
    ended = Ended(landing)
    first, second, third = (Call(None, index, None) for index in range(3))  # type: ignore[arg-type]
    ended.add(second)
    ended.add(first)
    landing.hear()
    assert ended.take() == [second, first]
    assert not ended
    assert ended.take() == []
    ended.add(third)
    assert ended
    assert ended.take() == [third]
    assert len(woken) == 2
