"""Starts and commits one task without a thread."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.clock import Clock, ManualClock
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.topology.physical.subtopology import SubTopology


def app_config(**settings: Any) -> StreamsConfig:
    """The settings of the application `app`, which has no broker."""
    return StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)


def task_services(
    folder: Path | str,
    collector: Any,
    clock: Clock | None = None,
    config: StreamsConfig | None = None,
    cache_bytes: int = 0,
    **more: Any,
) -> TaskServices:
    """The services of tasks of the application `app`.

    Args:
        collector: takes the output, and makes changelog writers unless others are given.
    """
    more.setdefault("changelog_writer", getattr(collector, "changelog_writer", None))
    return TaskServices(
        config=config or app_config(),
        clock=clock or ManualClock(),
        collector=collector,
        directory=StateDirectory(str(folder), "app"),
        budget=CacheBudget(cache_bytes),
        **more,
    )


def start_task(
    part: SubTopology,
    services: TaskServices,
    partition: int = 0,
    committed: Mapping[TopicPartition, CommitOffset | None] | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> StreamTask:
    """Start the task of a partition of all source topics of a sub-topology."""
    places = frozenset(
        TopicPartition(part.decorate(topic, "app"), partition) for topic in part.source_topics
    )
    task = build_task(part, TaskId(part.id, partition), places, services)
    task.open_stores()
    task.start(committed or {}, topic_ids or {})
    return task


def commit_task(
    task: StreamTask, acked: Mapping[TopicPartition, int] | None = None
) -> Mapping[TopicPartition, CommitOffset]:
    """Commit a prepared task as a thread does, and return the committed offsets.

    Args:
        acked: the last acknowledged offset of each changelog partition.
    """
    offsets = task.offsets_to_commit()
    task.on_commit_started()
    task.post_commit(offsets, acked or {})
    return offsets
