"""Waits that other threads or signal handlers end."""

from __future__ import annotations

import signal
import threading

from millstream.clock import Waker

LONG_MS = 60_000


def test_a_wake_ends_the_wait() -> None:
    """From another thread."""
    waker = Waker()
    threading.Timer(0.05, waker.wake).start()
    assert waker.wait(LONG_MS)


def test_a_wait_without_a_wake_times_out() -> None:
    """Also after earlier wakes have been cleared."""
    waker = Waker()
    assert not waker.wait(1)
    for _ in range(3):
        waker.wake()
    waker.clear()
    assert not waker.is_set
    assert not waker.wait(1)


def test_a_wake_before_the_wait_is_not_lost() -> None:
    """Until the owner clears it."""
    waker = Waker()
    waker.wake()
    assert waker.wait(LONG_MS)
    assert waker.is_set
    assert waker.wait(LONG_MS)


def test_no_wake_is_lost_between_checking_and_waiting() -> None:
    """One thread puts numbers; the other clears, takes them and waits for more."""
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


def test_a_signal_handler_can_wake() -> None:
    """The handler interrupts the waiting thread itself."""
    waker = Waker()
    before = signal.signal(signal.SIGALRM, lambda *_: waker.wake())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert waker.wait(LONG_MS)
    finally:
        signal.signal(signal.SIGALRM, before)
