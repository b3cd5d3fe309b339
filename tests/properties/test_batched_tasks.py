"""Batching and compaction of tasks, with random sequences of operations."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from millstream.subscriptions.batching.batching_processor import BatchingWindow
from millstream.subscriptions.batching.compaction_processor import Choice, CompactionWindow

STEPS = st.lists(
    st.tuples(st.integers(0, 15), st.sampled_from(["add", "add_all", "due"]), st.integers(0, 9)),
    max_size=40,
)


@given(st.integers(1, 5), st.integers(0, 20), STEPS)
def test_every_item_is_in_one_timely_batch(
    capacity: int, linger_ms: int, steps: list[tuple[int, str, int]]
) -> None:
    """Items keep their order, batches respect the capacity, and due batches are returned."""
    window: BatchingWindow[tuple[int, int]] = BatchingWindow(capacity=capacity, linger_ms=linger_ms)
    batches: list[list[tuple[int, int]]] = []
    now_ms, number = 0, 0
    for passed_ms, step, count in steps:
        now_ms += passed_ms
        batches.append(window.due(now_ms) or [])
        if step == "add":
            batches.append(window.add((number, now_ms), now_ms) or [])
            number += 1
        elif step == "add_all":
            items = [(number + each, now_ms) for each in range(count)]
            full = window.add_all(items, now_ms)
            assert {len(batch) for batch in full} <= {capacity}
            batches += full
            number += count
        assert len(window) < capacity
        due_ms = window.next_due_ms()
        waiting = [each for each in range(number) if each >= sum(map(len, batches))]
        assert (due_ms is None) == (not waiting)
    batches.append(window.take())
    assert max(map(len, batches)) <= capacity
    assert [each for each, _ in chain.from_iterable(batches)] == list(range(number))


@given(
    st.integers(0, 30),
    st.lists(
        st.tuples(
            st.integers(0, 15), st.sampled_from(["a", "b", "c", None]), st.sampled_from(Choice)
        ),
        max_size=40,
    ),
)
def test_compaction_keeps_one_item_of_a_key(
    linger_ms: int, steps: list[tuple[int, str | None, Choice]]
) -> None:
    """Each item is either dropped or returned once, when the linger time of its key has passed."""
    choices = {number: choice for number, (_, _, choice) in enumerate(steps)}
    window: CompactionWindow[str, int] = CompactionWindow(linger_ms, lambda _, new: choices[new])
    kept: dict[str | None, tuple[int, int]] = {}
    done: list[int] = []
    now_ms = 0
    for number, (passed_ms, key, choice) in enumerate(steps):
        now_ms += passed_ms
        due = sorted((due_ms, each) for due_ms, each in kept.values() if due_ms <= now_ms)
        left = window.due(now_ms)
        assert sorted(left) == sorted(each for _, each in due)
        done += left
        kept = {each: entry for each, entry in kept.items() if entry[0] > now_ms}
        lost = window.add(key, number, now_ms)
        due_ms, former = kept.get(key, (now_ms + linger_ms, None))
        stays = former is not None and choice is Choice.LEFT
        assert lost == (number if stays else former)
        kept[key] = (due_ms, former if stays and former is not None else number)
        if lost is not None:
            done.append(lost)
        assert window.next_due_ms() == min(at for at, _ in kept.values())
    assert sorted(done + window.take()) == list(range(len(steps)))
