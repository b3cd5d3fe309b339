"""Between what was taken from a partition and what may be committed of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence


class _Run:
    """Offsets that were taken together, ascending; those before `done` are below the watermark."""

    __slots__ = ("done", "leader_epoch", "offsets", "timestamps")

    def __init__(
        self, offsets: Sequence[int], leader_epoch: int | None, timestamps: Sequence[int]
    ) -> None:
        self.offsets = offsets
        self.leader_epoch = leader_epoch
        self.timestamps = timestamps
        self.done = 0


class PendingOffsets:
    """A window of the offsets of one partition that are in flight.

    Its watermark is the end of the longest prefix that is finished: what may be committed. Offsets
    have gaps, where records were compacted, are transaction markers, or are left out by a handler:
    so a prefix is one of the offsets that were taken, and where nothing is in flight the reader
    knows better where it goes on.

    Who works on a batch at a time takes a run and calls `finish_all`: 1 us for both, whatever the
    batch's size. Who works on records beside each other calls `finish`, in any order.

    Who takes bounds `size`: one record that is never finished stops the partition there.
    """

    __slots__ = ("_finished", "_runs", "_size", "latest", "leader_epoch", "time")

    def __init__(self) -> None:
        #: The leader epoch of the last offset below the watermark; None before the first one.
        self.leader_epoch: int | None = None
        #: The highest time of a record below the watermark; -1 before the first one.
        self.time = -1
        #: The highest time of a record taken.
        self.latest = -1
        self._runs: deque[_Run] = deque()
        self._finished: set[int] = set()
        self._size = 0

    @property
    def first(self) -> int | None:
        """The first offset that is not finished: what to commit. None with nothing in flight."""
        if not self._runs:
            return None
        run = self._runs[0]
        return run.offsets[run.done]

    @property
    def in_flight(self) -> int:
        """How many offsets are taken and not finished."""
        return self._size - len(self._finished)

    @property
    def size(self) -> int:
        """How many offsets there are from the watermark to the last one taken."""
        return self._size

    def begin_at(self, time: int) -> None:
        """This is the highest time of what was finished before."""
        self.time = self.latest = time

    def take(
        self, offsets: Sequence[int], leader_epoch: int | None, timestamps: Sequence[int]
    ) -> None:
        """These offsets are in flight from now on.

        Args:
            offsets: at least one; ascending, and above all that are in flight. Not copied.
            leader_epoch: that of their last one; None where it is unknown.
            timestamps: those of their records. Not copied.
        """
        self.latest = max(self.latest, max(timestamps))
        self._runs.append(_Run(offsets, leader_epoch, timestamps))
        self._size += len(offsets)

    def finish_all(self) -> None:
        """All that were taken are finished."""
        if self._runs:
            self.leader_epoch = self._runs[-1].leader_epoch
            self.time = self.latest
            self._runs.clear()
            self._finished.clear()
            self._size = 0

    def finish(self, offset: int) -> None:
        """One of them is finished; nothing if it is not in flight any more."""
        if not self._is_in_flight(offset):
            return
        finished = self._finished
        finished.add(offset)
        while self._runs:
            run = self._runs[0]
            if run.offsets[run.done] not in finished:
                return
            finished.remove(run.offsets[run.done])
            self._size -= 1
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
            place = bisect_left(self._runs, offset, 1, key=_last)
            if place == len(self._runs):
                return False
            run = self._runs[place]
        return run.offsets[bisect_left(run.offsets, offset, run.done)] == offset


def _last(run: _Run) -> int:
    return run.offsets[-1]
