"""Stage status from Spark's batch progress."""

from __future__ import annotations

from typing import Any

from millstream.dataframes.progress import StageTracker
from millstream.dataframes.stage_query import finished_offsets
from millstream.record import TopicPartition


def batch(number: int, rows: int, ends: Any, behind: str = "0") -> dict[str, Any]:
    return {
        "batchId": number,
        "numInputRows": rows,
        "processedRowsPerSecond": 2.0 * rows,
        "durationMs": {"triggerExecution": 500},
        "sources": [{"endOffset": ends, "metrics": {"maxOffsetsBehindLatest": behind}}],
    }


def test_batches_are_counted_once_and_empty_ones_keep_the_rates() -> None:
    tracker = StageTracker("stage")
    for progress in (batch(0, 10, None, "7"), batch(0, 10, None, "7"), batch(1, 5, None)):
        tracker.update(progress)
    tracker.update(batch(2, 0, None))
    status = tracker.status
    assert (status.batch, status.rows, status.lag) == (2, 15, 0)
    assert (status.rows_per_s, status.batch_ms) == (10.0, 500)


def test_the_ends_of_the_input_topic_are_the_finished_offsets() -> None:
    """As text or as an object; other sources are ignored."""
    expected = {TopicPartition("in", 0): 4, TopicPartition("in", 1): 9}
    for ends in ('{"in": {"0": 4, "1": 9}}', {"in": {"0": 4, "1": 9}}):
        progress = batch(0, 1, ends)
        progress["sources"].append({"endOffset": {"other": {"0": 1}}, "metrics": {}})
        assert finished_offsets(progress, "in") == expected
    assert finished_offsets(batch(0, 0, None), "in") == {}
