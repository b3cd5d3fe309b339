"""Batches, by size and by time."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import ConfigError
from millstream.subscriptions.batching.batching_processor import BatchingWindow


def test_item_that_fills_a_batch_returns_it() -> None:
    """Detects Decaton's batches of two, which wait for a third task."""
    window: BatchingWindow[int] = BatchingWindow(capacity=2, linger_ms=10**9)
    assert window.add(1, 0) is None
    assert window.add(2, 0) == [1, 2]
    assert (len(window), window.next_due_ms()) == (0, None)


def test_linger_starts_with_the_first_item() -> None:
    """Each batch has a linger of its own."""
    window: BatchingWindow[int] = BatchingWindow(capacity=3, linger_ms=10)
    window.add(1, 100)
    window.add(2, 109)
    assert window.due(109) is None
    assert window.due(110) == [1, 2]
    assert window.due(200) is None
    window.add(3, 300)
    assert window.next_due_ms() == 310


def test_many_items_are_divided_into_batches() -> None:
    """The rest lingers from its arrival. Earlier items keep their linger if no batch got full."""
    window: BatchingWindow[int] = BatchingWindow(capacity=3, linger_ms=10)
    assert window.add_all([1, 2], 0) == []
    assert window.add_all([], 4) == []
    assert window.next_due_ms() == 10
    assert window.add_all([3, 4, 5, 6, 7], 5) == [[1, 2, 3], [4, 5, 6]]
    assert (len(window), window.next_due_ms()) == (1, 15)
    assert window.take() == [7]


def test_changed_bounds_apply_at_once() -> None:
    """Too many items for a smaller capacity are due at once."""
    window: BatchingWindow[int] = BatchingWindow(capacity=5, linger_ms=100)
    window.add_all([1, 2, 3], 0)
    window.change(capacity=5, linger_ms=10)
    assert window.next_due_ms() == 10
    window.change(capacity=2, linger_ms=100)
    assert window.due(0) == [1, 2, 3]


def test_batches_are_always_due_without_linger() -> None:
    """0 ms is a valid linger."""
    window: BatchingWindow[int] = BatchingWindow(capacity=5, linger_ms=0)
    window.add(1, 7)
    assert window.due(7) == [1]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"capacity": 0, "linger_ms": 1}, "capacity=0, but it must be an int of at least 1"),
        ({"capacity": True, "linger_ms": 1}, "capacity=True"),
        ({"capacity": 1, "linger_ms": -1}, "linger_ms=-1, but it must be an int of at least 0"),
        ({"capacity": 1, "linger_ms": 0.5}, "linger_ms=0.5"),
    ],
)
def test_invalid_bounds_are_rejected(bounds: dict[str, Any], message: str) -> None:
    """Initially and later; the current bounds stay in effect."""
    with pytest.raises(ConfigError, match=message):
        BatchingWindow(**bounds)
    window: BatchingWindow[int] = BatchingWindow(capacity=2, linger_ms=3)
    with pytest.raises(ConfigError, match=message):
        window.change(**bounds)
    window.add(1, 0)
    assert window.next_due_ms() == 3
    assert window.add(2, 0) == [1, 2]
