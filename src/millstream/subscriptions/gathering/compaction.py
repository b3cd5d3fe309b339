"""Tasks of a key that replace each other for a while, so that only one of them is processed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from millstream.errors import ConfigError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Choice(Enum):
    """Which of two tasks of a key is kept: the earlier (left), the later (right), or no matter.

    Example:
        >>> Choice.RIGHT.name
        'RIGHT'
    """

    LEFT = auto()
    RIGHT = auto()
    EITHER = auto()


class _Kept(NamedTuple, Generic[T]):
    item: T
    due_ms: int


class CompactionWindow(Generic[K, T]):
    """Keeps one item of each key until `linger_ms` after the first one of that key.

    Follows Decaton's `CompactionProcessor`: items without a key (None) count as items of one key,
    and where it does not matter the later one is kept. Holds one item for each key.

    Args:
        linger_ms: how long the first item of a key waits for others, in milliseconds, from 0.
        chooser: which of two items of a key is kept, the earlier one given first.

    Raises:
        ConfigError: `linger_ms` is out of bounds.

    Example:
        >>> from millstream.subscriptions.gathering.compaction import Choice, CompactionWindow
        >>> window = CompactionWindow(100, lambda left, right: Choice.RIGHT)
        >>> window.add("a", 1, now_ms=0), window.add("b", 2, now_ms=10)
        (None, None)
        >>> window.add("a", 3, now_ms=20)
        1
        >>> window.due(now_ms=100)
        [3]
        >>> window.next_due_ms()
        110
    """

    __slots__ = ("_chooser", "_kept", "_linger_ms")

    def __init__(self, linger_ms: int, chooser: Callable[[T, T], Choice]) -> None:
        if isinstance(linger_ms, bool) or not isinstance(linger_ms, int) or linger_ms < 0:
            raise ConfigError(
                f"A compaction window got linger_ms={linger_ms!r}, but it must be an int from 0."
            )
        self._linger_ms = linger_ms
        self._chooser = chooser
        # In the order of their first items, and so of their ends: a replacement keeps its place.
        self._kept: dict[K | None, _Kept[T]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, key: K | None, item: T, now_ms: int) -> T | None:
        """One more; the item that is not kept, which is finished by that, or None.

        Raises:
            ConfigError: the chooser gave no `Choice`; the item was not added, as when the chooser
                raises something itself.
        """
        kept = self._kept.get(key)
        if kept is None:
            self._kept[key] = _Kept(item, now_ms + self._linger_ms)
            return None
        choice = self._chooser(kept.item, item)
        if choice is Choice.LEFT:
            return item
        if choice not in (Choice.RIGHT, Choice.EITHER):
            raise ConfigError(
                f"The chooser of a compaction gave {choice!r}, but must give a Choice: LEFT, RIGHT "
                "or EITHER."
            )
        self._kept[key] = kept._replace(item=item)
        return kept.item

    def due(self, now_ms: int) -> list[T]:
        """The items whose time is over, in the order of the first items of their keys."""
        due: list[T] = []
        keys: list[K | None] = []
        for key, kept in self._kept.items():
            if kept.due_ms > now_ms:
                break
            due.append(kept.item)
            keys.append(key)
        for key in keys:
            del self._kept[key]
        return due

    def next_due_ms(self) -> int | None:
        """The time from which on `due` hands out, on the clock of `add`; None without items."""
        return next((kept.due_ms for kept in self._kept.values()), None)

    def take(self) -> list[T]:
        """All that is here, due or not: for draining, or for giving up."""
        taken = [kept.item for kept in self._kept.values()]
        self._kept.clear()
        return taken
