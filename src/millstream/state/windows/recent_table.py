"""What keeps windows or sessions in memory, as the stores above it see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class RecentTable(Protocol):
    """Entries to be found by stored key, by key, and by time; what is old is forgotten in buckets.

    Attributes:
        size_bytes: about what everything takes.
    """

    size_bytes: int

    @property
    def get(self) -> Callable[[bytes], bytes | None]:
        """Gives the value of a stored key, None if there is none."""
        ...

    def __len__(self) -> int: ...

    def of_key(self, key: bytes, first: int, last: int) -> list[tuple[bytes, bytes]]:
        """What a key has within some time, ascending, in a new list."""
        ...

    def between(self, first: int, last: int) -> list[tuple[bytes, bytes]]:
        """What all keys have within some time, in no order, in a new list."""
        ...

    def put(self, stored: bytes, value: bytes, time: int) -> None:
        """Write one value, whose stored key is of that time."""
        ...

    def put_many(self, pairs: Mapping[bytes, bytes], number: int) -> None:
        """Write values whose times lie in the bucket of that number."""
        ...

    def discard(self, stored: bytes, time: int) -> None:
        """Delete a stored key, if it is there."""
        ...

    def bucket_of(self, time: int) -> int:
        """The number of the bucket that a time lies in."""
        ...

    def forget_before(self, time: int) -> None:
        """Drop the buckets that lie wholly before a time."""
        ...

    def forget_oldest(self) -> int:
        """Drop the oldest bucket; the time from which on everything is still there."""
        ...

    def clear(self) -> None:
        """Drop everything."""
        ...
