"""Waits that others end."""

from __future__ import annotations

import signal
import threading

from millstream.waker import Waker

LONG_MS = 60_000


def test_a_wake_ends_the_wait() -> None:
    """One from another thread, however long the owner would have waited."""
    waker = Waker()
    threading.Timer(0.05, waker.wake).start()
    assert waker.wait(LONG_MS)


def test_without_one_it_ends_by_itself() -> None:
    """Also where what was called for before has been looked at."""
    waker = Waker()
    assert not waker.wait(1)
    for _ in range(3):
        waker.wake()
    waker.clear()
    assert not waker.is_set
    assert not waker.wait(1)


def test_a_wake_before_the_wait_is_not_lost() -> None:
    """Until the owner says that it looks around."""
    waker = Waker()
    waker.wake()
    assert waker.wait(LONG_MS)
    assert waker.is_set
    assert waker.wait(LONG_MS)


def test_no_wake_is_lost_between_looking_and_waiting() -> None:
    """Method: one thread puts, the other takes what it finds after `clear` and waits for more."""
    waker = Waker()
    put: list[int] = []

    def putting() -> None:
        for number in range(20_000):
            put.append(number)
            waker.wake()

    thread = threading.Thread(target=putting)
    thread.start()
    seen = 0
    while seen < 20_000:
        waker.clear()
        seen = len(put)
        assert seen == 20_000 or waker.wait(LONG_MS)
    thread.join()


def test_a_signal_handler_may_wake() -> None:
    """The thread that waits is the one that the handler interrupts."""
    waker = Waker()
    before = signal.signal(signal.SIGALRM, lambda *_: waker.wake())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert waker.wait(LONG_MS)
    finally:
        signal.signal(signal.SIGALRM, before)
