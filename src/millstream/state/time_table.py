"""Windows or sessions in memory, to be found by stored key, by key, and by time."""

from __future__ import annotations

from bisect import bisect_left, insort

from millstream.state.window_keys import KeyLayout

#: What an entry takes besides its key and value: the objects of Python around them.
ENTRY_OVERHEAD_BYTES = 300


class TimeTable:
    """A dict by stored key, whose keys are also kept by key and by stretch of time.

    What is written again, as aggregates are, costs no more than the dict. Stretches of time
    (buckets) only serve to forget and to look through what is old: their exact size decides
    nothing, as readers ask for exact times.

    Args:
        layout: of the stored keys.
        bucket_ms: how long a stretch is.

    Attributes:
        values: the values by stored key. To be read only.
        size_bytes: about what everything takes.
    """

    def __init__(self, layout: KeyLayout, bucket_ms: int) -> None:
        self.values: dict[bytes, bytes] = {}
        self.size_bytes = 0
        self._suffix = layout.suffix_bytes
        self._time_of = layout.time_of
        self._first_at = layout.first_at
        self._after = layout.after
        self._bucket_ms = max(1, bucket_ms)
        # The stored keys of each key, ascending.
        self._by_key: dict[bytes, list[bytes]] = {}
        self._buckets: dict[int, set[bytes]] = {}
        # The numbers of the buckets, ascending.
        self._numbers: list[int] = []

    def put(self, stored: bytes, value: bytes, time: int) -> None:
        """Write one value: 0.2 us for a stored key that is known, 0.55 us for a new one.

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
        key = stored[: -self._suffix]
        known = self._by_key.get(key)
        if known is None:
            self._by_key[key] = [stored]
        elif stored > known[-1]:
            known.append(stored)
        else:
            insort(known, stored)
        number = time // self._bucket_ms
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = set()
            insort(self._numbers, number)
        bucket.add(stored)

    def discard(self, stored: bytes, time: int) -> None:
        """Delete a stored key, if it is there."""
        value = self.values.pop(stored, None)
        if value is None:
            return
        self._forget(stored, value)
        # An empty bucket stays until its time has passed.
        self._buckets[time // self._bucket_ms].discard(stored)

    def of_key(self, key: bytes, first: int, last: int) -> list[bytes]:
        """The stored keys of a key within some time, ascending: 0.7 us.

        Args:
            key: the serialized key.
            first: the earliest time.
            last: the latest time, included.
        """
        known = self._by_key.get(key)
        if known is None or first > last:
            return []
        if len(known) == 1:
            return known[:] if first <= self._time_of(known[0]) <= last else []
        low = bisect_left(known, self._first_at(key, first))
        return known[low : bisect_left(known, self._after(key, last), low)]

    def between(self, first: int, last: int) -> list[bytes]:
        """The stored keys within some time, in no order.

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
        return found

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
        self._by_key.clear()
        self._buckets.clear()
        self._numbers.clear()
        self.size_bytes = 0

    def _drop_bucket(self, number: int) -> None:
        pop, forget = self.values.pop, self._forget
        for stored in self._buckets.pop(number):
            forget(stored, pop(stored))
        self._numbers.remove(number)

    def _forget(self, stored: bytes, value: bytes) -> None:
        self.size_bytes -= len(stored) + len(value) + ENTRY_OVERHEAD_BYTES
        key = stored[: -self._suffix]
        known = self._by_key[key]
        if len(known) == 1:
            del self._by_key[key]
        elif known[0] == stored:
            del known[0]
        else:
            del known[bisect_left(known, stored)]
