"""Adding threads to a running application and removing them (KIP-663)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.background import background
from support.broker.topics import group_members
from support.machine.leftovers import nothing_left
from support.running.applications import processed
from support.running.word_count import RUNNING, WordCount
from support.waiting import wait_for

from millstream import KafkaStreams, NotEnoughSlotsError
from millstream.errors import GroupMembershipError
from millstream.testing import EmbeddedKafka

REMOVED = timedelta(seconds=60)


def indexes(streams: KafkaStreams) -> list[int]:
    threads = streams.metadata_for_local_threads()
    return sorted(int(each.thread_name.rpartition("-")[2]) for each in threads)


def tasks(streams: KafkaStreams) -> list[int]:
    return sorted(len(each.active_tasks) for each in streams.metadata_for_local_threads())


@pytest.mark.extended
def test_threads_are_added_and_removed_under_load(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Every word is counted once during all changes; the lowest free index is reused; a removed
    thread leaves the group immediately."""
    application = WordCount(kafka, tmp_path, num_stream_threads=1, statestore_cache_max_bytes=900)
    with nothing_left(), application.streams(spark) as streams:
        streams.wait_for_state("RUNNING", RUNNING)
        with background(lambda: application.write_lines(20), 0.05):
            second, third = streams.add_stream_thread(), streams.add_stream_thread()
            assert str(second).endswith("-StreamThread-2")
            assert str(third).endswith("-StreamThread-3")
            wait_for(lambda: tasks(streams) == [2, 3, 3], 60, "all three threads are working")
            streams.wait_for_state("RUNNING", RUNNING)
            assert group_members(application.bootstrap, application.application_id) == 3

            removed = streams.remove_stream_thread(REMOVED)
            assert str(removed).endswith("-StreamThread-1")
            assert indexes(streams) == [2, 3]
            wait_for(lambda: tasks(streams) == [4, 4], 60, "the others have its tasks")
            assert group_members(application.bootstrap, application.application_id) == 2

            again = streams.add_stream_thread()
            assert again == removed
            assert indexes(streams) == [1, 2, 3]
        wait_for(application.is_exact, 90, "every word is counted once")
        assert "3 stream threads" in repr(streams)


@pytest.mark.extended
def test_an_application_without_threads_continues_with_an_added_one(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """A paused application stays paused: an added thread is paused, too (KIP-834)."""
    application = WordCount(kafka, tmp_path, num_stream_threads=1)
    with application.streams(spark) as streams:
        streams.wait_for_state("RUNNING", RUNNING)
        assert streams.remove_stream_thread(REMOVED) is not None
        assert streams.remove_stream_thread(REMOVED) is None
        assert group_members(application.bootstrap, application.application_id) == 0
        streams.pause()
        application.write_lines(20)
        assert streams.add_stream_thread() is not None
        wait_for(lambda: streams.metrics().total("paused") > 0, 60, "paused")
        wait_for(lambda: tasks(streams) == [8], 60, "the thread has all tasks")
        assert processed(streams) == 0
        streams.resume()
        wait_for(application.is_exact, 60, "every word is counted once")
    assert streams.add_stream_thread() is None
    assert streams.remove_stream_thread() is None


@pytest.mark.extended
def test_a_thread_without_a_slot_is_rejected_and_others_continue(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    application = WordCount(kafka, tmp_path, num_stream_threads=1)
    slots = spark.sparkContext.defaultParallelism
    with application.streams(spark, num_stream_threads=slots) as streams:
        with pytest.raises(NotEnoughSlotsError):
            streams.add_stream_thread()
        assert len(streams.metadata_for_local_threads()) == slots
        assert streams.error is None


@pytest.mark.slow
def test_a_removed_static_member_leaves_the_group(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Detects tasks that wait for a session timeout, although a removed member never returns.

    After a close they do wait, because the instance is expected to return.
    """
    application = WordCount(
        kafka,
        tmp_path,
        consumer={"session.timeout.ms": 45_000, "group.instance.id": "one"},
    )
    with application.streams(spark) as streams:
        streams.wait_for_state("RUNNING", RUNNING)
        assert group_members(application.bootstrap, application.application_id) == 2
        assert streams.remove_stream_thread(REMOVED) is not None
        wait_for(lambda: tasks(streams) == [8], 20, "the other thread has its tasks")
    assert group_members(application.bootstrap, application.application_id) == 1


@pytest.mark.slow
def test_a_static_instance_keeps_its_tasks_over_a_restart_until_fenced(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """It runs long before the session timeout; a fenced instance's error names the cause."""

    def tasks_by_thread(streams: KafkaStreams) -> dict[str, list[str]]:
        return {
            each.thread_name: [task.task_id for task in each.active_tasks]
            for each in streams.metadata_for_local_threads()
        }

    application = WordCount(
        kafka,
        tmp_path / "one",
        consumer={"session.timeout.ms": 45_000, "group.instance.id": "one"},
    )
    with application.streams(spark) as streams:
        streams.wait_for_state("RUNNING", RUNNING)
        wait_for(lambda: tasks(streams) == [4, 4], 30, "both have tasks")
        before = tasks_by_thread(streams)
    assert group_members(application.bootstrap, application.application_id) == 2
    with application.streams(spark) as streams:
        streams.wait_for_state("RUNNING", timedelta(seconds=30))
        assert tasks_by_thread(streams) == before
        with application.streams(spark, state_dir=str(tmp_path / "other")):
            wait_for(lambda: streams.state.name == "ERROR", 60, "the instance is fenced")
        assert isinstance(streams.error, GroupMembershipError)
        assert "static member 'one-" in str(streams.error)
        assert "group.instance.id" in str(streams.error)
