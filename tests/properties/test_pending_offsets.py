"""The committable offset of a partition with records that are completed in any order.

Method: take and finish offsets at random, and compare the window with a list of taken offsets and a
set of finished ones.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millstream.runtime.task.queues.pending_offsets import PendingOffsets

MAX_SIZE = 20


class Window(RuleBasedStateMachine):
    """A window and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.window = PendingOffsets()
        #: The taken offsets with their leader epochs.
        self.taken: list[tuple[int, int | None]] = []
        self.times: list[int] = []
        self.finished: set[int] = set()
        self.next_offset = 0

    @property
    def in_flight(self) -> list[int]:
        return [offset for offset, _ in self.taken if offset not in self.finished]

    @property
    def watermark(self) -> int:
        """The number of leading offsets that are finished."""
        flags = [offset in self.finished for offset, _ in self.taken]
        return flags.index(False) if False in flags else len(flags)

    @rule(
        gaps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=8),
        leader_epoch=st.none() | st.integers(0, 5),
    )
    def take(self, gaps: list[tuple[int, int]], leader_epoch: int | None) -> None:
        """Take the records of a poll, with possible gaps."""
        offsets: list[int] = []
        times: list[int] = []
        for gap, time in gaps[: MAX_SIZE - self.window.size]:
            offsets.append(self.next_offset + gap)
            times.append(time)
            self.next_offset = offsets[-1] + 1
        if offsets:
            whole = range(offsets[0], offsets[-1] + 1)
            self.window.take(whole if list(whole) == offsets else offsets, leader_epoch, times)
            self.times += times
            self.taken += [(offset, leader_epoch) for offset in offsets]

    @rule(data=st.data())
    @precondition(lambda self: self.in_flight)
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.in_flight))
        self.window.finish(offset)
        self.finished.add(offset)

    @rule()
    def finish_all(self) -> None:
        self.window.finish_all()
        self.finished.update(self.in_flight)

    @rule(offset=st.integers(-1, 100))
    def finish_unknown_offset(self, offset: int) -> None:
        """Finish an offset that is not in flight, as a cache does for a record held back in it."""
        if offset not in self.in_flight:
            self.window.finish(offset)

    @invariant()
    def matches_the_model(self) -> None:
        done = self.watermark
        assert self.window.first == (self.taken[done][0] if done < len(self.taken) else None)
        assert self.window.in_flight == len(self.in_flight)
        assert self.window.size == len(self.taken) - done
        assert self.window.time == max(self.times[:done], default=-1)
        assert self.window.latest == max(self.times, default=-1)
        if self.in_flight:
            assert self.window.leader_epoch == (self.taken[done - 1][1] if done else None)


def test_a_window_matches_its_model() -> None:
    """With any order of completions, gaps between offsets, and changing leader epochs."""
    run_state_machine_as_test(Window, settings=settings(max_examples=200, deadline=None))


def test_finished_offsets_after_an_unfinished_one_count_as_pending() -> None:
    """The size bounds the records in memory, and those repeated after a crash."""
    window = PendingOffsets()
    window.take(range(10, 13), None, [0, 0, 0])
    window.finish(11)
    window.finish(12)
    assert (window.first, window.size) == (10, 3)
    window.finish(10)
    assert (window.first, window.size) == (None, 0)
