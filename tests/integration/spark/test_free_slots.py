"""How many task slots a session has left, and claims of queries whose tasks stay."""

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
    return claim.waits(spark.sparkContext.applicationId, tracker, tracker.getActiveStageIds()) == 0


def test_what_is_claimed_is_not_free(spark: SparkSession) -> None:
    """Goal: a second query that needs more than the first left over is told what there is, though
    no task of the first runs yet; slots are free again once they are released."""
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "nothing runs")
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
    """Goal: claimed slots are taken before, while and after the tasks run that they are for."""
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "nothing runs")
    ended = tmp_path / "ended"

    def wait(rows: Iterable[int]) -> Iterable[int]:
        while not ended.exists():
            time.sleep(0.05)
        return rows

    def run() -> None:
        spark.sparkContext.setJobGroup("a-run", "tasks that stay")
        spark.sparkContext.parallelize(range(3), 3).mapPartitions(wait).count()

    claim = claimed(spark, 3)
    claim.used_by("a-run")
    runs = threading.Thread(target=run)
    tracker = spark.sparkContext.statusTracker()
    try:
        assert free_slots(spark).free == SLOTS - 3
        runs.start()
        wait_for(lambda: has_tasks(spark, claim), 60, "3 tasks")
        assert free_slots(spark).free == SLOTS - 3
        ended.touch()
        runs.join(60)
        wait_for(lambda: not tracker.getActiveJobsIds(), 60, "the tasks have ended")
        assert free_slots(spark).free == SLOTS - 3
    finally:
        ended.touch()
        claim.release()
    assert free_slots(spark).free == SLOTS


def test_a_stage_that_has_not_begun_takes_no_claimed_slots(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: a job tells its stages before their tasks are submitted; until then their slots are
    claimed, and seen as such."""
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "nothing runs")
    ended = tmp_path / "ended"

    def wait(rows: Iterable[int]) -> Iterable[tuple[int, int]]:
        while not ended.exists():
            time.sleep(0.05)
        return [(row, row) for row in rows]

    def run() -> None:
        spark.sparkContext.setJobGroup("two-stages", "one waits for the other")
        spark.sparkContext.parallelize(range(3), 1).mapPartitions(wait).groupByKey(3).count()

    claim = claimed(spark, 3)
    claim.used_by("two-stages")
    runs = threading.Thread(target=run)
    tracker = spark.sparkContext.statusTracker()
    try:
        runs.start()
        wait_for(lambda: len(tracker.getActiveStageIds()) == 1, 60, "the first stage")
        assert free_slots(spark).free == SLOTS - 3
    finally:
        ended.touch()
        runs.join(60)
        claim.release()
    wait_for(lambda: free_slots(spark).free == SLOTS, 60, "nothing runs")
