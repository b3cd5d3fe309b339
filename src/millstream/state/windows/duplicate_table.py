"""Windows that keep several values of one key at one time, in memory, as joins of streams ask for
them: by key and time, and hardly ever in another way."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millstream.record import UNKNOWN
from millstream.state.windows.time_table import ENTRY_OVERHEAD_BYTES
from millstream.state.windows.window_keys import WINDOWS

#: Start, stored key and value. They sort by time, and then by the number in the stored key.
Entry = tuple[int, bytes, bytes]

_NOTHING: Final[Sequence[Entry]] = ()


#: From so many entries on, it takes longer to move those that stay than to look how many go.
_LONG: Final = 64


class _Bucket:
    """A stretch of time."""

    __slots__ = ("lists", "size_bytes", "weighed")

    def __init__(self) -> None:
        #: The lists of `by_key` that have entries here, some of them many times.
        self.lists: list[list[Entry]] = []
        #: What the entries take of which this is known, and how many these are.
        self.size_bytes = self.weighed = 0


class DuplicateTable:
    """What each key has, ascending, in a list by key: does what a `TimeTable` does.

    There is no dict by stored key beside it, since nothing is ever written again. To find what a
    key has within some time takes no bytes to be made and compared.

    Args:
        bucket_ms: how long a stretch of time is, of which what is old is forgotten.

    Attributes:
        by_key: the entries of each key that has any. To be read only.
        size_bytes: about what everything takes.
    """

    def __init__(self, bucket_ms: int) -> None:
        self.by_key: dict[bytes, list[Entry]] = defaultdict(list)
        self.size_bytes = 0
        self._bucket_ms = max(1, bucket_ms)
        self._buckets: dict[int, _Bucket] = {}
        # The numbers of the buckets, ascending, and of those with entries that are not weighed.
        self._numbers: list[int] = []
        self._filled: set[int] = set()
        # From this time on, what is noted comes behind all that is there.
        self._in_order_from = UNKNOWN

    def __len__(self) -> int:
        return sum(map(len, self.by_key.values()))

    # --- reading ---------------------------------------------------------------------------------

    def get(self, stored: bytes) -> bytes | None:
        """The value of a stored key, None if there is none."""
        time = WINDOWS.time_of(stored)
        for _, other, value in self._of_key(WINDOWS.key_of(stored), time, time):
            if other == stored:
                return value
        return None

    def of_key(self, key: bytes, first: int, last: int) -> list[tuple[bytes, bytes]]:
        """The stored keys of a key within some time and their values, ascending.

        Args:
            key: the serialized key.
            first: the earliest time.
            last: the latest time, included.
        """
        return [(stored, value) for _, stored, value in self._of_key(key, first, last)]

    def between(self, first: int, last: int) -> list[tuple[bytes, bytes]]:
        """The stored keys within some time and their values, in no order.

        Args:
            first: the earliest time.
            last: the latest time, included.
        """
        low = bisect_left(self._numbers, first // self._bucket_ms)
        high = bisect_left(self._numbers, last // self._bucket_ms + 1)
        lists = {
            id(known): known
            for number in self._numbers[low:high]
            for known in self._buckets[number].lists
            if known
        }
        return [
            (stored, value)
            for known in lists.values()
            for _, stored, value in within(known, first, last)
        ]

    def _of_key(self, key: bytes, first: int, last: int) -> Sequence[Entry]:
        known = self.by_key.get(key)
        return _NOTHING if known is None else within(known, first, last)

    # --- writing ---------------------------------------------------------------------------------

    def put(self, stored: bytes, value: bytes, time: int) -> None:
        """Write one value.

        Args:
            stored: the stored key.
            value: the value.
            time: that of the stored key.
        """
        key = WINDOWS.key_of(stored)
        if time < self._in_order_from:
            self.discard(stored, time)
        else:
            # Others of this time may have higher numbers.
            self._in_order_from = time + 1
        known = self.by_key[key]
        insort(known, (time, stored, value))
        bucket = self._bucket(time // self._bucket_ms)
        bucket.lists.append(known)
        bucket.weighed += 1
        size = len(stored) + len(value) + ENTRY_OVERHEAD_BYTES
        bucket.size_bytes += size
        self.size_bytes += size

    def put_many(self, pairs: Mapping[bytes, bytes], number: int) -> None:
        """Write values.

        Args:
            pairs: the values by stored key.
            number: of the bucket where all of their times lie.
        """
        for stored, value in pairs.items():
            self.put(stored, value, WINDOWS.time_of(stored))

    def note_many(self, keys: Iterable[bytes], entries: Iterable[Entry]) -> None:
        """Let new entries be found, each by its key. They are to be weighed later on.

        Args:
            keys: the serialized keys.
            entries: the entries: of one time, those that were numbered first come first.
        """
        bucket_ms, latest, start, end = self._bucket_ms, self._in_order_from, 0, 0
        # Looked up as a list first: what is waited for is memory, and more of it at a time so.
        lists = list(map(self.by_key.__getitem__, keys))
        for known, entry in zip(lists, entries, strict=True):
            time = entry[0]
            if time >= latest:
                # Not even the one before it needs to be looked at.
                latest = time
                known.append(entry)
            else:
                insort(known, entry)
            if not start <= time < end:
                # Most records are of the same time as those before them.
                number = time // bucket_ms
                start, end = number * bucket_ms, (number + 1) * bucket_ms
                fill = self._bucket(number).lists.append
                self._filled.add(number)
            fill(known)
        self._in_order_from = latest

    def weigh(self, size_bytes: int, count: int) -> None:
        """Count what was noted since the last call.

        Args:
            size_bytes: what all stored keys and values take.
            count: how many they are.
        """
        # An average will do: it is to be counted and forgotten alike.
        each = size_bytes // count + ENTRY_OVERHEAD_BYTES
        for number in self._filled:
            bucket = self._buckets[number]
            grown = each * (len(bucket.lists) - bucket.weighed)
            bucket.weighed = len(bucket.lists)
            bucket.size_bytes += grown
            self.size_bytes += grown
        self._filled.clear()

    def unnote(self, key: bytes, entry: Entry) -> None:
        """An entry that was noted is not to be kept, if it has not been forgotten already."""
        known = self.by_key.get(key, [])
        place = bisect_left(known, entry)
        if place < len(known) and known[place] is entry:
            del known[place]
            if not known:
                del self.by_key[key]

    def discard(self, stored: bytes, time: int) -> None:
        """Delete a stored key, if it is there."""
        key = WINDOWS.key_of(stored)
        for entry in self._of_key(key, time, time):
            if entry[1] == stored:
                # It stays on the scales until its bucket goes: what is put is hardly ever deleted.
                self.unnote(key, entry)
                return

    def bucket_of(self, time: int) -> int:
        """The number of the bucket that a time lies in."""
        return time // self._bucket_ms

    def forget_before(self, time: int) -> None:
        """Drop the buckets that lie wholly before a time: what is in the others stays."""
        numbers, number = self._numbers, time // self._bucket_ms
        while numbers and numbers[0] < number:
            self.forget_oldest()

    def forget_oldest(self) -> int:
        """Drop the oldest bucket.

        Returns:
            The time from which on everything is still there.
        """
        number = self._numbers.pop(0)
        bucket = self._buckets.pop(number)
        self._filled.discard(number)
        self.size_bytes -= bucket.size_bytes
        after = (number + 1) * self._bucket_ms
        end = (after,)
        for known in bucket.lists:
            # Nothing older is there than what this bucket has, and it has the list once an entry.
            if not known or known[0] >= end:
                continue
            stored = known[0][1]
            if len(known) < _LONG:
                # It is to be freed anyway, and no other entry is looked at.
                del known[0]
            else:
                del known[: bisect_left(known, end)]
            if not known:
                del self.by_key[WINDOWS.key_of(stored)]
        return after

    def clear(self) -> None:
        """Drop everything."""
        self.by_key.clear()
        self._buckets.clear()
        self._numbers.clear()
        self._filled.clear()
        self._in_order_from = UNKNOWN
        self.size_bytes = 0

    def _bucket(self, number: int) -> _Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket()
            insort(self._numbers, number)
        return bucket


def within(entries: list[Entry], first: int, last: int) -> list[Entry]:
    """The entries of a key within some time, in a new list.

    Args:
        entries: ascending.
        first: the earliest time.
        last: the latest time, included.
    """
    low = 0 if first <= entries[0][0] else bisect_left(entries, (first,))
    if last >= entries[-1][0]:
        # Mostly nothing is later than what is looked for.
        return entries[low:]
    return entries[low : bisect_left(entries, (last + 1,), low)]
