"""What is made of Spark's account of a batch."""

from __future__ import annotations

from typing import Any

from millstream.record import TopicPartition
from millstream.structured.progress import StageMeters
from millstream.structured.stage_query import finished_by


def batch(number: int, rows: int, ends: Any, behind: str = "0") -> dict[str, Any]:
    return {
        "batchId": number,
        "numInputRows": rows,
        "processedRowsPerSecond": 2.0 * rows,
        "durationMs": {"triggerExecution": 500},
        "sources": [{"endOffset": ends, "metrics": {"maxOffsetsBehindLatest": behind}}],
    }


def test_a_batch_is_counted_once_and_an_empty_one_keeps_the_last_rates() -> None:
    meters = StageMeters("stage")
    for progress in (batch(0, 10, None, "7"), batch(0, 10, None, "7"), batch(1, 5, None)):
        meters.take(progress)
    meters.take(batch(2, 0, None))
    status = meters.status
    assert (status.batch, status.rows, status.lag) == (2, 15, 0)
    assert (status.rows_per_s, status.batch_ms) == (10.0, 500)


def test_the_ends_of_the_input_topic_are_what_is_finished() -> None:
    """As text or as an object; a table that is read beside it does not count."""
    expected = {TopicPartition("in", 0): 4, TopicPartition("in", 1): 9}
    for ends in ('{"in": {"0": 4, "1": 9}}', {"in": {"0": 4, "1": 9}}):
        progress = batch(0, 1, ends)
        progress["sources"].append({"endOffset": {"other": {"0": 1}}, "metrics": {}})
        assert finished_by(progress, "in") == expected
    assert finished_by(batch(0, 0, None), "in") == {}
