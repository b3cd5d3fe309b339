"""What fails is tried again with growing pauses, and not for ever."""

import pytest

from millstream.clock import ManualClock
from millstream.runtime.retry import Retry


def test_pauses_grow_and_end_with_success() -> None:
    clock = ManualClock()
    retry = Retry("opening", clock, None)
    pauses = []
    for _ in range(9):
        assert retry.is_due
        retry.failed(ValueError("locked"))
        before = clock.monotonic_ms()
        while not retry.is_due:
            clock.advance(1)
        pauses.append(clock.monotonic_ms() - before)
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    retry.worked()
    retry.failed(ValueError("again"))
    clock.advance(100)
    assert retry.is_due


def test_raises_the_error_once_it_has_failed_for_too_long() -> None:
    clock = ManualClock()
    retry = Retry("asking", clock, 1_000)
    retry.failed(ValueError("first"))
    clock.advance(999)
    retry.failed(ValueError("second"))
    clock.advance(1)
    with pytest.raises(ValueError, match="third"):
        retry.failed(ValueError("third"))
