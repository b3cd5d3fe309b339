"""The bytes of writes that may wait for a commit, over all stores of a thread."""

from __future__ import annotations

from typing import Protocol


class UncommittedWrites(Protocol):
    """Writes that wait for a commit, for example those of a task's stores."""

    def count_uncommitted(self) -> int:
        """How many bytes of keys and values wait."""
        ...


class UncommittedBudget:
    """Limits the writes of a thread's stores that wait for a commit (KIP-892).

    A thread with more of them commits before its next batch. The limit is checked between batches,
    so it is exceeded by at most what one batch, punctuation or flush of caches writes. Writes that
    come from a changelog do not wait for a commit.

    Args:
        max_bytes: how many bytes of keys and values may wait; -1 for any number. They take more in
            memory: about 110 bytes more for each key.
    """

    def __init__(self, max_bytes: int = -1) -> None:
        self._max_bytes = max_bytes
        self._is_exceeded = False
        self._total = 0
        self._bytes: dict[UncommittedWrites, int] = {}

    @property
    def is_exceeded(self) -> bool:
        """Whether the thread should commit before it goes on."""
        return self._is_exceeded

    def resize(self, max_bytes: int) -> None:
        """Set another limit, in bytes; -1 for none."""
        self._max_bytes = max_bytes
        self._compare()

    def update(self, writes: UncommittedWrites, uncommitted_bytes: int) -> None:
        """Note that some writes wait, or no longer wait.

        Args:
            writes: which.
            uncommitted_bytes: at most how many bytes they have.
        """
        self._total += uncommitted_bytes - self._bytes.get(writes, 0)
        if uncommitted_bytes:
            self._bytes[writes] = uncommitted_bytes
        else:
            self._bytes.pop(writes, None)
        self._compare()

    def _compare(self) -> None:
        if self._max_bytes < 0 or self._total * 4 <= self._max_bytes * 3:
            self._is_exceeded = False
        elif self._total > self._max_bytes and not self._is_exceeded:
            # Three quarters count as full: keys that are written again and again, just below the
            # limit, would be counted after each batch.
            for writes in self._bytes:
                self._bytes[writes] = writes.count_uncommitted()
            self._total = sum(self._bytes.values())
            self._is_exceeded = self._total * 4 > self._max_bytes * 3
