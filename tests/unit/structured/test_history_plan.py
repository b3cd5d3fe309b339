"""What is noted about a history that is being written comes back as it was."""

from __future__ import annotations

from millstream.record import TopicPartition
from millstream.structured.lake.history import HistoryPlan, noted_plan


def test_a_plan_is_kept_as_offsets() -> None:
    """Of each partition where the topic goes on, and how many rows come before."""
    plan = HistoryPlan("run", 10, {0: 30, 1: 0}, {0: 42, 1: 7})
    positions = plan.positions("history")
    assert set(positions) == {TopicPartition("history", 0), TopicPartition("history", 1)}
    kept = {place: (told.offset, told.metadata) for place, told in positions.items()}
    assert noted_plan(kept) == plan


def test_there_is_none_before_one_is_noted() -> None:
    assert noted_plan({TopicPartition("history", 0): None}) is None
