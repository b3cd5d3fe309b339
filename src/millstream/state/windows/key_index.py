"""An index from record keys to stored keys: the windows or sessions of each key."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from millstream.native import compiled
from millstream.state.windows.window_keys import KeyLayout
from millstream.windowed import MAX_TIME_MS

#: The minimum number of additions without a query after which the index drops its contents.
_MIN_UNQUERIED: Final = 10_000


class PureKeyIndex:
    """Maps each record key to its stored keys, in ascending order.

    A stored key is a record key with a suffix, which starts with the time of a window or session.
    Windowed aggregations never read all windows of a key, so the store only creates the index for
    the first query. From then on, the store updates the index for each stored key that is added or
    removed. If as many stored keys are added without a query as the index contained when it was
    filled (but at least 10,000), the index drops its contents until the next query, so that an
    occasional query does not slow down the aggregation permanently.
    """

    def __init__(self, layout: KeyLayout, stored_keys: Callable[[], Iterable[bytes]]) -> None:
        self._suffix = layout.suffix_bytes
        self._time_of = layout.time_of
        self._first_at = layout.first_at
        self._after = layout.after
        self._stored_keys = stored_keys
        self._by_key: dict[bytes, list[bytes]] = {}
        self._needs_fill = True
        # Whether the index is being filled, and whether stored keys have changed in the meantime.
        self._is_filling = self._has_changed = False
        # The number of additions since the last query, and its limit.
        self._unqueried, self._max_unqueried = 0, _MIN_UNQUERIED

    @property
    def needs_fill(self) -> bool:
        """Whether the next query must first read all stored keys, to fill the index."""
        return self._needs_fill

    def add(self, stored: bytes) -> None:
        """Add a stored key. Takes 0.2 us."""
        if self._needs_fill:
            self._has_changed = True
            return
        self._unqueried += 1
        if self._unqueried > self._max_unqueried:
            self._needs_fill = True
            self._by_key = {}
            return
        self._add(self._by_key, stored)

    def _fill(self) -> None:
        if self._is_filling:
            raise RuntimeError("The index was read while it was being filled.")
        self._is_filling = self._has_changed = True
        try:
            while self._has_changed:
                self._has_changed = False
                by_key: dict[bytes, list[bytes]] = {}
                stored_keys = list(self._stored_keys())
                for stored in stored_keys:
                    self._add(by_key, stored)
        finally:
            self._is_filling = False
        self._by_key, self._needs_fill = by_key, False
        self._max_unqueried = max(_MIN_UNQUERIED, len(stored_keys))

    def _add(self, by_key: dict[bytes, list[bytes]], stored: bytes) -> None:
        key = stored[: -self._suffix]
        known = by_key.get(key)
        if known is None:
            by_key[key] = [stored]
        elif stored > known[-1]:
            known.append(stored)
        else:
            insort(known, stored)

    def remove(self, stored: bytes) -> None:
        """Remove a stored key.

        Raises:
            KeyError: the stored key is not in the index.
        """
        if self._needs_fill:
            self._has_changed = True
            return
        key = stored[: -self._suffix]
        known = self._by_key.get(key, ())
        index = bisect_left(known, stored)
        if known[index : index + 1] != [stored]:
            raise KeyError(stored)
        if len(known) == 1:
            del self._by_key[key]
        else:
            del self._by_key[key][index]

    def of_key(self, key: bytes, first: int, last: int) -> list[bytes]:
        """Return the stored keys of a key from time `first` to `last`, ascending.

        Takes 0.7 us.

        Raises:
            RuntimeError: `stored_keys` read the index while it was being filled.
        """
        if self._needs_fill:
            self._fill()
        self._unqueried = 0
        known = self._by_key.get(key)
        if known is None or first > last or last < 0 or first > MAX_TIME_MS:
            return []
        if len(known) == 1:
            # The usual case: one comparison is cheaper than two searches.
            return known[:] if first <= self._time_of(known[0]) <= last else []
        low = bisect_left(known, self._first_at(key, first))
        return known[low : bisect_left(known, self._after(key, last), low)]


if TYPE_CHECKING:
    KeyIndex = PureKeyIndex
else:
    #: The C version takes 0.1 us to add or remove a stored key, and 0.2 us to find the stored keys
    #: in a time range.
    KeyIndex = compiled(PureKeyIndex, "KeyIndex")
