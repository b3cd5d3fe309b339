"""The free task slots of a session, and claims of queries with long-running tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession
from support.waiting import wait_for

from millstream.spark.sessions.free_slots import FreeSlots, SlotClaim, claim_slots, free_slots

SLOTS = 8


def claimed(spark: SparkSession, needed: int) -> SlotClaim:
    found = claim_slots(spark, needed)
    assert isinstance(found, SlotClaim)
    return found


def has_tasks(spark: SparkSession, claim: SlotClaim) -> bool:
    tracker = spark.sparkContext.statusTracker()
    return (
        claim.count_unused(spark.sparkContext.applicationId, tracker, tracker.getActiveStageIds())
        == 0
    )


def test_claimed_slots_are_not_free(spark: SparkSession) -> None:
    """Goal: a second query that needs more than the remaining slots is rejected with their
    number, even before the first query's tasks run; released slots are free again."""
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "no task is running")
    claim = claimed(spark, 5)
    try:
        assert free_slots(spark) == FreeSlots(SLOTS - 5)
        assert claim_slots(spark, SLOTS - 4) == FreeSlots(SLOTS - 5)
        claimed(spark, SLOTS - 5).release()
        assert free_slots(spark) == FreeSlots(SLOTS - 5)
    finally:
        claim.release()
        claim.release()
    assert free_slots(spark) == FreeSlots(SLOTS)


def test_tasks_of_a_claim_are_not_counted_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: claimed slots are occupied before, during and after their tasks."""
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "no task is running")
    ended = tmp_path / "ended"

    def wait(rows: Iterable[int]) -> Iterable[int]:
        while not ended.exists():
            time.sleep(0.05)
        return rows

    def run() -> None:
        spark.sparkContext.setJobGroup("a-run", "tasks that stay")
        spark.sparkContext.parallelize(range(3), 3).mapPartitions(wait).count()

    claim = claimed(spark, 3)
    claim.run_id = "a-run"
    runs = threading.Thread(target=run)
    tracker = spark.sparkContext.statusTracker()
    try:
        assert free_slots(spark).free == SLOTS - 3
        runs.start()
        wait_for(lambda: has_tasks(spark, claim), 60, "3 tasks are running")
        assert free_slots(spark).free == SLOTS - 3
        ended.touch()
        runs.join(60)
        wait_for(lambda: not tracker.getActiveJobsIds(), 60, "the tasks have ended")
        assert free_slots(spark).free == SLOTS - 3
    finally:
        ended.touch()
        claim.release()
    assert free_slots(spark).free == SLOTS


def test_a_pending_stage_uses_no_claimed_slots(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: the stages of a job are visible before their tasks are submitted; until then their
    slots count as claimed."""
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "no task is running")
    ended = tmp_path / "ended"

    def wait(rows: Iterable[int]) -> Iterable[tuple[int, int]]:
        while not ended.exists():
            time.sleep(0.05)
        return [(row, row) for row in rows]

    def run() -> None:
        spark.sparkContext.setJobGroup("two-stages", "one waits for the other")
        spark.sparkContext.parallelize(range(3), 1).mapPartitions(wait).groupByKey(3).count()

    claim = claimed(spark, 3)
    claim.run_id = "two-stages"
    runs = threading.Thread(target=run)
    tracker = spark.sparkContext.statusTracker()
    try:
        runs.start()
        wait_for(lambda: len(tracker.getActiveStageIds()) == 1, 60, "the first stage is running")
        assert free_slots(spark).free == SLOTS - 3
    finally:
        ended.touch()
        runs.join(60)
        claim.release()
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "no task is running")
