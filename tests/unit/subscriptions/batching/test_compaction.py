"""Compaction: the remaining task of a key."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import ConfigError
from millstream.subscriptions.batching.compaction_processor import Choice, CompactionWindow


def window_of(choice: Any, linger_ms: int = 10) -> CompactionWindow[str, str]:
    return CompactionWindow(linger_ms, lambda left, right: choice)


@pytest.mark.parametrize(
    ("choice", "dropped", "remaining"),
    [
        (Choice.LEFT, "later", "earlier"),
        (Choice.RIGHT, "earlier", "later"),
        (Choice.EITHER, "earlier", "later"),
    ],
)
def test_one_of_two_tasks_remains(choice: Choice, dropped: str, remaining: str) -> None:
    """The other one is returned at once; with EITHER, the later one remains."""
    window = window_of(choice)
    assert window.add("key", "earlier", 0) is None
    assert window.add("key", "later", 9) == dropped
    assert window.due(9) == []
    assert window.due(10) == [remaining]
    assert window.due(10) == []


def test_chooser_receives_the_remaining_task() -> None:
    """In the order of arrival."""
    seen: list[tuple[int, int]] = []

    def choose(left: int, right: int) -> Choice:
        seen.append((left, right))
        return Choice.LEFT if left > right else Choice.RIGHT

    window: CompactionWindow[str, int] = CompactionWindow(10, choose)
    assert [window.add("key", item, 0) for item in (3, 5, 4)] == [None, 3, 4]
    assert seen == [(3, 5), (5, 4)]
    assert window.take() == [5]


def test_each_key_has_its_linger() -> None:
    """It starts with the first item of the key, and again after that was released."""
    window = window_of(Choice.RIGHT)
    window.add("a", "a1", 0)
    window.add("b", "b1", 5)
    window.add("a", "a2", 8)
    assert window.next_due_ms() == 10
    assert window.due(14) == ["a2"]
    window.add("a", "a3", 14)
    assert (len(window), window.next_due_ms()) == (2, 15)
    assert window.due(100) == ["b1", "a3"]
    assert window.next_due_ms() is None


def test_items_without_a_key_belong_to_one_key() -> None:
    """As in Decaton."""
    window = window_of(Choice.RIGHT)
    assert window.add(None, "one", 0) is None
    assert window.add(None, "other", 0) == "one"


def test_invalid_result_of_a_chooser_changes_nothing() -> None:
    """Detects an item that is lost with the error."""
    window = window_of("left")
    window.add("key", "earlier", 0)
    with pytest.raises(ConfigError, match="returned 'left', but must return a Choice"):
        window.add("key", "later", 1)
    assert window.take() == ["earlier"]


@pytest.mark.parametrize("linger_ms", [-1, 0.5, True])
def test_invalid_linger_is_rejected(linger_ms: Any) -> None:
    """It must be whole milliseconds."""
    with pytest.raises(ConfigError, match="linger_ms"):
        window_of(Choice.LEFT, linger_ms)
