"""How often each of many keys was seen, in bounded memory and never too low."""

from __future__ import annotations

from array import array
from typing import Final

#: Cells in a row: a cell is too high by 1 / width of all that was added, on average.
_WIDTH: Final = 1 << 17
_COLUMN: Final = _WIDTH - 1


class CountMinSketch:
    """Counts that are never too low, and seldom too high, in 4 MiB.

    A count is the least of the four cells that the key's hash names, one in each row. Only the
    lowest of them are raised (the conservative update), so that keys disturb each other little.
    """

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells = array("Q", bytes(8 * 4 * _WIDTH))

    def add(self, key_hash: int) -> int:
        """One more; the count with it."""
        cells = self._cells
        places = _places(key_hash)
        a, b, c, d = places
        count = min(cells[a], cells[b], cells[c], cells[d]) + 1
        for place in places:
            if cells[place] < count:
                cells[place] = count
        return count

    def count(self, key_hash: int) -> int:
        cells = self._cells
        a, b, c, d = _places(key_hash)
        return min(cells[a], cells[b], cells[c], cells[d])


class KeyCounts:
    """Exact counts of the first keys, and a sketch for the keys after these.

    Keys are known by their 64-bit hash, however long they are. At most about 110 bytes for each of
    the first keys, and 4 MiB as soon as there are more.

    Args:
        most_exact: how many keys are counted exactly.
    """

    __slots__ = ("_exact", "_most_exact", "_sketch")

    def __init__(self, most_exact: int) -> None:
        self._exact: dict[int, int] = {}
        self._most_exact = most_exact
        self._sketch: CountMinSketch | None = None

    def add(self, key_hash: int) -> int:
        """One more; the count with it."""
        exact = self._exact
        count = exact.get(key_hash)
        if count is not None:
            exact[key_hash] = count = count + 1
            return count
        if len(exact) < self._most_exact:
            exact[key_hash] = 1
            return 1
        if self._sketch is None:
            self._sketch = CountMinSketch()
        return self._sketch.add(key_hash)

    def count(self, key_hash: int) -> int:
        count = self._exact.get(key_hash)
        if count is not None:
            return count
        return 0 if self._sketch is None else self._sketch.count(key_hash)


def _places(key_hash: int) -> tuple[int, int, int, int]:
    """A cell in each row; two hashes make as many as are needed (Kirsch and Mitzenmacher)."""
    step = (key_hash >> 32) | 1
    second = key_hash + step
    third = second + step
    return (
        key_hash & _COLUMN,
        (second & _COLUMN) + _WIDTH,
        (third & _COLUMN) + 2 * _WIDTH,
        ((third + step) & _COLUMN) + 3 * _WIDTH,
    )
