"""Plans of history writers are stored and read unchanged."""

from __future__ import annotations

from millstream.dataframes.lake.history_writer import HistoryPlan, parse_plan
from millstream.record import TopicPartition


def test_a_plan_is_stored_as_offsets() -> None:
    """For each partition, the offset to continue at and the number of preceding rows."""
    plan = HistoryPlan("run", 10, {0: 30, 1: 0}, {0: 42, 1: 7})
    positions = plan.positions("history")
    assert set(positions) == {TopicPartition("history", 0), TopicPartition("history", 1)}
    stored = {place: (position.offset, position.metadata) for place, position in positions.items()}
    assert parse_plan(stored) == plan


def test_without_stored_offsets_there_is_no_plan() -> None:
    assert parse_plan({TopicPartition("history", 0): None}) is None
