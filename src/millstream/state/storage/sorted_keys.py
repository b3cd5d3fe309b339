"""Byte keys that are only sorted when their order is needed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

#: The number of keys per block. On average, an insertion moves half a block (up to 8 KB); a search
#: bisects the ends of the blocks.
_BLOCK_KEYS = 1_000


class SortedKeys:
    """The keys of a dict, sorted on demand.

    A dict keeps its keys in insertion order, so the keys that are not sorted yet are its last ones:
    writes to the dict have no overhead, and the next scan merges the new keys.

    Invariant: the sorted keys are the first ones of the dict. The owner calls `discard` for each
    key that it removes from the dict, and `clear` when it empties the dict.

    Args:
        owner: the dict, which this class never modifies.
    """

    def __init__(self, owner: dict[bytes, Any]) -> None:
        self._owner = owner
        self._blocks: list[list[bytes]] = []
        self._ends: list[bytes] = []
        self._count = 0

    def between(self, start: bytes | None, end: bytes | None) -> list[bytes]:
        """Return the keys in `[start, end)` as a new list; None leaves that side open."""
        self._merge_new_keys()
        blocks = self._blocks
        if not blocks:
            return []
        low = 0 if start is None else bisect_left(self._ends, start)
        high = (
            len(blocks) - 1 if end is None else min(bisect_left(self._ends, end), len(blocks) - 1)
        )
        if low > high:
            return []
        first = 0 if start is None else bisect_left(blocks[low], start)
        last = len(blocks[high]) if end is None else bisect_left(blocks[high], end)
        if low == high:
            return blocks[low][first:last]
        keys = blocks[low][first:]
        keys.extend(chain.from_iterable(blocks[low + 1 : high]))
        keys.extend(blocks[high][:last])
        return keys

    def discard(self, key: bytes) -> None:
        """Remove a key that was removed from the dict, if it was already merged."""
        index = bisect_left(self._ends, key)
        if index == len(self._blocks):
            return
        block = self._blocks[index]
        position = bisect_left(block, key)
        if position == len(block) or block[position] != key:
            return
        del block[position]
        self._count -= 1
        if block:
            self._ends[index] = block[-1]
        else:
            del self._blocks[index], self._ends[index]

    def clear(self) -> None:
        self._blocks = []
        self._ends = []
        self._count = 0

    def _merge_new_keys(self) -> None:
        new = len(self._owner) - self._count
        if not new:
            return
        keys = islice(reversed(self._owner), new)
        # An insertion costs about 1 us; sorting all keys costs about 0.1 us per key.
        if new * 10 > self._count:
            self._rebuild(chain(*self._blocks, keys))
        else:
            for key in list(keys):
                self._insert(key)
        self._count += new

    def _rebuild(self, keys: Iterable[bytes]) -> None:
        ordered = sorted(keys)
        self._blocks = [ordered[i : i + _BLOCK_KEYS] for i in range(0, len(ordered), _BLOCK_KEYS)]
        self._ends = [block[-1] for block in self._blocks]

    def _insert(self, key: bytes) -> None:
        index = min(bisect_left(self._ends, key), len(self._blocks) - 1)
        block = self._blocks[index]
        insort(block, key)
        self._ends[index] = block[-1]
        if len(block) > 2 * _BLOCK_KEYS:
            tail = block[_BLOCK_KEYS:]
            del block[_BLOCK_KEYS:]
            self._blocks.insert(index + 1, tail)
            self._ends[index] = block[-1]
            self._ends.insert(index + 1, tail[-1])
