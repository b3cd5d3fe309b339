"""The offsets of a partition that are in flight, and its committable offset."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Run:
    """Offsets that were taken together.

    Those before index `done` are below the watermark.
    """

    offsets: Sequence[int]
    leader_epoch: int | None
    timestamps: Sequence[int]
    done: int = 0


class PendingOffsets:
    """A window over the offsets of one partition that are in flight.

    Its watermark, the committable offset, is the end of the longest finished prefix. Offsets have
    gaps (compacted records, transaction markers, records dropped by a handler), so a prefix
    consists of offsets that were taken. If nothing is in flight, the record queue determines the
    next offset.

    Batch processing takes a run and calls `finish_all`; both together take 1 us for a batch of any
    size. Concurrent processing calls `finish`, in any order.

    The caller limits `size`: a record that never finishes stops the partition once the limit is
    reached.
    """

    __slots__ = ("_finished", "_runs", "latest", "leader_epoch", "size", "time")

    def __init__(self) -> None:
        #: The leader epoch of the last offset below the watermark; None before the first one.
        self.leader_epoch: int | None = None
        #: The highest timestamp below the watermark; -1 before the first record.
        self.time = -1
        #: The highest timestamp of all records taken.
        self.latest = -1
        self._runs: deque[_Run] = deque()
        self._finished: set[int] = set()
        #: The number of offsets from the watermark to the last offset taken.
        self.size = 0

    @property
    def first(self) -> int | None:
        """The first unfinished offset, to be committed; None if nothing is in flight."""
        if not self._runs:
            return None
        run = self._runs[0]
        return run.offsets[run.done]

    @property
    def in_flight(self) -> int:
        """The number of offsets that are taken and not finished."""
        return self.size - len(self._finished)

    def start_at(self, time: int) -> None:
        """Set the highest timestamp of the records that were finished earlier."""
        self.time = self.latest = time

    def take(
        self, offsets: Sequence[int], leader_epoch: int | None, timestamps: Sequence[int]
    ) -> None:
        """Add offsets in flight, in ascending order and above the previous ones.

        The columns must not be empty and are not copied. The leader epoch is that of the last
        offset.
        """
        self.latest = max(self.latest, max(timestamps))
        self._runs.append(_Run(offsets, leader_epoch, timestamps))
        self.size += len(offsets)

    def finish_all(self) -> None:
        """Finish all offsets."""
        if self._runs:
            self.leader_epoch = self._runs[-1].leader_epoch
            self.time = self.latest
            self._runs.clear()
            self._finished.clear()
            self.size = 0

    def finish(self, offset: int) -> None:
        """Finish one offset. Does nothing if the offset is not in flight."""
        if not self._is_in_flight(offset):
            return
        finished = self._finished
        finished.add(offset)
        while self._runs:
            run = self._runs[0]
            if run.offsets[run.done] not in finished:
                return
            finished.remove(run.offsets[run.done])
            self.size -= 1
            self.time = max(self.time, run.timestamps[run.done])
            run.done += 1
            self.leader_epoch = run.leader_epoch
            if run.done == len(run.offsets):
                self._runs.popleft()

    def _is_in_flight(self, offset: int) -> bool:
        if not self._runs or offset in self._finished:
            return False
        run = self._runs[0]
        if offset > run.offsets[-1]:
            index = bisect_left(self._runs, offset, 1, key=lambda each: each.offsets[-1])
            if index == len(self._runs):
                return False
            run = self._runs[index]
        return run.offsets[bisect_left(run.offsets, offset, run.done)] == offset
