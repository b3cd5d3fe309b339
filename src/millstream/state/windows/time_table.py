"""Windows or sessions in memory, to be found by stored key, by key, and by time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping

from millstream.state.windows.key_index import KeyIndex
from millstream.state.windows.window_keys import KeyLayout

#: What an entry takes besides its key and value: the objects of Python around them.
ENTRY_OVERHEAD_BYTES = 300


class TimeTable:
    """A dict by stored key, whose keys are also kept by stretch of time and, once asked, by key.

    What is written again, as aggregates are, costs no more than the dict. Stretches of time
    (buckets) only serve to forget and to look through what is old: their exact size decides
    nothing, as readers ask for exact times.

    Args:
        layout: of the stored keys.
        bucket_ms: how long a stretch is.

    Attributes:
        values: the values by stored key. To be read only.
        get: the value of a stored key, None if there is none.
        size_bytes: about what everything takes.
    """

    def __init__(self, layout: KeyLayout, bucket_ms: int) -> None:
        self.values: dict[bytes, bytes] = {}
        self.get: Callable[[bytes], bytes | None] = self.values.get
        self.size_bytes = 0
        self._layout = layout
        self._time_of = layout.time_of
        self._bucket_ms = max(1, bucket_ms)
        # Made when somebody asks for the first time.
        self._by_key: KeyIndex | None = None
        self._buckets: dict[int, set[bytes]] = {}
        # The numbers of the buckets, ascending.
        self._numbers: list[int] = []

    def put(self, stored: bytes, value: bytes, time: int) -> None:
        """Write one value: 0.2 us for a stored key that is known, 0.4 us for a new one, and 0.2 us
        more if they are kept by key.

        Args:
            stored: the stored key.
            value: the value.
            time: that of the stored key.
        """
        values = self.values
        old = values.get(stored)
        values[stored] = value
        if old is not None:
            self.size_bytes += len(value) - len(old)
            return
        self.size_bytes += len(stored) + len(value) + ENTRY_OVERHEAD_BYTES
        if self._by_key is not None:
            self._by_key.note(stored)
        self._bucket(time // self._bucket_ms).add(stored)

    def put_many(self, pairs: Mapping[bytes, bytes], number: int) -> None:
        """Write values whose times lie in one bucket: 0.15 us each.

        Args:
            pairs: the values by stored key.
            number: of the bucket, from `bucket_of`.
        """
        values = self.values
        old = [value for value in map(values.get, pairs) if value is not None]
        if len(old) == len(pairs):
            grown = 0
        else:
            new = [stored for stored in pairs if stored not in values] if old else pairs
            grown = sum(map(len, new)) + len(new) * ENTRY_OVERHEAD_BYTES
            self._bucket(number).update(new)
            if self._by_key is not None:
                for stored in new:
                    self._by_key.note(stored)
        values.update(pairs)
        self.size_bytes += grown + sum(map(len, pairs.values())) - sum(map(len, old))

    def bucket_of(self, time: int) -> int:
        """The number of the bucket that a time lies in."""
        return time // self._bucket_ms

    def discard(self, stored: bytes, time: int) -> None:
        """Delete a stored key, if it is there."""
        value = self.values.pop(stored, None)
        if value is None:
            return
        self.size_bytes -= len(stored) + len(value) + ENTRY_OVERHEAD_BYTES
        if self._by_key is not None:
            self._by_key.unnote(stored)
        # An empty bucket stays until its time has passed.
        self._buckets[time // self._bucket_ms].discard(stored)

    def __len__(self) -> int:
        return len(self.values)

    def of_key(self, key: bytes, first: int, last: int) -> list[tuple[bytes, bytes]]:
        """The stored keys of a key within some time and their values, ascending: 0.7 us.

        Args:
            key: the serialized key.
            first: the earliest time.
            last: the latest time, included.
        """
        if self._by_key is None:
            self._by_key = KeyIndex(self._layout, lambda: self.values)
        values = self.values
        return [(stored, values[stored]) for stored in self._by_key.of_key(key, first, last)]

    def between(self, first: int, last: int) -> list[tuple[bytes, bytes]]:
        """The stored keys within some time and their values, in no order.

        Args:
            first: the earliest time.
            last: the latest time, included.
        """
        low, high = first // self._bucket_ms, last // self._bucket_ms
        time_of = self._time_of
        numbers = self._numbers
        found: list[bytes] = []
        for number in numbers[bisect_left(numbers, low) : bisect_left(numbers, high + 1)]:
            bucket = self._buckets[number]
            if low < number < high:
                found.extend(bucket)
            else:
                found.extend(stored for stored in bucket if first <= time_of(stored) <= last)
        values = self.values
        return [(stored, values[stored]) for stored in found]

    def forget_before(self, time: int) -> None:
        """Drop the buckets that lie wholly before a time: what is in the others stays."""
        numbers = self._numbers
        if numbers and numbers[0] < time // self._bucket_ms:
            for number in numbers[: bisect_left(numbers, time // self._bucket_ms)]:
                self._drop_bucket(number)

    def forget_oldest(self) -> int:
        """Drop the oldest bucket.

        Returns:
            The time from which on everything is still there.
        """
        number = self._numbers[0]
        self._drop_bucket(number)
        return (number + 1) * self._bucket_ms

    def clear(self) -> None:
        """Drop everything."""
        self.values.clear()
        self._by_key = None
        self._buckets.clear()
        self._numbers.clear()
        self.size_bytes = 0

    def _bucket(self, number: int) -> set[bytes]:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = set()
            insort(self._numbers, number)
        return bucket

    def _drop_bucket(self, number: int) -> None:
        bucket = self._buckets.pop(number)
        self._numbers.remove(number)
        sizes = map(len, list(map(self.values.pop, bucket)))
        self.size_bytes -= sum(sizes) + sum(map(len, bucket)) + len(bucket) * ENTRY_OVERHEAD_BYTES
        if self._by_key is not None:
            for stored in bucket:
                self._by_key.unnote(stored)
